"""The safety test: DEPLOY only if finite numbers compare in its favour, else KEEP; always with a reason."""

import dataclasses
import functools
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .arrays import in_double, kept, replace_at
from .basis import TimeAxis
from .comparison import Comparison, ComparisonTest, Terms
from .episodes import EpisodeLog, HeldOutEpisodes, TrainingEpisodes, roomy
from .errors import SettingsError
from .forecast import (
    ForecastSettings,
    compared_series,
    context_luck,
    describe_forecast,
    draw_multipliers,
)
from .inputs import instance, number, seed_of
from .mixture import Trend, Trials
from .policies import Policy
from .reasons import Reason, Verdict, earlier_doubt, first_doubt
from .record import Advantage, Decision, ModelFamily, PastErrors, Season, describe_settings, versions
from .returns import stopped_ratios

RATIO_TOLERANCE = 0.01
VERDICT_SEED = 0  # of the bootstrap's draws: with one that a user can turn, he could turn the verdict


class Evidence(eqx.Module):
    """What two policies would have earned, `condensed` for a test, and how far their ratios are off 1.

    `largest` are the largest returns, in size.
    """

    condensed: Any
    excess: Float[Array, " 2"]
    largest: Float[Array, " 2"]


def compare_policies(
    settings: ForecastSettings,
    candidate: Policy,
    safe: Policy,
    held_out: HeldOutEpisodes,
    terms: Terms,
    *,
    training: TrainingEpisodes | None = None,
    log_full: Bool[Array, ""] | bool = False,
) -> Comparison:
    """Will the candidate earn more than the safe policy? On the same episodes, by the settings' test.

    Training episodes are what value models are fitted to; without them, these are cross-fitted.
    """
    evidence, rows = gather(settings, candidate, safe, held_out, terms.axis, training=training)
    return settings.test.with_rows(judge(settings.test, evidence, terms, log_full=log_full), rows)


def gather(
    settings: ForecastSettings,
    candidate: Policy,
    safe: Policy,
    held_out: HeldOutEpisodes,
    axis: TimeAxis,
    *,
    training: TrainingEpisodes | None = None,
) -> tuple[Evidence, Any]:
    """What the episodes say about two policies, and what the test knows of each of them."""
    log, policies = held_out.log, (candidate, safe)
    luck, excess = _of_ratios(settings, policies, log)
    seen = None if training is None else training.log
    condensed, largest, rows = _of_returns(settings, policies, seen, log, axis, luck)
    return Evidence(condensed, excess, largest), rows


# Three programs: two that grow with the log, one after the other to take less memory, and one that is large,
# and the same for logs of any length.
@kept
def _of_ratios(
    settings: ForecastSettings, policies: tuple[Policy, Policy], log: EpisodeLog
) -> tuple[Float[Array, " 2"], Float[Array, " 2"]]:
    luck = jnp.stack([context_luck(one, log, settings.discount) for one in policies])
    return luck, _ratio_excesses(settings, policies, log)


@kept
def _of_returns(
    settings: ForecastSettings,
    policies: tuple[Policy, Policy],
    training: EpisodeLog | None,
    log: EpisodeLog,
    axis: TimeAxis,
    luck: Float[Array, " 2"],
) -> tuple[Any, Float[Array, " 2"], Any]:
    tested = compared_series(settings, training, log, policies, luck)
    condensed, rows = settings.test.condense(tested, axis)
    largest = jnp.max(jnp.abs(jnp.where(log.present, tested.returns, 0.0)), axis=1)
    return condensed, largest, rows


@kept
def judge(
    test: ComparisonTest, evidence: Evidence, terms: Terms, *, log_full: Bool[Array, ""] | bool = False
) -> Comparison:
    """The comparison that this evidence gives."""
    found = test.judge(evidence.condensed, terms)
    outside = {
        Reason.LOG_FULL: jnp.asarray(log_full),
        Reason.SUPPORT: _unsupported(evidence, found.lower + terms.margin),
    }
    reason = earlier_doubt(found.reason, first_doubt(outside))
    return replace_at(lambda one: one.reason, found, reason)


