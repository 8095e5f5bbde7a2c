"""Estimate the probabilities of the logged actions, and show on held-out episodes how well that went.

Estimates are a last resort: a log without propensities may come from a policy that used what the log
does not hold, or that never tried some action, and no calibration can reveal that.
"""

import dataclasses
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from scipy.special import log_softmax

from ..arrays import Flags, Floats, Integers
from ..errors import LogError, SettingsError
from ..inputs import number, seed_of
from .reading import LoadedLog, Propensities

BINS = 10
CELL_BYTES = 64  # of each step for each action, feature or state

Model: TypeAlias = Callable[[Floats], Floats]  # features of some rows -> log-probabilities of actions


@dataclasses.dataclass(frozen=True)
class CalibrationBin:
    """Pairs of a held-out step and an action whose predicted probabilities are alike."""

    predicted: float
    observed: float
    count: int


@dataclasses.dataclass(frozen=True)
class Calibration:
    """How well propensities fitted on some episodes predict the actions of the others."""

    method: str
    bins: tuple[CalibrationBin, ...]
    log_loss: float
    base_log_loss: float
    num_fitted: int
    num_held_out: int
    smallest: float

    @property
    def error(self) -> float:
        """Mean distance between predicted and observed probability over the bins, by their size."""
        total = sum(one.count for one in self.bins)
        return sum(one.count * abs(one.predicted - one.observed) for one in self.bins) / total

    def __str__(self) -> str:
        rows = [f"{b.predicted:9.3f} {b.observed:9.3f} {b.count:9d}" for b in self.bins]
        return "\n".join(
            [
                f"Propensities estimated by {self.method}; fitted on {self.num_fitted} steps, shown "
                f"on {self.num_held_out} steps of held-out episodes:",
                "predicted  observed     pairs",
                *rows,
                f"log-loss {self.log_loss:.4f} (base rate {self.base_log_loss:.4f}); mean distance "
                f"{self.error:.3f}; smallest propensity used {self.smallest:.2g}",
            ]
        )


def estimate_propensities(
    loaded: LoadedLog, *, held_out_fraction: float = 0.25, penalty: float = 1.0, seed: int = 0
) -> LoadedLog:
    """Fit the probability of each logged action, and mark the log as estimated.

    Multinomial logistic regression on the mapped features (standardised; `penalty` is the ridge in
    units of one observation), or the actions' frequencies if no features are mapped. The fit behind
    the calibration sees a random part of the episodes only; the propensities used see all of them.
    """
    held_out_fraction = number("held_out_fraction", held_out_fraction, above=0, below=1)
    penalty, seed = number("penalty", penalty, 0), seed_of(seed)
    features, actions, num_actions = _training_data(loaded)
    held_out = _held_out_rows(loaded, held_out_fraction, seed)
    shown = _fit(features[~held_out], actions[~held_out], num_actions, penalty)
    model = _fit(features, actions, num_actions, penalty)
    chosen = _chosen(model(features), actions)
    calibration = _calibration(shown, features[held_out], actions[held_out], actions[~held_out], chosen)
    log = dataclasses.replace(loaded.log, behavior_log_probs=loaded.grid(chosen))
    return dataclasses.replace(loaded, log=log, propensities=Propensities.ESTIMATED, calibration=calibration)


def _training_data(loaded: LoadedLog) -> tuple[Floats, Integers, int]:
    log, mask = loaded.log, np.asarray(loaded.log.mask)
    if log.num_actions is None:
        raise SettingsError(
            "the densities of continuous actions are not estimated.",
            remedy="Log the density with which each action was drawn.",
        )
    steps = int(mask.sum())
    if loaded.columns.state is not None:
        codes = np.asarray(log.states)[mask]
        states = np.unique(codes)
        _require_cells(loaded, steps, states.size + log.num_actions)
        features = (codes[:, None] == states).astype(np.float64)
    else:
        width = 0 if log.states is None else log.states.shape[-1]
        _require_cells(loaded, steps, width + log.num_actions)
        features = np.zeros((steps, 0)) if log.states is None else np.asarray(log.states, np.float64)[mask]
    return features, np.asarray(log.actions)[mask], log.num_actions


