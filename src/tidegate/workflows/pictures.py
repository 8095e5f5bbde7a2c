"""A forecast in plain values: its numbers, the past in a few bins, and points enough for a picture."""

import itertools
from typing import Any

import numpy as np

from ..findings import summarise
from ..performance import Forecast

MAX_POINTS = 1_000
BINS = 20
SCALARS = (
    "point", "lower", "upper", "standard_error", "alpha", "num_episodes", "effective_sample_size",
)  # fmt: skip


def forecast_values(forecast: Forecast) -> dict[str, Any]:
    """What a page and a table show of a forecast; what is not finite becomes null."""
    times = forecast.forecast_times
    values = {name: getattr(forecast, name) for name in SCALARS}
    values["forecast_episodes"] = [times[0], times[-1]] if times.size else None
    values["past"] = past_bins(forecast)
    rows = thinned(forecast.returns.size)
    values["points"] = {
        "episode": forecast.episode_numbers[rows],
        "estimated_return": forecast.returns[rows],
    }
    values["curve"] = {"episode": forecast.curve_times, "fitted": forecast.curve}
    plain: dict[str, Any] = summarise(values)
    return plain


def past_bins(forecast: Forecast, bins: int = BINS) -> list[dict[str, Any]]:
    """The mean estimated return of consecutive episodes, in bins of about equal size."""
    count = forecast.returns.size
    edges = np.linspace(0, count, min(bins, count) + 1).astype(int)
    return [
        _bin(forecast.episode_numbers[low:high], forecast.returns[low:high])
        for low, high in itertools.pairwise(edges)
    ]


def _bin(numbers: Any, returns: Any) -> dict[str, Any]:
    # A sum of huge estimates may overflow: then the bin is undefined, which null says.
    with np.errstate(over="ignore", invalid="ignore"):
        error = returns.std(ddof=1) / np.sqrt(returns.size) if returns.size > 1 else None
        mean = returns.mean()
    return {
        "from": numbers[0], "to": numbers[-1], "episodes": returns.size, "mean": mean,
        "standard_error": error,
    }  # fmt: skip


def thinned(count: int) -> Any:
    """Evenly spread rows, the first and the last among them."""
    if count <= MAX_POINTS:
        return np.arange(count)
    return np.linspace(0, count - 1, MAX_POINTS).round().astype(int)