@kept
def judge_at_each(test: ComparisonTest, evidence: Evidence, terms: Terms) -> Comparison:
    """The same at several levels: what depends on the level has a row for each, all else is done once."""

    def at(level: Float[Array, ""]) -> tuple[Any, Comparison]:
        found = judge(test, evidence, dataclasses.replace(terms, level=level))
        return _by_level(found), replace_at(_by_level, found, (jnp.zeros(()),) * len(_by_level(found)))

    rows, rest = jax.vmap(at, out_axes=(0, None))(jnp.asarray(terms.level))
    return replace_at(_by_level, rest, rows)


def _by_level(found: Comparison) -> tuple[Any, ...]:
    """The parts of a comparison that depend on the level."""
    return found.lower, found.upper, found.trials.lowers, found.reason


def _ratio_excesses(
    settings: ForecastSettings, policies: tuple[Policy, Policy], log: EpisodeLog
) -> Float[Array, " 2"]:
    present = jnp.asarray(log.present)
    ratios = (stopped_ratios(policy, log, settings.discount) for policy in policies)
    return jnp.stack([_ratio_excess(one, present, settings) for one in ratios])


def _unsupported(evidence: Evidence, advantage: Float[Array, ""]) -> Bool[Array, ""]:
    """Propensities are logged with a few digits, so a small excess of the ratios is forgiven; but what it
    could have added to the returns is not evidence."""
    excess, forgiven = evidence.excess, jnp.sum(evidence.excess * evidence.largest)
    return ~jnp.all(excess <= RATIO_TOLERANCE) | ((advantage > 0) & ~(advantage > forgiven))


def _ratio_excess(
    ratios: Float[Array, " n"], present: Bool[Array, " n"], settings: ForecastSettings
) -> Float[Array, ""]:
    """How far the mean ratio is from 1, beyond chance.

    Its expectation is 1 if the log supports the policy and the propensities are right.
    """
    if math.isinf(settings.support_z):
        return jnp.zeros((), ratios.dtype)
    count = jnp.maximum(jnp.sum(present), 1)
    mean = jnp.sum(ratios) / count
    spread = jnp.sqrt(jnp.sum(jnp.where(present, (ratios - mean) ** 2, 0.0))) / count
    return jnp.maximum(jnp.abs(mean - 1) - settings.support_z * spread, 0.0)


@in_double
def safety_test(
    candidate: Policy,
    safe: Policy,
    held_out: HeldOutEpisodes,
    settings: ForecastSettings,
    *,
    training: TrainingEpisodes | None = None,
    margin: float = 0.0,
    level: float | None = None,
    seed: int = 0,
) -> Decision:
    """Will the candidate beat the safe policy over the next `lookahead` episodes?

    DEPLOY only on evidence from episodes that the candidate's search has not seen, at `level` (α unless
    given). `training` are the episodes that the search has seen: a value model is fitted to them, or
    cross-fitted if there are none. `margin` is how much worse the candidate may be, as for a guardrail. The
    `seed` goes into the record; nothing that decides depends on it: the bootstrap's draws never change.
    """
    require_parts(candidate, safe, held_out, settings, training)
    level, margin, seed = require_level(level), number("margin", margin), seed_of(seed)
    training, held_out = with_room(settings, training, held_out)
    (found,) = tested(
        candidate, safe, held_out, settings, training=training, margin=margin, levels=(level,), seed=seed
    )
    return found.decision


@dataclasses.dataclass(frozen=True, eq=False)
class Tested:
    """A decision with the comparison behind it, for whoever checks or draws what was compared."""

    decision: Decision
    comparison: Comparison
    axis: TimeAxis


