"""The steps on which it is tested whether a candidate has seen the outcome."""

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import polars as pl

from ..arrays import Flags, Floats, Values, in_double
from ..checks.findings import Finding
from ..checks.leaks import DecidedSteps, leak_finding
from ..logs import LoadedLog, PolicySpec, SpecKind, parse_spec
from ..logs.table import is_text
from .trials import Trial

RECORDED = (SpecKind.COLUMN, SpecKind.RATIO)
MOST_LEVELS = 20


@in_double
def candidate_leak(trial: Trial) -> Finding | None:
    """Has the candidate seen the reward? None unless it is a column: other policies see the context only."""
    if trial.names[0] not in trial.opened.steps.log.recorded:
        return None
    specs = [parse_spec(name) for name in trial.names]
    return leak_finding(_steps(trial.opened.steps, *specs)) if specs[0].kind in RECORDED else None


def _steps(loaded: LoadedLog, candidate: PolicySpec, safe: PolicySpec) -> DecidedSteps:
    log, columns = loaded.log, loaded.columns
    mask, rewards = np.asarray(log.mask), np.asarray(log.rewards)
    continuous = log.num_actions is None
    actions = np.asarray(log.actions)[mask]
    policies = [spec.name for spec in (candidate, safe) if spec.kind in RECORDED]
    context = list(_columns(loaded.states.drop(policies, strict=False), columns.state))
    if continuous:
        context += list(actions.reshape(actions.shape[0], -1).T)
    if log.num_steps > 1:
        # How far the episode has come, and the reward of the step before: a policy may know both.
        context += [
            _by_step(log.step_numbers, mask),
            _by_step(log.layout.before(jnp.asarray(log.rewards)), mask),
        ]
    return DecidedSteps(
        log_probs=np.asarray(log.recorded[str(candidate)])[mask],
        behavior_log_probs=np.asarray(log.behavior_log_probs)[mask],
        rewards=rewards[mask],
        actions=np.zeros(actions.shape[0], np.int64) if continuous else actions,
        times=_by_step(log.layout.spread(np.asarray(log.episode_numbers)), mask),
        episodes=_by_step(log.layout.spread(np.arange(log.capacity)), mask),
        controls=np.stack(context, axis=1) if context else np.zeros((actions.shape[0], 0)),
        mapped=bool(columns.features or columns.state),
    )


def _by_step(cells: Any, mask: Flags) -> Values:
    return np.asarray(np.broadcast_to(np.asarray(cells), mask.shape)[mask])


def _columns(frame: pl.DataFrame, state: str | None) -> Iterator[Floats]:
    """Numbers as they are, a few names or states as one column each; what has more names says little."""
    for column in frame.get_columns():
        named = is_text(column) or column.name == state
        if named and column.n_unique() <= MOST_LEVELS:
            yield from (_numbers(column.eq_missing(level)) for level in column.unique(maintain_order=True))
        elif column.dtype.is_numeric() or column.dtype == pl.Boolean:
            yield _numbers(column)


def _numbers(column: pl.Series) -> Floats:
    return np.asarray(column.cast(pl.Float64).fill_nan(None).fill_null(0.0).to_numpy())
