"""Standard Webhooks: HMAC-SHA256 over `id.timestamp.body`, under a secret that is written `whsec_…`."""

import base64
import binascii
import hashlib
import hmac
import secrets

from ...errors import SettingsError

PREFIX = "whsec_"
LEAST, MOST, BYTES = 24, 64, 32


def new_secret() -> str:
    """A secret that nobody can guess."""
    return PREFIX + base64.b64encode(secrets.token_bytes(BYTES)).decode()


def key_of(secret: str) -> bytes:
    """The key that a secret writes down."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(PREFIX) or not LEAST <= len(key) <= MOST:
        raise SettingsError(
            "the secret cannot sign.",
            expected=f"{PREFIX} and the base64 of {LEAST} to {MOST} random bytes",
            remedy="Leave it out, and one is made.",
        )
    return key


def signature(key: bytes, identity: str, timestamp: str, body: bytes) -> str:
    """The signature of a message as the header holds it."""
    signed = f"{identity}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