def _require_cells(loaded: LoadedLog, steps: int, width: int) -> None:
    """The fit holds a few tables with a row per step and a column per action, feature or state."""
    loaded.limit.require(
        steps * width * CELL_BYTES,
        f"a fit of propensities to {steps:,} steps with {width:,} actions, features and states",
        remedy="estimate the propensities on a part of the log, or outside",
    )


def _held_out_rows(loaded: LoadedLog, fraction: float, seed: int) -> Flags:
    episodes = loaded.log.capacity
    count = round(fraction * episodes)
    if not 0 < count < episodes:
        raise LogError(
            f"the log has too few episodes ({episodes}) to fit on some and to check on others.",
            expected="more episodes",
        )
    chosen = np.zeros(episodes, bool)
    chosen[np.random.default_rng(seed).permutation(episodes)[:count]] = True
    return np.repeat(chosen, loaded.log.lengths)


def _fit(features: Floats, actions: Integers, num_actions: int, penalty: float) -> Model:
    count, width = features.shape
    # Add one half to each count (Krichevsky and Trofimov, 1981): no action is impossible.
    rates = (np.bincount(actions, minlength=num_actions) + 0.5) / (count + 0.5 * num_actions)
    center, spread = features.mean(axis=0), features.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    weights, bias = np.zeros((width, num_actions)), np.log(rates)
    if width:
        weights, bias = _logistic((features - center) / scale, actions, bias, penalty)
    return lambda rows: np.asarray(log_softmax(((rows - center) / scale) @ weights + bias, axis=1))


def _logistic(inputs: Floats, actions: Integers, bias: Floats, penalty: float) -> tuple[Floats, Floats]:
    """Weights and intercepts of ridge-penalised maximum likelihood; the intercepts are free."""
    from scipy.optimize import minimize  # slow to import, and seldom needed

    shape = inputs.shape[1], bias.size
    targets = np.zeros((actions.size, bias.size))
    targets[np.arange(actions.size), actions] = 1.0

    def parts(parameters: Floats) -> tuple[Floats, Floats]:
        return parameters[: -bias.size].reshape(shape), parameters[-bias.size :]

    def loss(parameters: Floats) -> tuple[float, Floats]:
        weights, intercepts = parts(parameters)
        log_probs = log_softmax(inputs @ weights + intercepts, axis=1)
        errors = np.exp(log_probs) - targets
        value = -np.sum(targets * log_probs) + 0.5 * penalty * np.sum(weights**2)
        slopes = inputs.T @ errors + penalty * weights
        gradient = np.concatenate([slopes.ravel(), errors.sum(axis=0)])
        return value / actions.size, gradient / actions.size

    start = np.concatenate([np.zeros(shape).ravel(), bias])
    options = {"maxiter": 500, "gtol": 1e-7}
    return parts(minimize(loss, start, jac=True, method="L-BFGS-B", options=options).x)


def _chosen(log_probs: Floats, actions: Integers) -> Floats:
    return np.asarray(np.take_along_axis(log_probs, actions[:, None], axis=1)[:, 0])


def _calibration(
    model: Model, features: Floats, actions: Integers, fitted: Integers, used: Floats
) -> Calibration:
    log_probs = model(features)
    base = _fit(np.zeros((fitted.size, 0)), fitted, log_probs.shape[1], 0.0)
    taken = actions[:, None] == np.arange(log_probs.shape[1])
    return Calibration(
        method="multinomial logistic regression" if features.shape[1] else "action frequencies",
        bins=_bins(np.exp(log_probs).ravel(), taken.ravel()),
        log_loss=float(-_chosen(log_probs, actions).mean()),
        base_log_loss=float(-_chosen(base(np.zeros((actions.size, 0))), actions).mean()),
        num_fitted=int(fitted.size),
        num_held_out=int(actions.size),
        smallest=float(np.exp(used.min())),
    )


def _bins(predicted: Floats, taken: Flags) -> tuple[CalibrationBin, ...]:
    """Bins of about equal size; equal predictions stay together."""
    edges = np.unique(np.quantile(predicted, np.linspace(0, 1, BINS + 1)[1:-1]))
    places = np.searchsorted(edges, predicted, side="right")
    return tuple(
        CalibrationBin(
            float(predicted[places == i].mean()),
            float(taken[places == i].mean()),
            int(np.sum(places == i)),
        )
        for i in np.unique(places)
    )
