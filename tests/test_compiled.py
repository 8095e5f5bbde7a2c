"""Compiled programs are kept in a folder of the user's own, and change no number."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.test_commands import LOG
from tidegate import SettingsError
from tidegate.cli import compiled

GATE = ["gate", "log.csv", "--candidate", "column:new_prob", "--lookahead", "10", "--draws", "200", "--json"]


def _run(folder: Path, cache: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    without = {k: v for k, v in os.environ.items() if not k.startswith("JAX_COMPILATION_CACHE")}
    environment = {**without, compiled.VARIABLE: cache}
    command = [sys.executable, "-m", "tidegate", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def _gate(folder: Path, cache: str) -> dict[str, Any]:
    done = _run(folder, cache, *GATE, "--preset", "paper", "--order", "1")
    assert done.returncode in (0, 1), done.stderr
    content: dict[str, Any] = json.loads(done.stdout)
    return {k: v for k, v in content.items() if k not in ("decided_at", "expires_at", "record_hash")}


def test_a_record_is_the_same_to_the_bit_with_and_without_programs_from_the_cache(tmp_path: Path) -> None:
    LOG.write_csv(tmp_path / "log.csv")
    kept = tmp_path / "programs"
    first = _gate(tmp_path, str(kept))
    count = len(list(kept.rglob("*-cache")))
    assert count > 20
    assert _gate(tmp_path, str(kept)) == first
    assert len(list(kept.rglob("*-cache"))) == count  # nothing was compiled again
    assert _gate(tmp_path, compiled.OFF) == first
    assert stat.S_IMODE((next(kept.iterdir())).stat().st_mode) == 0o700
    assert "MB of compiled programs in" in _run(tmp_path, str(kept), "cache").stdout
    assert "removed" in _run(tmp_path, str(kept), "cache", "--clear").stdout
    assert list(kept.iterdir()) == []
    assert "not kept" in _run(tmp_path, compiled.OFF, "cache").stdout


def test_a_folder_that_others_may_write_is_not_used(tmp_path: Path) -> None:
    """A program that is loaded is code that runs."""
    compiled.require_own(tmp_path)
    tmp_path.chmod(0o777)
    with pytest.raises(SettingsError, match="can be written by others"):
        compiled.require_own(tmp_path)


def test_the_folder_follows_the_system_and_the_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(compiled.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    assert compiled.cache_folder() == tmp_path / "tidegate"
    monkeypatch.setenv(compiled.VARIABLE, str(tmp_path / "mine"))
    assert compiled.cache_folder() == tmp_path / "mine"
    for off in ("off", "OFF", ""):
        monkeypatch.setenv(compiled.VARIABLE, off)
        assert compiled.cache_folder() is None
