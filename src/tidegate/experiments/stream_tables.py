"""Gates in streams -> Markdown: errors of each rule, and how the forecasts fared."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..arrays import Values
from .streams import StreamCell, StreamGate
from .tables import Estimate, markdown_table

RULES = {"default": "default", "preset paper": "paper", "paired z-test": "naive"}
CLEAR = 0.02  # an advantage that a gate should see

Groups = Mapping[str, Sequence[StreamGate]]


def stream_tables(gates: Sequence[StreamGate]) -> str:
    """Both tables, for all gates, for each stream and for each cell."""
    groups = {"all": gates, **_by_stream(gates), **_by_cell(gates)}
    return f"{verdict_table(groups)}\n{forecast_table(groups)}"


def verdict_table(groups: Groups) -> str:
    """A line per group and rule; errors are clustered by date, as candidates share their future."""
    names = ["gates of", "rule", "gates", "DEPLOY"]
    names += ["wrong of worse %", "wrong of DEPLOY %", f"passed of better by {CLEAR:g} %"]
    lines = []
    for name, gates in groups.items():
        advantage = _column(gates, "advantage")
        for rule, field in RULES.items():
            deploys = _column(gates, field)
            wrong = advantage < 0
            lines.append(
                [
                    *(name, rule, f"{len(gates):,}", f"{deploys.sum():,}"),
                    _share(deploys, wrong, gates),
                    _share(wrong, deploys, gates),
                    _share(deploys, advantage > CLEAR, gates),
                ]
            )
    return markdown_table(names, lines)


def forecast_table(groups: Groups) -> str:
    """A line per group: does the candidate's interval hold its value, how wide is it, what is its score?"""
    names = ["gates of", "intervals", "coverage %", "median width", "mean interval score"]
    lines = []
    for name, gates in groups.items():
        widths, scores = _column(gates, "upper") - _column(gates, "lower"), _column(gates, "score")
        known = np.isfinite(widths)
        if known.any():
            middle = f"{np.median(widths[known]):.3f}"
            score = _clustered(scores[known], _dates(gates)[known]).text(3)
            covered = _share(_column(gates, "covers"), known, gates)
            lines.append([name, f"{known.sum():,}", covered, middle, score])
    return markdown_table(names, lines)


def _by_stream(gates: Sequence[StreamGate]) -> dict[str, list[StreamGate]]:
    names = dict.fromkeys(one.stream for one in gates)
    return {name: [one for one in gates if one.stream == name] for name in names}


def _by_cell(gates: Sequence[StreamGate]) -> dict[str, list[StreamGate]]:
    cells = [str(StreamCell(one.episodes, one.lookahead)) for one in gates]
    return {
        cell: [one for one, its in zip(gates, cells, strict=True) if its == cell]
        for cell in dict.fromkeys(cells)
    }


def _share(hits: Values, among: Values, gates: Sequence[StreamGate]) -> str:
    """The percentage of hits among some gates, with its standard error and their number."""
    if not among.any():
        return "of 0"
    return f"{_clustered(100.0 * hits[among], _dates(gates)[among]).text(1)} of {among.sum():,}"


def _clustered(values: Values, dates: Values) -> Estimate:
    """The mean of all, with an error that takes the gates of a date, be they few or many, as one."""
    _, member = np.unique(dates, return_inverse=True)
    totals = np.bincount(member, values - values.mean())
    inflation = totals.size / (totals.size - 1) if totals.size > 1 else np.nan
    return Estimate(float(values.mean()), float(np.sqrt(inflation * (totals**2).sum()) / values.size))


def _dates(gates: Sequence[StreamGate]) -> Values:
    return np.array([f"{one.stream} {one.date}" for one in gates])


def _column(gates: Sequence[StreamGate], name: str) -> np.ndarray[Any, Any]:
    return np.array([getattr(one, name) for one in gates])
