"""What is kept: gates, an improvement, an evaluation, a backtest, a live loop, a batch of a study."""

import dataclasses
import datetime
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import polars as pl

import tidegate as tg
from tidegate import commands
from tidegate.commands import LogFile, PlainSettings, Preset, SearchChoices
from tidegate.experiments.batches import cut, run_batch
from tidegate.experiments.beyond import contenders
from tidegate.experiments.studies import figure4
from tidegate.experiments.sweep import list_runs
from tidegate.gates.guardrails import Guardrail
from tidegate.gates.ledger import Budget
from tidegate.logs import Columns
from tidegate.record import SEAL
from tidegate.simulators.live import LiveWindow, run_live
from tidegate.simulators.recommender import Recommender

Plain = dict[str, Any]
EPISODES = 240
OURS = PlainSettings(lookahead=10, draws=200)
PAPER = dataclasses.replace(OURS, preset=Preset.PAPER, order=1)
NEW = "column:new_prob"
NOW = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)


def shop() -> pl.DataFrame:
    """Three offers; the candidate makes the one that sells ever better, and complaints are rare."""
    rng = np.random.default_rng(0)
    time, action = np.arange(1, EPISODES + 1), rng.choice(3, EPISODES, p=[0.25, 0.5, 0.25])
    trend = (1 + 0.3 * time / EPISODES) * (action == 1)
    return pl.DataFrame(
        {
            "episode": time,
            "action": action,
            "behavior_prob": np.array([0.25, 0.5, 0.25])[action],
            "reward": trend + 0.1 * rng.normal(size=EPISODES),
            "new_prob": np.array([0.1, 0.8, 0.1])[action],
            "complaints": rng.poisson(0.3, EPISODES) + 0.2 * (action == 2),
            "load": rng.normal(50.0, 20.0, EPISODES),
        }
    )


def gate(settings: PlainSettings = OURS, **options: Any) -> Plain:
    return _record(commands.gate(shop(), candidate=NEW, settings=settings, now=NOW, **options))


def gate_with_guardrail() -> Plain:
    return gate(guardrails=(Guardrail("complaints", 0.2),))


def gate_on_a_budget() -> Plain:
    with tempfile.TemporaryDirectory() as folder:
        return gate(budget=Budget(Path(folder) / "budget.json"))


def improve() -> Plain:
    log = LogFile(shop(), Columns(features=("load",)))
    search = SearchChoices(steps=20)
    return _record(commands.improve(log, settings=OURS, search=search, now=NOW))


def evaluate() -> Plain:
    return _record(commands.evaluate(shop(), policy=NEW, settings=OURS))


def backtest() -> Plain:
    return _record(commands.backtest(shop(), candidate=NEW, settings=OURS, dates=3))


def live_loop() -> Plain:
    world: Any = Recommender.at_speed(2)
    windows = run_live(world, tg.multiscale_settings(lookahead=4), num_windows=30, window=4)
    return {"windows": [_window(one) for one in windows]}


def study_batch() -> Plain:
    """The first runs of each algorithm at speed 2, as one program each, in 32-bit."""
    with jax.enable_x64(False):
        return {sweep.name: _batch(sweep) for sweep in contenders(figure4([2]))}


CASES: dict[str, Callable[[], Plain]] = {
    "gate_multiscale": gate,
    "gate_paper": lambda: gate(PAPER),
    "gate_guardrail": gate_with_guardrail,
    "gate_budget": gate_on_a_budget,
    "improve": improve,
    "evaluate": evaluate,
    "backtest": backtest,
    "live_loop": live_loop,
    "study_batch": study_batch,
}


def _record(record: Any) -> Plain:
    """The record without its seal, which covers the versions."""
    content: Plain = record.to_dict()
    origin = {k: v for k, v in content["provenance"].items() if k != "versions"}
    return {**{k: v for k, v in content.items() if k != SEAL}, "provenance": origin}


def _window(window: LiveWindow) -> Plain:
    decision = window.decision
    advantage = decision.advantage
    assert advantage is not None
    both = (decision.candidate, decision.safe)
    return {
        "deployed": window.deployed,
        "policy": np.asarray(window.policy.outputs()).tolist(),
        "returns": window.returns.tolist(),
        "reason": decision.reason.name,
        "forecasts": [[str(one.point), str(one.lower), str(one.upper)] for one in both],
        "advantage": [str(advantage.point), str(advantage.lower), str(advantage.p_value)],
        "points": [str(one.point) for one in advantage.models],
        "data_hash": decision.data_hash,
    }


def _batch(sweep: Any) -> Plain:
    short = dataclasses.replace(sweep, num_episodes=96)
    runs = list_runs(short, settings=4, trials=1, seed=0)
    columns = run_batch(cut(short, runs, size=4, seed=0)[0])
    return {name: np.asarray(values).tolist() for name, values in columns.items()}
