"""Children that write files until they are killed, or until their disk is full: what is left of the files?

    python -m tests.file_attacks FOLDER

The children are forks, because sixty starts of Python would take minutes. They touch no JAX array: a fork
has none of the threads that JAX works with.
"""

import dataclasses
import json
import os
import random
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tidegate import (
    EpisodeLog,
    LiveLoop,
    SettingsError,
    SoftmaxPolicy,
    load_policy,
    paper_settings,
    save_policy,
)
from tidegate.arrays import in_double, map_leaves
from tidegate.gates.budget_rules import BudgetRule
from tidegate.gates.ledger import BudgetPlan, Ledger, open_ledger, save_ledger
from tidegate.loop import initial_state
from tidegate.record import SEAL, read_record, record_hash, sealed, write_record

KILLS, LEDGER_KILLS = 60, 70
LONGEST = 0.02  # seconds until a child is killed: time for several writes
NUMBERS = np.linspace(0.0, 1.0, 5_000)
DECISIONS = [sealed("gate", {"numbers": (NUMBERS + shift).tolist()}) for shift in range(2)]
PLAN = BudgetPlan(BudgetRule.EVEN, 4)
SETTINGS, SAFE = paper_settings(lookahead=4), SoftmaxPolicy([0.0, 0.5])
WINDOW = EpisodeLog.from_arrays([0, 1, 1, 0], [0.0, 1.0, 1.0, 0.0], np.full(4, 0.5))


@dataclasses.dataclass(frozen=True)
class Attack:
    """A name for the file, what writes it again and again, and what fails if the file is not whole."""

    name: str
    write: Callable[[Path], Iterator[None]]
    check: Callable[[Path], None]
    kills: int = KILLS


@in_double
def live_loop(capacity: int = 4) -> LiveLoop:
    """A loop before its first decision, with room for many episodes, all in NumPy arrays."""
    loop = LiveLoop(SETTINGS, SAFE, seed=3)
    loop.state = map_leaves(np.asarray, initial_state(SETTINGS, SAFE, WINDOW, capacity))
    return loop


def write_decisions(path: Path) -> Iterator[None]:
    while True:
        for record in DECISIONS:
            write_record(record, path)
            yield


def check_decision(path: Path) -> None:
    content = read_record(path)
    assert record_hash(content) == content[SEAL]


def write_policies(path: Path) -> Iterator[None]:
    while True:
        for shift in range(2):
            save_policy(SoftmaxPolicy(NUMBERS + shift), path)
            yield


def check_policy(path: Path) -> None:
    policy: Any = load_policy(path)
    assert any(np.array_equal(policy.logits, NUMBERS + shift) for shift in range(2))


def writing_states() -> Callable[[Path], Iterator[None]]:
    loop = live_loop(capacity=5_000)

    def write(path: Path) -> Iterator[None]:
        while True:
            loop.windows += 1
            loop.save(path)
            yield

    return write


def check_state(path: Path) -> None:
    assert LiveLoop.load(path, SETTINGS, SAFE, WINDOW).windows > 0


def write_ledgers(path: Path) -> Iterator[None]:
    while True:
        save_ledger(Ledger(0.05, PLAN), path)
        yield


def check_ledger(path: Path) -> None:
    """It is whole, and nobody has to wait for the lock of the dead."""
    begun = time.monotonic()
    save_ledger(open_ledger(path, 0.05, PLAN), path)
    assert time.monotonic() - begun < 1


def killed(attack: Attack, path: Path, delay: float) -> None:
    """Start a child that writes, and kill it while it does."""
    reader, ready = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(ready, b".")
        _in_child(lambda: list(attack.write(path)))
    os.close(ready)
    os.read(reader, 1)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reader)


def with_full_disk(attack: Attack, path: Path) -> bool:
    """Whether a child whose disk is full after 100 bytes is told so."""

    def fail() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
        try:
            next(attack.write(path))
        except SettingsError as error:
            os._exit(42 if "File too large" in str(error) else 1)

    child = os.fork()
    if child == 0:
        _in_child(fail)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42


def _in_child(work: Callable[[], object]) -> NoReturn:
    try:
        work()
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def result(attack: Attack, folder: Path) -> dict[str, Any]:
    """How often the file was whole, and how often a kill left something that shows where it struck."""
    path, rng = folder / attack.name, random.Random(0)
    whole = struck = 0
    next(attack.write(path))
    for _ in range(attack.kills):
        killed(attack, path, rng.uniform(0, LONGEST))
        left = [one for one in folder.iterdir() if one != path]
        struck += bool(left)
        whole += _passes(attack, path)
        for one in left:
            one.unlink(missing_ok=True)
        if not path.exists():
            next(attack.write(path))
    before = path.read_bytes()
    told = with_full_disk(attack, path)
    kept = path.read_bytes() == before and list(folder.iterdir()) == [path]
    return {"kills": attack.kills, "whole": whole, "struck": struck, "told": told, "kept": kept}


def _passes(attack: Attack, path: Path) -> bool:
    try:
        attack.check(path)
    except Exception:
        traceback.print_exc()
        path.unlink(missing_ok=True)
        return False
    return True


def main(folder: Path) -> None:
    """Print what became of each file, as JSON."""
    warnings.simplefilter("ignore")  # JAX warns of forks
    attacks = [
        Attack("decision.json", write_decisions, check_decision),
        Attack("policy.json", write_policies, check_policy),
        Attack("budget.json", write_ledgers, check_ledger, LEDGER_KILLS),
    ]
    found = {}
    for attack in attacks:
        found[attack.name] = result(attack, _fresh(folder / attack.name))
    # Last, because it starts the threads of JAX.
    found["loop.state"] = result(
        Attack("loop.state", writing_states(), check_state), _fresh(folder / "state")
    )
    print(json.dumps(found))


def _fresh(folder: Path) -> Path:
    folder.mkdir()
    return folder


if __name__ == "__main__":
    main(Path(sys.argv[1]))
