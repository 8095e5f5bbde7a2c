"""Has the candidate seen the outcome? Its probability must not depend on the reward, given all it may know.

The generalised covariance measure (Shah and Peters, 2020): regress the candidate's probability and the reward
on what is known when the action is taken, and correlate the residuals. The regressions are kernel ridge, and
their residuals leave each step out. An honest policy varies with the reward, too, where it looks at something
that the log does not hold, or that the regressions miss. So a correlation counts only if they explain nearly
all of the probability, and leave enough for it to matter; else only what hardly any honest policy shows: a
probability that is almost a function of the reward.
"""

import dataclasses
import functools
from collections.abc import Iterator

import numpy as np
from scipy import special
from scipy.linalg import lapack
from threadpoolctl import ThreadpoolController

from ..arrays import Floats, Integers, Values
from .findings import Finding, Level, found

NAME = "leak"
MOST_ROWS, FEWEST_ROWS, SMALL_GROUP = 700, 50, 10
SIGNIFICANT = 1e-3
CLEAR = 0.3  # correlation of the residuals
MATERIAL = 0.15  # their covariance, in standard deviations of probability and reward
EXPLAINED = 0.8  # share of the probability's variance from which on the log shows what it depends on
FUNCTION, EXACT = 0.97, 0.999  # share that a function of the reward explains, if context does not or does
SAME = 0.9  # correlation of the residuals from which on they are one thing
DIGITS = 9
NEGLIGIBLE = 1e-12  # of the largest entry of a kernel
LEAST_LOG = np.log(1e-4)
RIDGES = 10.0 ** np.arange(-4, 3.5, 0.5)
SEASON = 0.05  # of the log: how fast a drift the regressions can follow

LEAKED = (
    "Given all that the log shows before an action, the candidate's probability varies with the reward that "
    "followed ({numbers}). No policy knows the reward: was the column computed from it? Map every "
    "column that the candidate looks at as a feature; if this remains, the verdict means nothing."
)
UNSHOWN = (
    "The log does not show what the candidate's probability depends on, so whether it has seen the reward is "
    "hard to test. Map every column that it looks at as a feature."
)
SUSPECT = (
    "Given all that the log shows before an action, the candidate's probability varies with the reward that "
    "followed ({numbers}): it looks at something that the log does not show, or at the reward itself. "
    "Map every column that it looks at as a feature."
)
CLEAN = "Given what it looks at, the candidate's probability hardly varies with the reward ({numbers})."


@dataclasses.dataclass(frozen=True, eq=False)
class DecidedSteps:
    """Steps of a log, and a candidate's log-probability of each logged action.

    `controls` (steps × columns) is what else was known before the action; `mapped` says that a user has
    named it. `actions` are codes, all alike for continuous actions.
    """

    log_probs: Floats
    behavior_log_probs: Floats
    rewards: Floats
    actions: Values
    times: Floats
    episodes: Values
    controls: Floats
    mapped: bool

    def take(self, rows: Integers) -> "DecidedSteps":
        """Some of the steps."""
        return DecidedSteps(
            log_probs=self.log_probs[rows],
            behavior_log_probs=self.behavior_log_probs[rows],
            rewards=self.rewards[rows],
            actions=self.actions[rows],
            times=self.times[rows],
            episodes=self.episodes[rows],
            controls=self.controls[rows],
            mapped=self.mapped,
        )


def leak_finding(steps: DecidedSteps) -> Finding:
    """Does the candidate's probability vary with the reward, given all that was known before?"""
    # Of some hundred rows, a second thread gains nothing; on a busy machine the two wait for each other.
    one_thread = _linear_algebra().limit(limits=1, user_api="blas")
    with one_thread, np.errstate(over="ignore", invalid="ignore"):  # what is not finite is undetermined
        return _leak_finding(steps)


@functools.cache
def _linear_algebra() -> ThreadpoolController:
    return ThreadpoolController()