def tested(
    candidate: Policy,
    safe: Policy,
    held_out: HeldOutEpisodes,
    settings: ForecastSettings,
    *,
    training: TrainingEpisodes | None,
    margin: float,
    levels: tuple[float | None, ...],
    seed: int,
) -> tuple[Tested, ...]:
    """The safety test at each of these levels, on parts of a log that `with_room` has made; in 64-bit, if
    the caller is."""
    with ThreadPoolExecutor(1) as beside:  # of a long log, hashing takes as long as the comparison
        data_hash = beside.submit(held_out.log.digest)
        axis, outcomes = compare_at(
            settings, candidate, safe, held_out, training, margin=margin, levels=levels
        )
    first = decision_record(
        settings,
        candidate,
        safe,
        held_out,
        axis,
        outcomes[0],
        seed,
        data_hash=data_hash.result(),
        training=training,
        level=levels[0],
        margin=margin,
    )
    others = (
        Tested(_at_level(first, outcome, settings, level, margin), outcome, axis)
        for outcome, level in zip(outcomes[1:], levels[1:], strict=True)
    )
    return Tested(first, outcomes[0], axis), *others


def compare_once(
    settings: ForecastSettings,
    candidate: Policy,
    safe: Policy,
    held_out: HeldOutEpisodes,
    training: TrainingEpisodes | None,
) -> tuple[Comparison, TimeAxis]:
    """The comparison at level α, and its time axis."""
    axis, (outcome,) = compare_at(settings, candidate, safe, held_out, training)
    return outcome, axis


def compare_at(
    settings: ForecastSettings,
    candidate: Policy,
    safe: Policy,
    held_out: HeldOutEpisodes,
    training: TrainingEpisodes | None,
    *,
    margin: float = 0.0,
    levels: tuple[float | None, ...] = (None,),
) -> tuple[TimeAxis, tuple[Comparison, ...]]:
    """The comparison at each of these levels, and its time axis."""
    axis, several = TimeAxis.over(held_out.span or held_out.log.span, settings.lookahead), len(levels) > 1
    terms = Terms(
        axis,
        draw_multipliers(settings, held_out.log, VERDICT_SEED),
        settings.test.asked_for(settings.alpha),
        np.asarray(levels, float) if several else settings.test.held_to(levels[0]),
        np.asarray(margin, float),
    )
    evidence, rows = gather(
        settings.for_any_terms,
        candidate,
        safe,
        HeldOutEpisodes(held_out.log),  # the axis has the span: as numbers it would force recompilation
        axis,
        training=None if training is None else TrainingEpisodes(training.log),
    )
    test = settings.test
    if not several:
        return axis, (test.with_rows(judge(test, evidence, terms), rows),)
    found = test.with_rows(judge_at_each(test, evidence, terms), rows)
    return axis, tuple(
        replace_at(_by_level, found, tuple(one[place] for one in _by_level(found)))
        for place in range(len(levels))
    )


def require_parts(
    candidate: Policy,
    safe: Policy,
    held_out: HeldOutEpisodes,
    settings: ForecastSettings,
    training: TrainingEpisodes | None,
) -> None:
    """Two policies, episodes that no search has seen, settings, and perhaps those that one has."""
    if not isinstance(held_out, HeldOutEpisodes):
        raise SettingsError(
            f"the safety test was given {type(held_out).__name__}",
            expected="HeldOutEpisodes, from split_log",
            remedy="If the candidate was made without this log, pass HeldOutEpisodes(log).",
        )
    for role, policy in (("candidate", candidate), ("safe", safe)):
        instance(role, Policy, policy, "a policy such as SoftmaxPolicy(…) or RecordedPolicy(…)")
    instance("settings", ForecastSettings, settings)
    if training is not None:
        instance("training", TrainingEpisodes, training, "TrainingEpisodes, from split_log")


def require_level(level: float | None) -> float | None:
    """A level other than α must be a probability, too."""
    return None if level is None else number("level", level, low=0, below=1)


