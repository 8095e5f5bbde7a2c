"""A decision as a record: everything needed to defend it, and to reach it again."""

import dataclasses
import json
import platform
from typing import Any

import equinox as eqx
import jax
import numpy as np

from .performance import Forecast
from .verdicts import Reason, Verdict


@dataclasses.dataclass(frozen=True)
class Scale:
    """The forecast advantage from the last `span` of the log.

    `standard_error` holds the `bias`; `needed` scales must pass, `watched` ones must not contradict.
    """

    span: float
    episodes: int
    point: float
    standard_error: float
    bias: float
    p_value: float
    needed: bool
    watched: bool


@dataclasses.dataclass(frozen=True)
class Advantage:
    """What the paired test says of candidate − safe; `leading` is the scale with the smallest error."""

    point: float
    lower: float
    p_value: float
    level: float
    margin: float
    scales: tuple[Scale, ...]
    leading: int

    def role(self, index: int) -> str:
        """What the test asks of a scale."""
        if index == self.leading:
            return "leads"
        scale = self.scales[index]
        if scale.needed:
            return "must pass"
        return "must not contradict" if scale.watched else "not asked"


@dataclasses.dataclass(frozen=True, eq=False)
class Decision:
    """A verdict that can be defended: bounds, reason, settings, data hash, seed, versions."""

    verdict: Verdict
    reason: Reason
    candidate: Forecast
    safe: Forecast
    settings: dict[str, Any]
    seed: int
    data_hash: str
    policy_hashes: dict[str, str]
    versions: dict[str, str]
    advantage: Advantage | None = None
    training_hash: str | None = None

    @property
    def p_value(self) -> float | None:
        """Of "the candidate is not better"; None under the published test of two bounds."""
        return None if self.advantage is None else self.advantage.p_value

    def __str__(self) -> str:
        return f"{self.verdict.name}: {self.reason.sentence} {self.bounds}"

    @property
    def bounds(self) -> str:
        """The numbers behind the verdict, in brackets."""
        first, last = self.safe.forecast_times[0], self.safe.forecast_times[-1]
        if self.advantage is not None:
            return (
                f"[advantage at least {self.advantage.lower:.4g} over episodes {first:.10g} to {last:.10g}, "
                f"p = {self.advantage.p_value:.2g}; level {self.advantage.level:g}, "
                f"{self.safe.num_episodes} test episodes]"
            )
        return (
            f"[candidate at least {self.candidate.lower:.4g}, safe at most {self.safe.upper:.4g} "
            f"over episodes {first:.10g} to {last:.10g}; α = {self.settings['alpha']:g}, "
            f"{self.safe.num_episodes} test episodes]"
        )

    def to_json(self) -> str:
        """The record as JSON, without the arrays that only pictures need."""
        first, last = (float(self.safe.forecast_times[i]) for i in (0, -1))
        return json.dumps(
            {
                "verdict": self.verdict.name,
                "reason": self.reason.name,
                "sentence": self.reason.sentence,
                "candidate": _numbers(self.candidate),
                "safe": _numbers(self.safe),
                "advantage": advantage_values(self.advantage),
                "settings": self.settings,
                "seed": self.seed,
                "data_hash": self.data_hash,
                "training_hash": self.training_hash,
                "policy_hashes": self.policy_hashes,
                "forecast_episodes": [first, last],
                "versions": self.versions,
            },
            indent=1,
        )


def describe_settings(settings: Any) -> Any:
    """Settings as plain JSON values: records by class and field, functions by name."""
    if isinstance(settings, eqx.Module):
        fields = {name: describe_settings(value) for name, value in vars(settings).items()}
        return {"class": type(settings).__name__, **fields}
    if isinstance(settings, jax.Array | np.ndarray | np.generic):
        return np.asarray(settings).tolist()
    if callable(settings):
        return getattr(settings, "__name__", repr(settings))
    return getattr(settings, "name", settings)


def versions() -> dict[str, str]:
    """What computed this."""
    from . import __version__

    return {
        "tidegate": __version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def _numbers(forecast: Forecast) -> dict[str, Any]:
    """The forecast without the arrays that only pictures need; strict JSON has no infinities."""
    fields = {f.name: getattr(forecast, f.name) for f in dataclasses.fields(forecast)}
    return _plain({name: v for name, v in fields.items() if isinstance(v, int | float)})


def advantage_values(advantage: Advantage | None) -> dict[str, Any] | None:
    """The paired test in plain JSON values."""
    if advantage is None:
        return None
    scales = [_plain(vars(scale)) for scale in advantage.scales]
    return _plain({**vars(advantage), "scales": scales})


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: str(v) if isinstance(v, float) and not np.isfinite(v) else v
        for name, v in fields.items()
    }
