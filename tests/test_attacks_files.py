"""Nothing is lost: kills, full disks and links while files are written; files that do not fit."""

import ast
import dataclasses
import errno
import fcntl
import hashlib
import io
import json
import logging
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import tidegate
from tests.file_attacks import KILLS, LEDGER_KILLS, SAFE, SETTINGS, WINDOW, live_loop
from tests.test_budget import ALPHA, PLAN, answered, asked
from tidegate import EpisodeLog, LiveLoop, SettingsError, SoftmaxPolicy, SpinSettings, paper_settings
from tidegate.commands import gate
from tidegate.commands.settings import PlainSettings
from tidegate.experiments import store
from tidegate.experiments.store import Store
from tidegate.gates import locking
from tidegate.gates.ledger import Budget, next_test, open_ledger, read_ledger, save_ledger, using_ledger
from tidegate.record import SEAL, record_hash, sealed, write_record, write_whole, writing

ROOT = Path(tidegate.__file__).parent
PROJECT = ROOT.parent.parent
WRITERS = ("savefig", "savez", "write_parquet", "write_csv", "tree_serialise_leaves")
OPEN_FILES = ("file", "buffer", "arrays")


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("attacked")
    command = [sys.executable, "-m", "tests.file_attacks", str(folder)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("name", "kills"),
    [
        ("decision.json", KILLS),
        ("policy.json", KILLS),
        ("loop.state", KILLS),
        ("budget.json", LEDGER_KILLS),
    ],
)
def test_a_killed_writer_leaves_a_whole_file_and_no_lock(
    name: str, kills: int, attacked: dict[str, dict[str, Any]]
) -> None:
    found = attacked[name]
    assert (found["whole"], found["kills"]) == (kills, kills)
    assert found["struck"] > 0  # some of them in the middle of a write


@pytest.mark.parametrize("name", ["decision.json", "policy.json", "loop.state", "budget.json"])
def test_a_full_disk_is_reported_and_the_old_file_kept(
    name: str, attacked: dict[str, dict[str, Any]]
) -> None:
    assert attacked[name]["told"]
    assert attacked[name]["kept"]


