"""Slow textbook twins in NumPy loops and explicit inverses: the paper's algorithms, and Gaussians."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.floating[Any]]
Matrix = npt.NDArray[np.floating[Any]]


def is_return(
    target: Callable[[int, int], float],
    episode: Sequence[tuple[int, int, float, float]],
    discount: float,
) -> float:
    """One episode of (state, action, behaviour probability, reward): all ratios times the return."""
    weight, total = 1.0, 0.0
    for t, (state, action, behavior, reward) in enumerate(episode):
        weight *= target(state, action) / behavior
        total += discount**t * reward
    return weight * total


def pdis_return(
    target: Callable[[int, int], float],
    episode: Sequence[tuple[int, int, float, float]],
    discount: float,
) -> float:
    """Each reward times the ratios up to its own step."""
    weight, total = 1.0, 0.0
    for t, (state, action, behavior, reward) in enumerate(episode):
        weight *= target(state, action) / behavior
        total += weight * discount**t * reward
    return total


def forecast(phi: Matrix, y: Vector, varphi: Matrix) -> tuple[float, float, Vector]:
    """Algorithm 1 (Forecast), line by line: the δ×δ covariance is averaged."""
    h = np.linalg.inv(phi.T @ phi) @ phi.T
    y_hat = phi @ h @ y
    rho = float(np.mean(varphi @ h @ y))
    xi = y - y_hat
    omega = np.diag(xi**2)
    v = float(np.mean(varphi @ h @ omega @ h.T @ varphi.T))
    return rho, v, xi


def wild_statistics(phi: Matrix, y: Vector, varphi: Matrix, signs: Matrix) -> tuple[Vector, Vector]:
    """Lines 9 to 14 of Algorithm 2: refit every pseudo sample. Returns forecasts* and t*."""
    rho, _, xi = forecast(phi, y, varphi)
    y_hat = y - xi
    forecasts, ts = [], []
    for sigma in signs:
        rho_star, v_star, _ = forecast(phi, y_hat + xi * sigma, varphi)
        forecasts.append(rho_star)
        ts.append((rho_star - rho) / math.sqrt(v_star))
    return np.array(forecasts), np.array(ts)


def order_statistic(values: Vector, rank: float, *, up: bool) -> float:
    """The paper's footnote: floor or ceil, counted from 1."""
    index = math.ceil(rank - 1e-9) if up else math.floor(rank + 1e-9)
    return float(np.sort(values)[index - 1])


def percentile_t_interval(
    phi: Matrix, y: Vector, varphi: Matrix, signs: Matrix, alpha: float
) -> tuple[float, float]:
    """Algorithm 2, lines 15 to 18."""
    rho, v, _ = forecast(phi, y, varphi)
    _, t = wild_statistics(phi, y, varphi, signs)
    b = len(signs)
    lower = rho - order_statistic(t, (1 - alpha / 2) * b, up=True) * math.sqrt(v)
    upper = rho - order_statistic(t, alpha / 2 * b, up=False) * math.sqrt(v)
    return lower, upper


def percentile_interval(
    phi: Matrix, y: Vector, varphi: Matrix, signs: Matrix, alpha: float
) -> tuple[float, float]:
    """The percentile variant of the appendix."""
    forecasts, _ = wild_statistics(phi, y, varphi, signs)
    b = len(signs)
    return (
        order_statistic(forecasts, alpha / 2 * b, up=False),
        order_statistic(forecasts, (1 - alpha / 2) * b, up=True),
    )


class Gaussian(NamedTuple):
    """What a normal prior makes of some values: log density, a forecast with the values' weights in it, and
    the path below the noise.
    """

    log_density: float
    weights: Vector
    mean: float
    variance: float
    path: Vector


def gaussian_forecast(
    *,
    values: Vector,
    noise: Vector,
    movement: Matrix,
    features: Matrix,
    variances: Vector,
    ahead: Vector,
    ahead_variance: float,
    ahead_features: Vector,
) -> Gaussian:
    """Universal kriging (Cressie, 1993, section 3.4): the first feature is a level that may be anything.

    The best weights with a sum of 1 forecast; the density is integrated over the level.
    """
    whole = movement + np.diag(noise) + features[:, 1:] @ np.diag(variances) @ features[:, 1:].T
    across = ahead + features[:, 1:] @ (variances * ahead_features[1:])
    own = ahead_variance + variances @ ahead_features[1:] ** 2
    count = values.size
    bordered = np.block([[whole, np.ones((count, 1))], [np.ones((1, count)), np.zeros((1, 1))]])
    weights = np.linalg.solve(bordered, np.append(across, 1.0))[:count]
    inverse = np.linalg.inv(whole)
    level = np.sum(inverse @ values) / inverse.sum()
    distances = inverse @ (values - level)
    log_determinant = (count - 1) * math.log(2 * math.pi) + np.linalg.slogdet(whole)[1]
    return Gaussian(
        float(-0.5 * ((values - level) @ distances + log_determinant + math.log(inverse.sum()))),
        weights,
        float(weights @ values),
        float(own - 2 * weights @ across + weights @ whole @ weights),
        values - noise * distances,
    )


class SmallMDP:
    """Two states, two actions, three steps, random termination: every trajectory can be listed."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.start = np.array([0.6, 0.4])
        self.move = rng.dirichlet([1.0, 1.0], size=(2, 2))
        self.reward = rng.normal(size=(2, 2))
        self.stop = rng.uniform(0.1, 0.4, size=2)
        self.horizon = 3

    def trajectories(self, behavior: Matrix) -> Iterator[tuple[float, list[tuple[int, int, float, float]]]]:
        """(probability, episode) for every trajectory that `behavior[state, action]` can produce."""

        def extend(
            probability: float, state: int, episode: list[tuple[int, int, float, float]]
        ) -> Iterator[tuple[float, list[tuple[int, int, float, float]]]]:
            for action in range(2):
                p = probability * behavior[state, action]
                step = (state, action, float(behavior[state, action]), self.reward[state, action])
                longer = [*episode, step]
                if len(longer) == self.horizon:
                    yield p, longer
                    continue
                yield p * self.stop[state], longer
                for after in range(2):
                    moved = p * (1 - self.stop[state]) * self.move[state, action, after]
                    yield from extend(moved, after, longer)

        for state in range(2):
            yield from extend(float(self.start[state]), state, [])

    def value(self, policy: Matrix, discount: float) -> float:
        """Exact by dynamic programming, backwards from the last step."""
        values = np.zeros(2)
        for left in range(self.horizon):
            following = values if left else np.zeros(2)
            q = self.reward + discount * (1 - self.stop)[:, None] * (self.move @ following)
            values = np.sum(policy * q, axis=1)
        return float(self.start @ values)


def finite_difference(function: Callable[[Vector], float], at: Vector, step: float = 1e-6) -> Vector:
    """Central differences."""
    gradient = np.zeros_like(at)
    for i in range(at.size):
        shift = np.zeros_like(at)
        shift[i] = step
        gradient[i] = (function(at + shift) - function(at - shift)) / (2 * step)
    return gradient


def all_sign_vectors(n: int) -> Matrix:
    return np.array(list(itertools.product([1.0, -1.0], repeat=n)))


def one_step_frame(rows: int, seed: int = 0, **columns: Any) -> dict[str, Any]:
    """Columns of a well-formed one-step log with three actions."""
    rng = np.random.default_rng(seed)
    return {
        "episode": np.arange(1, rows + 1),
        "action": rng.integers(0, 3, rows),
        "behavior_prob": np.full(rows, 1 / 3),
        "reward": rng.normal(size=rows),
        **columns,
    }