def _leak_finding(steps: DecidedSteps) -> Finding:
    count = steps.rewards.size
    if count > MOST_ROWS:
        steps = steps.take(np.linspace(0, count - 1, MOST_ROWS).round().astype(np.int64))
    groups = np.unique(steps.actions, return_inverse=True)[1]
    targets = np.stack([_centred(one, groups) for one in _targets(steps)], axis=1)
    if count < FEWEST_ROWS or np.abs(targets).max(axis=0).min() < 10.0**-DIGITS:
        return found(NAME, 0.0, "The candidate's probability depends on the action alone, or hardly varies.")
    fits = _fits(groups, steps.times, _known(steps), targets)
    probability, reward = (max(pair, key=lambda fit: fit.explained) for pair in (fits[:2], fits[2:]))
    correlation, p_value = _correlation(probability.residuals, reward.residuals, steps.episodes)
    shown = probability.explained > EXPLAINED
    level, words = (Level.OK, CLEAN) if shown else (Level.NOTE, UNSHOWN)
    if p_value < SIGNIFICANT and abs(correlation) > CLEAR:
        words = words if shown else SUSPECT
        unexplained = np.sqrt((1 - probability.explained) * (1 - reward.explained))
        material = shown and abs(correlation) * unexplained > MATERIAL
        needed = EXACT if shown and abs(correlation) < SAME else FUNCTION
        if material or _function_of_reward(steps, groups) > needed:
            level, words = Level.WARNING, LEAKED
    # Rounded, so that a replay with other threads in the linear algebra gives the same record.
    value, p_value = round(correlation, 3), float(f"{p_value:.2g}")
    sentence = words.format(numbers=f"partial correlation {value:.2f}, p = {p_value:.2g}")
    return found(NAME, value, sentence, level=level, p_value=p_value)


def _targets(steps: DecidedSteps) -> list[Floats]:
    """Probability and reward, each on two scales, of which the regressions fit one better."""
    logs = steps.log_probs.round(DIGITS)
    return [_ranks(logs), np.maximum(logs, LEAST_LOG), _ranks(steps.rewards), steps.rewards]


def _centred(values: Floats, groups: Integers) -> Floats:
    """Minus the mean of the action, in units of the largest value, so that no sum overflows."""
    scaled = values / (np.abs(values).max() or 1.0)
    return np.asarray(scaled - (np.bincount(groups, scaled) / np.bincount(groups))[groups])


def _known(steps: DecidedSteps) -> Floats:
    """What may be known before the action, as ranks of mean 0 and variance 1.

    Unmapped columns that are the probability or the reward under another name are no context.
    """
    columns = list(steps.controls.T)
    if not steps.mapped:
        ratios = steps.log_probs - steps.behavior_log_probs
        targets = np.stack([_standard(one) for one in (steps.log_probs, ratios, steps.rewards)])
        columns = [one for one in columns if np.abs(targets @ _standard(one)).max() < 0.999 * one.size]
    columns += [steps.behavior_log_probs.round(DIGITS), steps.times]
    return np.stack([_standard(one) for one in columns], axis=1)


