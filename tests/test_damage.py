"""A large log that is broken somewhere, and a command that is stopped: one sentence, and nothing is left."""

import gzip
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.test_large import SETTINGS, cut, log_of
from tidegate import commands
from tidegate.errors import TidegateError

FILES = 5
Damage = Callable[[list[Path]], Any]


def edited(path: Path, **columns: pl.Expr | pl.Series) -> None:
    pl.read_parquet(path).with_columns(**columns).write_parquet(path)


def at(row: int, value: Any, column: str) -> pl.Expr:
    """The column with another value in one row."""
    return pl.when(pl.int_range(pl.len()) == row - 1).then(pl.lit(value)).otherwise(pl.col(column))


def truncated(files: list[Path]) -> None:
    files[2].write_bytes(files[2].read_bytes()[:-2000])


def overwritten(files: list[Path]) -> None:
    content = files[2].read_bytes()
    files[2].write_bytes(content[:100] + b"\x55" * 3900 + content[4000:])


def without_rewards(files: list[Path]) -> None:
    pl.read_parquet(files[3]).drop("reward").write_parquet(files[3])


def repeated_step(files: list[Path]) -> None:
    again = pl.read_parquet(files[0])[5:6]
    pl.concat([pl.read_parquet(files[4]), again]).write_parquet(files[4])


def as_text(files: list[Path], line: str) -> None:
    """CSV instead of Parquet, and this line in the middle of one file."""
    for path in files:
        pl.read_parquet(path).write_csv(path.with_suffix(".csv"))
        path.unlink()
    middle = files[2].with_suffix(".csv")
    lines = middle.read_text().splitlines()
    middle.write_text("\n".join([*lines[:200], line, *lines[200:]]))


def cut_short(files: list[Path]) -> None:
    """Packed text that ends too early."""
    as_text(files, "")
    text = files[1].with_suffix(".csv")
    packed = gzip.compress(text.read_bytes())
    text.unlink()
    text.with_suffix(".csv.gz").write_bytes(packed[:-300])


DAMAGES: dict[str, tuple[Damage, str]] = {
    "truncated": (truncated, r"^part2.parquet cannot be read as Parquet"),
    "overwritten": (overwritten, r"^part2.parquet cannot be read as Parquet"),
    "fields": (lambda files: as_text(files, "1," * 39), r"^part2.csv, row 200: the row has 40 fields"),
    "garbage": (lambda files: as_text(files, 'garbage,"'), r"^part2.csv, line 201: the file is not CSV"),
    "bytes": (lambda files: as_text(files, "caf\udce9"), r"line 201: byte 0xe9 is not UTF-8"),
    "packed": (cut_short, r"^part1.csv.gz is damaged"),
    "column": (without_rewards, r"^part3.parquet does not have the same columns as part0.parquet"),
    "types": (
        lambda files: edited(files[3], reward=at(8, "lots", "reward")),
        r"^part3.parquet, row 8: column 'reward' holds 'lots', which is not a number",
    ),
    "step": (repeated_step, r"^part4.parquet, row \d+, column 'step': step \d of episode \d+ is duplicated"),
    "probability": (
        lambda files: edited(files[4], behavior_prob=at(78, -0.5, "behavior_prob")),
        r"^part4.parquet, row 78: behavior probability is -0.5",
    ),
}  # fmt: skip


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("name", DAMAGES)
def test_a_broken_file_is_one_sentence(name: str, seed: int | None, tmp_path: Path) -> None:
    damage, sentence = DAMAGES[name]
    (tmp_path / "scratch").mkdir()
    (tmp_path / "log").mkdir()
    files = [Path(one) for one in cut(log_of(900), tmp_path / "log", FILES, seed)]
    with pytest.MonkeyPatch.context() as patch:
        # A byte that is no text is written as such.
        patch.setattr(Path, "write_text", _any_text)
        damage(files)
    left = sorted((tmp_path / "log").iterdir())
    told = refusal(left, tmp_path / "scratch")
    assert re.search(sentence, told), told
    assert "\n" not in told
    assert not [*(tmp_path / "scratch").iterdir()]


def refusal(files: Sequence[Path], scratch: Path) -> str:
    """What the gate says about a log that it cannot use; the error, which holds on to the log, is gone."""
    try:
        commands.gate(files, candidate="column:new_prob", stream=True, scratch=scratch, **SETTINGS)
    except TidegateError as error:
        return str(error)
    raise AssertionError("the log was used")


def _any_text(path: Path, text: str) -> int:
    return path.write_bytes(text.encode(errors="surrogateescape"))


# What stops a command from outside.


@pytest.fixture(scope="module")
def scattered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log that takes a while to bring together."""
    folder = tmp_path_factory.mktemp("scattered")
    cut(log_of(60_000), folder, 40, seed=1)
    return folder


def started(scattered: Path, folder: Path, **options: Any) -> subprocess.Popen[str]:
    """A gate in a process of its own, which writes to this folder."""
    (folder / "scratch").mkdir()
    command = ["gate", str(scattered), "--candidate", "column:new_prob", "--confirm-order", "--stream"]
    return subprocess.Popen(
        [sys.executable, "-m", "tidegate", *command, "--scratch", str(folder / "scratch"), "--workers", "1"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def require_nothing_left(folder: Path) -> None:
    """But the record that the log could not be used, if the command said so."""
    left = {one.name for one in folder.iterdir()}
    assert left <= {"scratch", "decision.json"}
    if "decision.json" in left:
        assert json.loads((folder / "decision.json").read_text())["status"] == "error"
    assert not [*(folder / "scratch").iterdir()]


def wait_for_rows(process: subprocess.Popen[str], scratch: Path) -> None:
    """Until the first rows are being written to the scratch folder."""
    ends = time.monotonic() + 120
    while not [*scratch.glob("*/*")]:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < ends
        time.sleep(0.001)


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_who_is_stopped_leaves_nothing(
    number: signal.Signals, code: int, scattered: Path, tmp_path: Path
) -> None:
    process = started(scattered, tmp_path)
    wait_for_rows(process, tmp_path / "scratch")
    process.send_signal(number)
    told = process.communicate(timeout=120)
    assert process.returncode == code, told
    require_nothing_left(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="a limit that is set for another process")
def test_a_full_disk_is_one_sentence(scattered: Path, tmp_path: Path) -> None:
    """As on a full disk, a file of more than a few bytes cannot be written."""
    process = started(scattered, tmp_path, env={**os.environ, "JAX_COMPILATION_CACHE_DIR": ""})
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (50_000, 50_000))
    out, told = process.communicate(timeout=120)
    assert process.returncode == 2, (out, told)
    assert "a scratch file in" in told
    assert "cannot be written" in told
    require_nothing_left(tmp_path)
