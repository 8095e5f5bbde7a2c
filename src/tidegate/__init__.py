"""Tidegate: from logged episodes to a safe decision in a world that drifts.

The public names, by stage. They load on first use, so that `import tidegate` and the command's help
do not wait for JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_STAGES = {
    "errors": ("LogError", "PolicyError", "SettingsError", "TidegateError"),
    "door": ("Propensity",),
    "episodes": ("EpisodeLog", "HeldOutEpisodes", "TrainingEpisodes", "split_log"),
    "policies": (
        "GaussianPolicy",
        "LinearGaussianPolicy",
        "LinearPolicy",
        "MLPPolicy",
        "Policy",
        "RecordedPolicy",
        "SoftmaxPolicy",
        "TabularPolicy",
        "load_policy",
        "save_policy",
    ),
    "returns": (
        "effective_sample_size",
        "episode_ratios",
        "is_returns",
        "observed_returns",
        "pdis_returns",
    ),
    "basis": ("ConstantBasis", "CosineBasis", "FourierBasis", "PolynomialBasis"),
    "bootstrap": (
        "ConfidenceInterval",
        "Mammen",
        "Rademacher",
        "Side",
        "Webb",
        "percentile_interval",
        "percentile_t_interval",
    ),
    "performance": ("Forecast", "ForecastSettings", "forecast_performance"),
    "candidate": ("Objective", "SearchSettings", "search_candidate"),
    "verdicts": ("Reason", "Verdict"),
    "records": ("Decision",),
    "safety": ("safety_test",),
    "loop": ("SpinSettings", "SpinState", "spin_step"),
    "drivers": ("History", "LiveLoop", "simulate"),
    "theory": ("lipschitz_bound", "lipschitz_constant"),
}
_HOME = {name: stage for stage, names in _STAGES.items() for name in names}

__all__ = ["__version__", *sorted(_HOME)]  # noqa: PLE0604

if TYPE_CHECKING:
    from .basis import ConstantBasis, CosineBasis, FourierBasis, PolynomialBasis
    from .bootstrap import (
        ConfidenceInterval,
        Mammen,
        Rademacher,
        Side,
        Webb,
        percentile_interval,
        percentile_t_interval,
    )
    from .candidate import Objective, SearchSettings, search_candidate
    from .door import Propensity
    from .drivers import History, LiveLoop, simulate
    from .episodes import EpisodeLog, HeldOutEpisodes, TrainingEpisodes, split_log
    from .errors import LogError, PolicyError, SettingsError, TidegateError
    from .loop import SpinSettings, SpinState, spin_step
    from .performance import Forecast, ForecastSettings, forecast_performance
    from .policies import (
        GaussianPolicy,
        LinearGaussianPolicy,
        LinearPolicy,
        MLPPolicy,
        Policy,
        RecordedPolicy,
        SoftmaxPolicy,
        TabularPolicy,
        load_policy,
        save_policy,
    )
    from .records import Decision
    from .returns import (
        effective_sample_size,
        episode_ratios,
        is_returns,
        observed_returns,
        pdis_returns,
    )
    from .safety import safety_test
    from .theory import lipschitz_bound, lipschitz_constant
    from .verdicts import Reason, Verdict


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tidegate' has no attribute '{name}'")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return list(__all__)