def _writes(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        modes = [one.value for one in node.args if isinstance(one, ast.Constant)]
        opens = name == "open" and any(isinstance(m, str) and set(m) & set("wax+") for m in modes)
        first = getattr(node.args[0], "id", None) if node.args else None
        given = bool(node.args or node.keywords)  # else what would be written is returned
        to_path = (
            isinstance(node.func, ast.Attribute) and name in WRITERS and given and first not in OPEN_FILES
        )
        if opens or to_path or name in ("write_text", "write_bytes", "NamedTemporaryFile", "rename"):
            yield f"{path.relative_to(ROOT)}: {name}"


def test_every_file_is_written_by_one_function() -> None:
    found = {one for path in ROOT.rglob("*.py") for one in _writes(path)}
    # A private key must not exist yet, and nobody else may read it, not even for a moment.
    # A compiled program is no one's work: one that is lost is made again, one that is cut short is not used.
    # The temporary ones write into a folder of their own, which goes when they end.
    temporary = {
        "service/uploads.py: write_bytes",
        "experiments/serve_demo.py: open",
        "logs/exchange.py: open",
    }
    assert found == {"record.py: open", "gates/signatures.py: open", "arrays.py: write_bytes"} | temporary


def _interrupted(path: Path) -> None:
    with writing(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt


def test_after_a_failure_the_old_file_stays_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_record({"a": 1}, path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="JSON compliant"):
        write_record({"a": float("nan")}, path)
    with pytest.raises(KeyboardInterrupt):
        _interrupted(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(SettingsError, match=r"cannot write .*missing.*No such file or directory"):
        write_whole(tmp_path / "missing" / "record.json", "")
    with pytest.raises(SettingsError, match=r"cannot write .*Is a directory"):
        write_whole(tmp_path, "")


def test_links_permissions_and_long_names_are_kept(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to("real.json")
    write_whole(link, "α")
    assert link.is_symlink()
    assert real.read_text(encoding="utf-8") == "α"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    dangling = tmp_path / "later.json"
    dangling.symlink_to("sub.json")
    write_whole(dangling, b"\x00")
    assert (tmp_path / "sub.json").read_bytes() == b"\x00"
    write_whole(tmp_path / ("n" * 255), "as long as a name may be")
    new = tmp_path / "new.json"
    write_whole(new, "")
    (tmp_path / "plain").touch()
    assert new.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_device_is_written_and_not_replaced() -> None:
    write_whole("/dev/null", "gone")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    with pytest.raises(SettingsError, match=r"cannot write /dev/full: No space left"):
        write_whole("/dev/full", "x" * 100_000)


def test_readers_never_see_half_a_file(tmp_path: Path) -> None:
    path, contents = tmp_path / "big", [letter * 3_000_000 for letter in (b"a", b"b")]
    write_whole(path, contents[0])
    done = threading.Event()
    seen: set[bytes] = set()

    def read() -> None:
        while not done.is_set():
            seen.add(hashlib.sha256(path.read_bytes()).digest())

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(20):
        write_whole(path, contents[number % 2])
    done.set()
    reader.join()
    assert seen <= {hashlib.sha256(one).digest() for one in contents}


# The state of a loop.


@pytest.fixture
def state(tmp_path: Path) -> Path:
    loop = live_loop()
    loop.windows = 5
    loop.save(tmp_path / "loop.state")
    return tmp_path / "loop.state"


def load(path: Path, settings: SpinSettings = SETTINGS, safe: Any = SAFE, window: Any = WINDOW) -> LiveLoop:
    return LiveLoop.load(path, settings, safe, window)


def test_a_state_comes_back(state: Path) -> None:
    loop = load(state)
    assert (loop.windows, loop.seed) == (5, 3)
    assert loop.state is not None
    assert loop.state.training.log.capacity == 4


def test_a_state_is_refused_with_other_settings_or_another_policy(state: Path) -> None:
    other = paper_settings(lookahead=8)
    with pytest.raises(SettingsError, match=r"saved with forecast\.lookahead = 4, and the settings say 8"):
        load(state, other)
    with pytest.raises(SettingsError, match=r"saved with search\.entropy_weight = 0\.01, .* say 0\.3"):
        load(state, paper_settings(entropy_weight=0.3))
    with pytest.raises(SettingsError, match=r"saved with forecast\.test\.class = TwoBounds.*say Multiscale"):
        load(state, tidegate.multiscale_settings())
    with pytest.raises(SettingsError, match=r"saved with safe_policy_hash = \w+, and this policy has \w+"):
        load(state, safe=SoftmaxPolicy([0.0, 0.6]))
    many = EpisodeLog.from_arrays([0], [0.0], [0.5], states=[[1.0]])
    with pytest.raises(SettingsError, match=r"states = None, and this window has \[\]"):
        load(state, window=many)
    named = EpisodeLog.from_arrays([0], [0.0], [0.5], recorded={"new": [0.5]})
    with pytest.raises(SettingsError, match=r"recorded = \[\], and this window has \['new'\]"):
        load(state, window=named)


def test_a_window_with_fewer_actions_does_not_forget_the_others(state: Path) -> None:
    few = EpisodeLog.from_arrays([0], [0.0], [0.5])
    assert (few.num_actions, WINDOW.num_actions) == (1, 2)
    loop = load(state, window=few)
    assert loop.state is not None
    assert loop.state.training.log.num_actions == 2


def test_a_state_that_is_cut_anywhere_is_refused(state: Path) -> None:
    whole = state.read_bytes()
    first = whole.index(b"\n")
    cuts = [0, 1, first - 1, first, first + 1, first + 50, len(whole) // 2, len(whole) - 1]
    for cut in cuts:
        state.write_bytes(whole[:cut])
        with pytest.raises(SettingsError, match=r"not the state of a loop|hash does not match"):
            load(state)
    state.write_bytes(whole + b"\0")
    with pytest.raises(SettingsError, match=r"hash does not match"):
        load(state)


def test_a_state_with_one_changed_bit_is_refused(state: Path) -> None:
    whole = state.read_bytes()
    for place in np.random.default_rng(0).integers(0, len(whole), 60):
        changed = bytearray(whole)
        changed[place] ^= 1 << int(place % 8)
        state.write_bytes(bytes(changed))
        with pytest.raises(SettingsError, match=r"not the state of a loop|hash does not match"):
            load(state)


def _npy(values: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, values, **options)
    return file.getvalue()


class Evil:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_foreign_files_are_refused_and_nothing_in_them_runs(state: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    evil = _npy(np.array([Evil(trace)], dtype=object), allow_pickle=True)
    header, _, arrays = state.read_bytes().partition(b"\n")
    about = json.loads(header)
    foreign = [
        _npy(np.zeros(5, int)),  # as states began before they had a format
        evil,
        b"[1]\n",
        b"null\n",
        b"[" * 100_000 + b"\n",
        json.dumps(sealed("gate", {"windows": 1})).encode() + b"\n",
        json.dumps({"kind": "loop", "format": 1}).encode() + b"\n",
        json.dumps(_resealed({**about, "format": 2})).encode() + b"\n" + arrays,
        np.random.default_rng(0).bytes(3_000),
    ]
    for content in foreign:
        state.write_bytes(content)
        with pytest.raises(SettingsError, match=r"not the state of a loop.*LiveLoop\.save"):
            load(state)
    forged = _resealed({**about, "content_hash": hashlib.sha256(evil).hexdigest()})
    state.write_bytes(json.dumps(forged).encode() + b"\n" + evil)
    with pytest.raises(SettingsError, match=r"do not look like"):
        load(state)
    assert not trace.exists()
    np.load(io.BytesIO(evil), allow_pickle=True)
    assert trace.exists()  # so it would have run
    with pytest.raises(SettingsError, match=r"cannot read .*No such file"):
        load(tmp_path / "missing")
    with pytest.raises(SettingsError, match=r"cannot read .*Is a directory"):
        load(tmp_path)


def _resealed(content: dict[str, Any]) -> dict[str, Any]:
    return {**content, SEAL: record_hash(content)}


# The ledger.


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget.json"


def test_all_links_to_a_ledger_lead_to_one_budget(path: Path, tmp_path: Path) -> None:
    link, folder = tmp_path / "link.json", tmp_path / "folder"
    link.symlink_to(path)
    folder.symlink_to(tmp_path)
    save_ledger(answered(open_ledger(link, ALPHA, PLAN), 1), link)
    opened = [open_ledger(one, ALPHA, PLAN) for one in (path, link, folder / "budget.json")]
    assert {len(ledger.entries) for ledger in opened} == {1}
    save_ledger(answered(opened[0], 2), path)
    for other, name in zip(opened[1:], (link, folder / "link.json"), strict=True):
        with pytest.raises(SettingsError, match=r"another gate has made an entry"):
            save_ledger(answered(other, 3), name)
    assert link.is_symlink()
    assert len(read_ledger(link).entries) == 2


def test_a_ledger_with_two_names_is_refused(path: Path, tmp_path: Path) -> None:
    ledger, other = open_ledger(path, ALPHA, PLAN), tmp_path / "other.json"
    os.link(path, other)
    for name in (path, other):
        with pytest.raises(SettingsError, match=r"one of 2 hard links to the same ledger"):
            open_ledger(name, ALPHA, PLAN)
        with pytest.raises(SettingsError, match=r"one of 2 hard links"):
            save_ledger(answered(ledger, 1), name)
    other.unlink()
    save_ledger(answered(ledger, 1), path)


def test_gates_at_the_same_time_get_different_numbers(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(path)
    numbers: list[int] = []
    waits: list[str] = []

    def ask(week: int) -> None:
        name = (path, link)[week % 2]
        with using_ledger(name, waits.append):
            ledger = open_ledger(name, ALPHA, PLAN)
            numbers.append(next_test(ledger, asked(week)).number)
            time.sleep(0.05)
            save_ledger(answered(ledger, week), name)

    gates = [threading.Thread(target=ask, args=(week,)) for week in range(8)]
    for one in gates:
        one.start()
    for one in gates:
        one.join()
    assert sorted(numbers) == [*range(1, 9)]
    assert len(read_ledger(path).entries) == 8
    assert any("waiting for another gate that uses" in one for one in waits)
    assert set(tmp_path.iterdir()) == {path, link}


def test_two_gates_at_once_spend_the_budget_in_turn(path: Path) -> None:
    rng, rows = np.random.default_rng(0), 60
    frame = pl.DataFrame(
        {
            "episode": np.arange(1, rows + 1),
            "action": rng.integers(0, 2, rows),
            "behavior_prob": np.full(rows, 0.5),
            "reward": rng.normal(size=rows),
            "first_prob": np.full(rows, 0.6),
            "second_prob": np.full(rows, 0.7),
        }
    )
    granted: dict[str, Any] = {}

    def ask(name: str) -> None:
        settings = PlainSettings(lookahead=5)
        granted[name] = gate(frame, candidate=f"column:{name}", settings=settings, budget=Budget(path)).budget

    gates = [threading.Thread(target=ask, args=(name,)) for name in ("first_prob", "second_prob")]
    for one in gates:
        one.start()
    for one in gates:
        one.join()
    assert sorted(grant.number for grant in granted.values()) == [1, 2]
    entries = read_ledger(path).entries
    assert {entry.question for entry in entries} == {grant.question for grant in granted.values()}


def test_patience_ends(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locking, "PATIENCE", 0.06)
    told: list[str] = []

    def ask() -> None:
        try:
            open_ledger(path, ALPHA, PLAN)
        except SettingsError as error:
            told.append(str(error))

    with using_ledger(path):
        other = threading.Thread(target=ask)
        other.start()
        other.join()
    assert len(told) == 1
    assert "another gate has been using" in told[0]


def test_a_lock_file_that_was_left_behind_means_nothing(path: Path) -> None:
    path.with_name("budget.json.lock").touch()
    save_ledger(answered(open_ledger(path, ALPHA, PLAN), 1), path)
    assert list(path.parent.iterdir()) == [path]


def test_a_lock_is_not_written_through_a_link(path: Path, tmp_path: Path) -> None:
    path.with_name("budget.json.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(SettingsError, match=r"cannot write the lock file"):
        open_ledger(path, ALPHA, PLAN)
    assert not (tmp_path / "victim").exists()


def test_a_lock_that_is_removed_under_its_holder_lets_nobody_overwrite(path: Path) -> None:
    ledger = open_ledger(path, ALPHA, PLAN)
    with using_ledger(path):
        path.with_name("budget.json.lock").unlink()
        other = threading.Thread(target=lambda: save_ledger(answered(ledger, 2), path))
        other.start()
        other.join()
        with pytest.raises(SettingsError, match=r"another gate has made an entry"):
            save_ledger(answered(ledger, 1), path)
    assert [entry.question for entry in read_ledger(path).entries] == [asked(2)]


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP])
def test_without_locks_of_the_system_a_file_is_the_lock(
    code: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    ledger = open_ledger(path, ALPHA, PLAN)
    held = path.with_name("budget.json.held")
    held.touch()
    os.utime(held, (time.time() - 90, time.time() - 90))
    with pytest.raises(SettingsError, match=r"json\.held has existed for 9\d seconds.*remove that file"):
        save_ledger(answered(ledger, 1), path)
    assert held.exists()
    held.unlink()
    save_ledger(answered(ledger, 1), path)
    assert list(path.parent.iterdir()) == [path]


# Studies.


@dataclasses.dataclass(frozen=True)
class Part:
    name: str = "part"
    count: int = 1


def _edit(folder: Path, **facts: Any) -> None:
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **facts}))


def test_a_study_does_not_go_on_with_another_version(tmp_path: Path) -> None:
    begun = Store(tmp_path, {"runs": 3, "cells": [{"a": 1}]}).manifest
    _edit(tmp_path, versions={**begun["versions"], "tidegate": "0.1.0"})
    message = rf"begun with Tidegate 0\.1\.0, and this is Tidegate {tidegate.__version__}.*another folder"
    with pytest.raises(SettingsError, match=message):
        Store(tmp_path, {"runs": 3, "cells": [{"a": 1}]})
    _edit(tmp_path, versions=begun["versions"])
    with pytest.raises(SettingsError, match=r"other settings: cells\[0\]\.a was 1, and is 2 now"):
        Store(tmp_path, {"runs": 3, "cells": [{"a": 2}]})


def test_a_study_says_that_the_code_has_changed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    begun = Store(tmp_path, {}).manifest
    Store(tmp_path, {})
    assert not caplog.records
    _edit(tmp_path, commit="abc", versions={**begun["versions"], "jax": "0.0.1"})
    with caplog.at_level(logging.WARNING, logger=store.__name__):
        manifest = Store(tmp_path, {}).manifest
    (warning,) = caplog.records
    assert "jax 0.0.1, now" in warning.getMessage()
    if begun["commit"] is not None:
        assert f"commit abc, now {begun['commit']}" in warning.getMessage()
    assert manifest["versions"]["jax"] == "0.0.1"  # what the first rows were computed with
    assert manifest["resumed_with"] == [{"commit": begun["commit"], "versions": begun["versions"]}]
    assert Store(tmp_path, {}).manifest["resumed_with"] == manifest["resumed_with"]


def test_a_damaged_study_is_named(tmp_path: Path) -> None:
    study = Store(tmp_path, {})
    job: Any = Part()
    study.save(job, {"a": np.arange(3)})
    part = tmp_path / "parts" / "part.npz"
    assert study.load([job])["a"].tolist() == [0, 1, 2]
    part.write_bytes(part.read_bytes()[:40])
    with pytest.raises(SettingsError, match=r"part\.npz is damaged.*Remove it"):
        study.load([job])
    for text in ("", "{}", "[]", "{"):
        (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(SettingsError, match=r"is not the manifest of a study"):
            Store(tmp_path, {})
