"""Classifiers in NumPy for the policies of streams: small, plain, the same numbers every time.

Each takes rows × features and class numbers, and gives back a function from rows to scores per class.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

Array = npt.NDArray[Any]
Scores = Callable[[Array], Array]

RIDGE, BINS, LEAST = 1e-2, 32, 20
DEPTH, ROUNDS, RATE = 5, 60, 0.3


def logistic(x: Array, y: Array, classes: int) -> Scores:
    """Multinomial logistic regression, with a small ridge; a feature that never moved says nothing."""
    centre, spread = x.mean(axis=0), x.std(axis=0)
    scale = np.where(spread > 1e-6, spread, np.inf)
    hot = np.eye(classes)[y]

    def design(rows: Array) -> Array:
        return np.column_stack([np.ones(len(rows)), (rows - centre) / scale])

    inputs = design(x)

    def loss(flat: Array) -> tuple[float, Array]:
        weights = flat.reshape(-1, classes)
        p = softmax(inputs @ weights)
        value = -np.log((p * hot).sum(axis=1) + 1e-12).mean() + RIDGE * (weights**2).sum() / 2
        return float(value), (inputs.T @ (p - hot) / len(y) + RIDGE * weights).ravel()

    start = np.zeros(inputs.shape[1] * classes)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 200}).x
    weights = found.reshape(-1, classes)
    return lambda rows: design(rows) @ weights


def tree(x: Array, y: Array, classes: int) -> Scores:
    """A tree whose leaves hold the shares of the classes."""
    grown = grow(x, np.eye(classes)[y], DEPTH)
    return lambda rows: read(grown, rows)


def boosted(x: Array, y: Array, classes: int) -> Scores:
    """Gradient boosting: shallow trees, each fitted to what the sum of those before it misses."""
    hot, scores, trees = np.eye(classes)[y], np.zeros((len(y), classes)), []
    for _ in range(ROUNDS):
        trees.append(grow(x, hot - softmax(scores), 2))
        scores += RATE * classes * read(trees[-1], x)
    return lambda rows: sum((read(one, rows) for one in trees), np.zeros((len(rows), classes)))


def softmax(scores: Array) -> Array:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: Array = powers / powers.sum(axis=1, keepdims=True)
    return shares


class Node(NamedTuple):
    """Rows with `feature` up to `threshold` go below, others above; a leaf has no feature."""

    value: Array
    feature: int = -1
    threshold: float = 0.0
    below: Any = None
    above: Any = None


def grow(x: Array, targets: Array, depth: int) -> Node:
    """Least squares, split by split, down to this depth."""
    value = targets.mean(axis=0)
    gain, feature, threshold = max(best_split(x[:, j], targets, j) for j in range(x.shape[1]))
    if depth == 0 or gain <= 1e-9:
        return Node(value)
    low = x[:, feature] <= threshold
    parts = [grow(x[side], targets[side], depth - 1) for side in (low, ~low)]
    return Node(value, feature, threshold, *parts)


def best_split(column: Array, targets: Array, feature: int) -> tuple[float, int, float]:
    """How much a split of this feature takes from the squared error at most, and where."""
    edges = np.unique(np.quantile(column, np.linspace(0, 1, BINS + 1)[1:-1]))
    place = np.searchsorted(edges, column)
    counts = np.bincount(place, minlength=len(edges) + 1).cumsum()[:-1]
    sums = np.stack([np.bincount(place, one, len(edges) + 1) for one in targets.T]).cumsum(axis=1)
    low, total, rest = sums[:, :-1], sums[:, -1:], len(column) - counts
    with np.errstate(divide="ignore", invalid="ignore"):
        gains = (low**2).sum(0) / counts + ((total - low) ** 2).sum(0) / rest
    gains = np.where((counts >= LEAST) & (rest >= LEAST), gains, -np.inf)
    best = int(np.argmax(gains))
    return float(gains[best] - (total**2).sum() / len(column)), feature, float(edges[best])


def read(node: Node, x: Array) -> Array:
    """The value of the leaf in which each row ends."""
    if node.feature < 0:
        return np.broadcast_to(node.value, (len(x), len(node.value)))
    low = x[:, node.feature] <= node.threshold
    out = np.empty((len(x), len(node.value)))
    out[low], out[~low] = read(node.below, x[low]), read(node.above, x[~low])
    return out
