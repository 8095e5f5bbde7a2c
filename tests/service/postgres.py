"""A throw-away PostgreSQL: a cluster on a socket of its own, with nothing that survives the tests."""

import contextlib
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

OPTIONS = "-c listen_addresses='' -c fsync=off -c max_connections=200 -k {folder}"
_numbers = itertools.count()


def programs() -> Path | None:
    """Where the newest PostgreSQL's programs are; Debian keeps them off the path."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda one: -float(one.parent.name))
    return next((one for one in folders if (one / "initdb").exists()), None)


@contextlib.contextmanager
def cluster() -> Iterator[Path]:
    """The folder of a running cluster's socket; skips the test where there is no PostgreSQL."""
    binaries = programs()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed")
    owner = _owner()
    if owner == "":
        pytest.skip("PostgreSQL refuses to run as root, and there is no user postgres")
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # a socket's path may have 107 bytes
    if owner:
        shutil.chown(folder, owner)
    data = folder / "data"

    def run(program: str, *arguments: str) -> None:
        command = [str(binaries / program), *arguments]
        subprocess.run(command, check=True, user=owner, cwd="/", stdout=subprocess.DEVNULL)

    try:
        run("initdb", "-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8", "-D", str(data))
        options = OPTIONS.format(folder=folder)
        run("pg_ctl", "-D", str(data), "-l", str(folder / "log"), "-w", "-o", options, "start")
        try:
            yield folder
        finally:
            run("pg_ctl", "-D", str(data), "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def new_database(folder: Path) -> str:
    """The address of an empty database in this cluster."""
    name = f"tidegate{next(_numbers)}"
    with psycopg.connect(f"host={folder} user=postgres dbname=postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return f"postgresql+psycopg://postgres@/{name}?host={folder}"


def _owner() -> str | None:
    """Whom to run it as: root may not; None is whoever runs the tests, '' nobody."""
    if os.getuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        return ""
