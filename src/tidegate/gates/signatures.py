"""Who answers for a record: Ed25519 signatures (RFC 8032) by the package `cryptography`.

    private, public = make_keys("release")
    content = signed(record.to_dict(), read_private_key(private))
    signature_holds(content, read_public_key(public))

A record's seal is a plain hash, which anybody can compute: it shows a change by accident, and no forgery. A
signature shows that a holder of the private key wrote this content. It covers the hash of everything but
the seal and itself, and lies beside the seal.
"""

import base64
import importlib
import os
from pathlib import Path
from typing import Any, Protocol

from ..errors import SettingsError
from ..inputs import bounded_bytes
from ..record import SIGNATURE, record_hash

ALGORITHM = "Ed25519"
PURPOSE = b"tidegate record 1\0"  # so that no signature made for something else fits a record
MAX_KEY_BYTES = 64 * 1024


class PrivateKey(Protocol):
    """An Ed25519 private key, as `cryptography` has it."""

    def sign(self, data: bytes) -> bytes: ...


class PublicKey(Protocol):
    """The public key that belongs to it; a wrong signature raises."""

    def verify(self, signature: bytes, data: bytes) -> None: ...


def signed(content: dict[str, Any], key: PrivateKey) -> dict[str, Any]:
    """The record with the key's signature."""
    value = base64.b64encode(key.sign(_message(content))).decode()
    return {**content, SIGNATURE: {"algorithm": ALGORITHM, "value": value}}


def signature_holds(content: dict[str, Any], key: PublicKey) -> bool:
    """Whether the holder of this key signed exactly this content."""
    signature = content.get(SIGNATURE)
    if not isinstance(signature, dict) or signature.get("algorithm") != ALGORITHM:
        return False
    invalid = _package("exceptions").InvalidSignature
    try:
        key.verify(base64.b64decode(signature["value"], validate=True), _message(content))
    except (invalid, KeyError, TypeError, ValueError):
        return False
    return True


def make_keys(prefix: str | Path) -> tuple[Path, Path]:
    """Write a new pair as PREFIX.private.pem, for its owner's eyes only, and PREFIX.public.pem."""
    forms = _package("hazmat.primitives.serialization")
    key = _package("hazmat.primitives.asymmetric.ed25519").Ed25519PrivateKey.generate()
    private, public = (Path(f"{prefix}.{kind}.pem") for kind in ("private", "public"))
    _write_new(
        public,
        key.public_key().public_bytes(forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo),
        0o644,
    )
    try:
        plain = forms.NoEncryption()
        secret = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, plain)
        _write_new(private, secret, 0o600)
    except BaseException:
        public.unlink()
        raise
    return private, public


def read_private_key(path: str | Path) -> PrivateKey:
    """The private key in a PEM file (PKCS #8, without a password)."""
    key: PrivateKey = _read(path, "Private")
    return key


def read_public_key(path: str | Path) -> PublicKey:
    """The public key in a PEM file (SubjectPublicKeyInfo)."""
    key: PublicKey = _read(path, "Public")
    return key


def _message(content: dict[str, Any]) -> bytes:
    return PURPOSE + record_hash(content).encode()


def _read(path: str | Path, kind: str) -> Any:
    """The key in the file, if it is an Ed25519 key of this kind."""
    forms = _package("hazmat.primitives.serialization")
    unsupported = _package("exceptions").UnsupportedAlgorithm
    wanted = getattr(_package("hazmat.primitives.asymmetric.ed25519"), f"Ed25519{kind}Key")
    try:
        content = bounded_bytes(path, MAX_KEY_BYTES)
        private = kind == "Private"
        key = forms.load_pem_private_key(content, None) if private else forms.load_pem_public_key(content)
    except OSError as error:
        raise _no_key(path, kind, error.strerror or str(error)) from error
    except (TypeError, ValueError, unsupported) as error:  # a TypeError if there is a password
        raise _no_key(path, kind, str(error)) from error
    if not isinstance(key, wanted):
        raise _no_key(path, kind, f"it holds a {type(key).__name__}")
    return key


def _no_key(path: str | Path, kind: str, why: str) -> SettingsError:
    return SettingsError(
        f"cannot read a {kind.lower()} key from {path}: {why.rstrip('.')}.",
        expected=f"a PEM file with an Ed25519 {kind.lower()} key without a password",
        remedy="`tidegate keygen PREFIX` makes a pair.",
    )


def _write_new(path: Path, content: bytes, mode: int) -> None:
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
    except OSError as error:
        raise SettingsError(
            f"cannot write {path}: {error.strerror or error}.",
            expected="a new file: keys are never overwritten",
        ) from error


def _package(module: str) -> Any:
    try:
        return importlib.import_module(f"cryptography.{module}")
    except ImportError as error:
        raise SettingsError(
            f"signatures need the package cryptography, which cannot be imported: {error}.",
            remedy="pip install 'tidegate[sign]'",
        ) from error