def with_room(
    settings: ForecastSettings,
    training: TrainingEpisodes | None,
    held_out: HeldOutEpisodes,
) -> tuple[TrainingEpisodes | None, HeldOutEpisodes]:
    """Both parts of the log, each with spare rows: one program serves all logs of about these lengths."""
    if training is not None:
        training = TrainingEpisodes(roomy(training.log), training.span)
    if not settings.exact or held_out.log.capacity == 0:  # all sign vectors of spare rows would be too many
        held_out = HeldOutEpisodes(roomy(held_out.log), held_out.span)
    return training, held_out


def decision_record(
    settings: ForecastSettings,
    candidate: Policy,
    safe: Policy,
    held_out: HeldOutEpisodes,
    axis: TimeAxis,
    outcome: Comparison,
    seed: int,
    *,
    data_hash: str | None = None,
    training: TrainingEpisodes | None = None,
    level: float | None = None,
    margin: float = 0.0,
) -> Decision:
    """The arrays of a comparison as the record a user keeps."""
    reason, log = Reason(int(outcome.reason)), held_out.log
    describe = functools.partial(describe_forecast, settings, log, axis, alpha=float(outcome.alpha))
    return Decision(
        verdict=Verdict.DEPLOY if reason is Reason.BETTER else Verdict.KEEP,
        reason=reason,
        candidate=describe(candidate, outcome.candidate, outcome.candidate_interval),
        safe=describe(safe, outcome.safe, outcome.safe_interval),
        advantage=_advantage(outcome, settings, level, margin),
        settings=describe_settings(settings),
        seed=seed,
        data_hash=data_hash or log.digest(),
        training_hash=None if training is None else training.log.digest(),
        policy_hashes={"candidate": candidate.digest(), "safe": safe.digest()},
        versions=versions(),
    )


def _at_level(
    decision: Decision, outcome: Comparison, settings: ForecastSettings, level: float | None, margin: float
) -> Decision:
    """The decision by the same comparison at another level."""
    reason = Reason(int(outcome.reason))
    verdict = Verdict.DEPLOY if reason is Reason.BETTER else Verdict.KEEP
    advantage = _advantage(outcome, settings, level, margin)
    return dataclasses.replace(decision, verdict=verdict, reason=reason, advantage=advantage)


def _advantage(
    outcome: Comparison, settings: ForecastSettings, level: float | None, margin: float
) -> Advantage:
    trials = outcome.trials
    season = Season(float(trials.period), float(trials.season)) if float(trials.season) > 0.5 else None
    return Advantage(
        point=float(outcome.point),
        lower=float(outcome.lower),
        upper=float(outcome.upper),
        standard_error=float(outcome.standard_error),
        p_value=None if outcome.p_value is None else float(outcome.p_value),
        level=settings.alpha if level is None else float(level),
        margin=margin,
        models=_families(trials),
        season=season,
        past=_past(outcome.difference),
        longest_lookahead=float(trials.longest),
    )


def _past(fit: Trend) -> PastErrors | None:
    past = getattr(fit, "past", None)
    if past is None or not int(past.dates):
        return None
    return PastErrors(int(past.dates), float(past.off), float(past.misfit))


def _families(trials: Trials) -> tuple[ModelFamily, ...]:
    """The families, in order of weight; those of equal weight as they are listed."""
    columns = (trials.memories, trials.weights, trials.points, trials.errors, trials.lowers)
    rows = zip(*(np.asarray(one).tolist() for one in columns), strict=True)
    p_values = [None] * len(trials.kinds) if trials.p_values is None else np.asarray(trials.p_values).tolist()
    families = [
        ModelFamily(kind, memory, weight, point, error, lower, p)
        for kind, (memory, weight, point, error, lower), p in zip(trials.kinds, rows, p_values, strict=True)
    ]
    return tuple(sorted(families, key=lambda one: -np.nan_to_num(one.weight)))