def _ranks(values: Floats) -> Floats:
    """1 for the smallest; ties share the mean of their ranks."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[places])


def _standard(values: Floats) -> Floats:
    ranks = _ranks(values)
    spread = ranks.std()
    return np.asarray((ranks - ranks.mean()) / (spread if spread > 0 else 1.0))


@dataclasses.dataclass(frozen=True, eq=False)
class _Fit:
    residuals: Floats
    explained: float


def _fits(groups: Integers, times: Floats, known: Floats, targets: Floats) -> list[_Fit]:
    """For each target, the kernel and the ridge that predict it best, each step from the others."""
    best, least, size = targets, np.mean(targets**2, axis=0), np.mean(targets**2, axis=0)
    for kernel in _kernels(groups, times, known):
        values, columns = _factored(kernel)
        squares, projected = columns**2, columns.T @ targets
        for ridge in RIDGES:
            shrunk = 1 / (values + ridge)
            # (Gy)ᵢ / Gᵢᵢ is the error at step i of the fit without it: G = λ(K + λI)⁻¹ = I − P(D + λI)⁻¹Pᵀ.
            errors = (targets - columns @ (shrunk[:, None] * projected)) / (1 - squares @ shrunk)[:, None]
            loss = np.mean(errors**2, axis=0)
            best, least = np.where(loss < least, errors, best), np.minimum(loss, least)
    shares = 1 - least / np.where(size > 0, size, 1.0)
    return [_Fit(residuals, float(share)) for residuals, share in zip(best.T, shares, strict=True)]


def _factored(kernel: Floats) -> tuple[Floats, Floats]:
    """D and P with K = PPᵀ and PᵀP = D diagonal; smooth kernels have far fewer columns than rows.

    By LAPACK's pivoted Cholesky factor, which stops where what is left is rounding.
    """
    factor, pivots, rank, _ = lapack.dpstrf(kernel, tol=NEGLIGIBLE * kernel.diagonal().max(), lower=1)
    columns = np.empty((kernel.shape[0], rank))
    columns[pivots - 1] = np.tril(factor)[:, :rank]
    values, vectors = np.linalg.eigh(columns.T @ columns)
    return np.maximum(values, 0.0), columns @ vectors


def _kernels(groups: Integers, times: Floats, known: Floats) -> Iterator[Floats]:
    """Quadratic; a curve for each column; one for each pair of columns; bumps in all columns together.

    Each is for all actions and for each one, and follows a drift.
    """
    width = known.shape[1]
    alike = np.where(groups[:, None] == groups, 1.0, 0.2)
    span = float(np.ptp(times)) or 1.0
    drift = np.exp(-(((times[:, None] - times) / (SEASON * span)) ** 2))
    linear = known @ known.T / width
    curves, squared = np.zeros_like(linear), np.zeros_like(linear)
    distances = np.zeros_like(linear)
    for column in known.T:
        apart = (column[:, None] - column) ** 2
        curve = np.exp(-2 * apart)
        curves, squared, distances = curves + curve, squared + curve**2, distances + apart
    smooth = drift + linear
    yield alike * (drift + (1 + linear) ** 2)
    yield alike * (smooth + curves / width)
    yield alike * (smooth + curves / width + (curves**2 - squared) / (width * max(width - 1, 1)))
    yield alike * (smooth + 3 * np.exp(-distances / (1.4 * (float(np.median(distances)) or 1.0))))


def _correlation(left: Floats, right: Floats, episodes: Values) -> tuple[float, float]:
    """Of the residuals, and its p-value; steps of one episode may depend on each other."""
    products = left * right
    sums = np.bincount(np.unique(episodes, return_inverse=True)[1], products)
    error, scale = np.sqrt(np.sum(sums**2)), np.sqrt(np.sum(left**2) * np.sum(right**2))
    if not (error > 0 and scale > 0):
        return 0.0, 1.0
    total = float(np.sum(products))
    return float(total / scale), float(2 * special.ndtr(-abs(total) / error))


def _function_of_reward(steps: DecidedSteps, groups: Integers) -> float:
    """The share of the probability's variance, or of the ratio's, that a function of the reward explains."""
    rows = np.flatnonzero(np.bincount(groups)[groups] >= SMALL_GROUP)
    if rows.size == 0:
        return 0.0
    rewards, ratios = steps.rewards[rows], steps.log_probs - steps.behavior_log_probs
    scaled = (np.exp(one[rows] - one.max()) for one in (steps.log_probs, ratios))
    return max(_monotone_share(one, rewards, groups[rows]) for one in scaled)


def _monotone_share(values: Floats, rewards: Floats, groups: Integers) -> float:
    """What a rising or falling function of the reward explains, for each action its own."""
    from scipy.optimize import isotonic_regression  # slow to import, and seldom needed

    total = unexplained = 0.0
    for group in np.unique(groups):
        chosen = values[groups == group]
        _, places, counts = np.unique(rewards[groups == group], return_inverse=True, return_counts=True)
        means = np.bincount(places, chosen) / counts
        fits = (isotonic_regression(means, weights=counts, increasing=up).x for up in (True, False))
        total += float(np.sum((chosen - chosen.mean()) ** 2))
        unexplained += min(float(np.sum((chosen - fit[places]) ** 2)) for fit in fits)
    return 1 - unexplained / total if total > 0 else 0.0
