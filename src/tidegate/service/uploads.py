"""Policy files that were uploaded: kept by their hash, and read by the library's strict reader."""

import contextlib
import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import Connection, insert, select

from ..errors import PolicyError
from ..serving import PolicyFile, read_policy_file
from . import audit, schema
from .database import Database
from .definitions import GateDefinition
from .refusals import NotFound


def store_policy(database: Database, content: bytes, by: str) -> str:
    """Keep a policy's file, if it is one; the answer is its hash, the name by which gates call it."""
    sha256 = hashlib.sha256(content).hexdigest()
    with database.reading() as connection:
        if _content(connection, sha256) is not None:
            return sha256
    with as_files({sha256: content}) as folder:
        try:
            read_policy_file(folder / file_name(sha256))
        except PolicyError as error:
            what = error.what.partition(": ")[2] or error.what  # the file's place here is nobody's business
            raise PolicyError(what, expected=error.expected) from None
    with database.writing() as connection:
        if _content(connection, sha256) is None:
            at = database.now()
            row = {"sha256": sha256, "content": content, "at": at}
            connection.execute(insert(schema.policy_files).values(row))
            audit.append(connection, at, "policy.uploaded", None, by, {"sha256": sha256})
    return sha256


def policy_content(connection: Connection, sha256: str) -> bytes:
    """The file that has this hash."""
    content = _content(connection, sha256)
    if content is None:
        raise NotFound(
            f"there is no policy file sha256:{sha256}.", remedy="Upload it first (`PUT /v1/policies`)."
        )
    return content


def policy_contents(connection: Connection, definition: GateDefinition) -> dict[str, bytes]:
    """The files that a definition needs."""
    return {sha256: policy_content(connection, sha256) for sha256 in definition.uploads}


def file_name(sha256: str) -> str:
    """What a policy's spec calls the file: policy:sha256:HASH."""
    return f"sha256:{sha256}"


@contextlib.contextmanager
def as_files(contents: dict[str, bytes]) -> Iterator[Path]:
    """The files in a folder of their own, under the names that specs call them."""
    with tempfile.TemporaryDirectory(prefix="tidegate-") as name:
        folder = Path(name)
        for sha256, content in contents.items():
            (folder / file_name(sha256)).write_bytes(content)
        yield folder


def parsed(content: bytes) -> PolicyFile:
    """What a kept file says."""
    sha256 = hashlib.sha256(content).hexdigest()
    with as_files({sha256: content}) as folder:
        return read_policy_file(folder / file_name(sha256))


def _content(connection: Connection, sha256: str) -> bytes | None:
    table = schema.policy_files
    found = connection.execute(select(table.c.content).where(table.c.sha256 == sha256)).scalar()
    return None if found is None else bytes(found)
