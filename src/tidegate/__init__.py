"""Tidegate: from logged episodes to a safe decision in a world that drifts.

Read the files in this order, that of the data. Each imports only files above it.

    errors        Exceptions a user understands.
    arrays        Arrays and trees of them.
    door          The one place where raw arrays and frames are checked.
    episodes      The log of past episodes.
    policies      Policies.
    returns       What would this policy have earned in past episode i.
    basis         Time features φ(i).
    trend         Least squares of returns on the time basis, and the forecast it implies.
    bootstrap     Wild bootstrap (Wu, 1986.
    value_models  What a step is worth under the policy that logged it.
    scales        Forecasts at every time scale: lines through the last T, T/2, T/4, … of the log.
    verdicts      What the gate may say, as sentences with cause and remedy.
    performance   Policy + log -> forecast of its mean return over the next `lookahead` episodes, with bounds.
    action_table  One decision per episode and no state.
    candidate     Candidate search.
    records       A decision as a record: everything needed to defend it, and to reach it again.
    paired        The paired test.
    budget        How much of α each test of a sequence may use.
    safety        The safety test.
    multiplicity  Several hypotheses, one error rate.
    guardrails    Guardrails.
    loop          One turn of SPIN: collect -> split -> search -> test -> deploy or keep. Pure.
    drivers       Two ways to drive `spin_step`.
    presets       Whole sets of settings under one name.
    theory        Theorem 1 of the paper.
    findings      What a check found.
    trend_tests   Tests of a fitted trend that hold when the noise is neither normal nor of constant variance.
    goodness      Does the trend fit.
    support       Does the log show what the policy does.
    diagnostics   Is the log fit for this policy.
    backtesting   Had the gate been used in the past of this log.
    planning      About how many more episodes until this candidate could pass, and which actions lack data.

Folders are the edges. They may import the files above, and each only the folders before it.

    simulators  reports  experiments  logs  workflows

The public names load on first use, so that `import tidegate` and the command's help do not wait for JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .simulators.gymnasium_registration import register_when_imported

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
        "control_variate_returns",
        "dr_returns",
        "effective_sample_size",
        "episode_ratios",
        "is_returns",
        "observed_returns",
        "pdis_returns",
        "weighted_is_returns",
        "weighted_pdis_returns",
    ),
    "value_models": ("LinearValues", "RecentMeans", "ValueModel"),
    "basis": ("ConstantBasis", "CosineBasis", "FourierBasis", "PeriodicBasis", "PolynomialBasis"),
    "bootstrap": (
        "ConfidenceInterval",
        "Mammen",
        "Rademacher",
        "Side",
        "Webb",
        "percentile_interval",
        "percentile_t_interval",
    ),
    "scales": ("Scales",),
    "performance": ("Forecast", "ForecastSettings", "forecast_performance"),
    "candidate": ("Objective", "SearchSettings", "search_candidate"),
    "verdicts": ("Reason", "Verdict"),
    "records": ("Advantage", "Decision", "Scale"),
    "budget": (
        "EvenSpending",
        "FlatLevel",
        "HarmonicSpending",
        "OBrienFlemingSpending",
        "PocockSpending",
        "SidakLevel",
        "Spending",
        "fresh",
        "since",
    ),
    "safety": ("safety_test",),
    "multiplicity": ("Multiplicity", "bonferroni", "holm"),
    "guardrails": (
        "GuardedDecision",
        "Guardrail",
        "GuardrailDecision",
        "guarded_test",
        "parse_guardrail",
    ),
    "loop": ("SpinSettings", "SpinState", "spin_step"),
    "drivers": ("History", "LiveLoop", "simulate"),
    "presets": (
        "multiscale_forecast",
        "multiscale_settings",
        "paper_settings",
        "stationary_settings",
    ),
    "theory": ("lipschitz_bound", "lipschitz_constant"),
    "findings": ("Finding", "Level"),
    "goodness": ("BehaviorPolicy", "goodness_of_fit"),
    "support": ("ActionSupport",),
    "diagnostics": ("LogCheck", "check_log"),
    "backtesting": ("Backtest", "PolicyBacktest", "Rate", "backtest"),
    "planning": ("ActionNeed", "Plan", "plan"),
}
_HOME = {name: stage for stage, names in _STAGES.items() for name in names}

__all__ = ["__version__", *sorted(_HOME)]

if TYPE_CHECKING:
    from .backtesting import Backtest as Backtest
    from .backtesting import PolicyBacktest as PolicyBacktest
    from .backtesting import Rate as Rate
    from .backtesting import backtest as backtest
    from .basis import ConstantBasis as ConstantBasis
    from .basis import CosineBasis as CosineBasis
    from .basis import FourierBasis as FourierBasis
    from .basis import PeriodicBasis as PeriodicBasis
    from .basis import PolynomialBasis as PolynomialBasis
    from .bootstrap import ConfidenceInterval as ConfidenceInterval
    from .bootstrap import Mammen as Mammen
    from .bootstrap import Rademacher as Rademacher
    from .bootstrap import Side as Side
    from .bootstrap import Webb as Webb
    from .bootstrap import percentile_interval as percentile_interval
    from .bootstrap import percentile_t_interval as percentile_t_interval
    from .budget import EvenSpending as EvenSpending
    from .budget import FlatLevel as FlatLevel
    from .budget import HarmonicSpending as HarmonicSpending
    from .budget import OBrienFlemingSpending as OBrienFlemingSpending
    from .budget import PocockSpending as PocockSpending
    from .budget import SidakLevel as SidakLevel
    from .budget import Spending as Spending
    from .budget import fresh as fresh
    from .budget import since as since
    from .candidate import Objective as Objective
    from .candidate import SearchSettings as SearchSettings
    from .candidate import search_candidate as search_candidate
    from .diagnostics import LogCheck as LogCheck
    from .diagnostics import check_log as check_log
    from .door import Propensity as Propensity
    from .drivers import History as History
    from .drivers import LiveLoop as LiveLoop
    from .drivers import simulate as simulate
    from .episodes import EpisodeLog as EpisodeLog
    from .episodes import HeldOutEpisodes as HeldOutEpisodes
    from .episodes import TrainingEpisodes as TrainingEpisodes
    from .episodes import split_log as split_log
    from .errors import LogError as LogError
    from .errors import PolicyError as PolicyError
    from .errors import SettingsError as SettingsError
    from .errors import TidegateError as TidegateError
    from .findings import Finding as Finding
    from .findings import Level as Level
    from .goodness import BehaviorPolicy as BehaviorPolicy
    from .goodness import goodness_of_fit as goodness_of_fit
    from .guardrails import GuardedDecision as GuardedDecision
    from .guardrails import Guardrail as Guardrail
    from .guardrails import GuardrailDecision as GuardrailDecision
    from .guardrails import guarded_test as guarded_test
    from .guardrails import parse_guardrail as parse_guardrail
    from .loop import SpinSettings as SpinSettings
    from .loop import SpinState as SpinState
    from .loop import spin_step as spin_step
    from .multiplicity import Multiplicity as Multiplicity
    from .multiplicity import bonferroni as bonferroni
    from .multiplicity import holm as holm
    from .performance import Forecast as Forecast
    from .performance import ForecastSettings as ForecastSettings
    from .performance import forecast_performance as forecast_performance
    from .planning import ActionNeed as ActionNeed
    from .planning import Plan as Plan
    from .planning import plan as plan
    from .policies import GaussianPolicy as GaussianPolicy
    from .policies import LinearGaussianPolicy as LinearGaussianPolicy
    from .policies import LinearPolicy as LinearPolicy
    from .policies import MLPPolicy as MLPPolicy
    from .policies import Policy as Policy
    from .policies import RecordedPolicy as RecordedPolicy
    from .policies import SoftmaxPolicy as SoftmaxPolicy
    from .policies import TabularPolicy as TabularPolicy
    from .policies import load_policy as load_policy
    from .policies import save_policy as save_policy
    from .presets import multiscale_forecast as multiscale_forecast
    from .presets import multiscale_settings as multiscale_settings
    from .presets import paper_settings as paper_settings
    from .presets import stationary_settings as stationary_settings
    from .records import Advantage as Advantage
    from .records import Decision as Decision
    from .records import Scale as Scale
    from .returns import control_variate_returns as control_variate_returns
    from .returns import dr_returns as dr_returns
    from .returns import effective_sample_size as effective_sample_size
    from .returns import episode_ratios as episode_ratios
    from .returns import is_returns as is_returns
    from .returns import observed_returns as observed_returns
    from .returns import pdis_returns as pdis_returns
    from .returns import weighted_is_returns as weighted_is_returns
    from .returns import weighted_pdis_returns as weighted_pdis_returns
    from .safety import safety_test as safety_test
    from .scales import Scales as Scales
    from .support import ActionSupport as ActionSupport
    from .theory import lipschitz_bound as lipschitz_bound
    from .theory import lipschitz_constant as lipschitz_constant
    from .value_models import LinearValues as LinearValues
    from .value_models import RecentMeans as RecentMeans
    from .value_models import ValueModel as ValueModel
    from .verdicts import Reason as Reason
    from .verdicts import Verdict as Verdict


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tidegate' has no attribute '{name}'")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return list(__all__)


register_when_imported()
