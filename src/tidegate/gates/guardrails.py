"""Guardrails: better on the reward, and no other outcome forecast to worsen by more than its margin."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays import in_double
from ..episodes import EpisodeLog, HeldOutEpisodes, TrainingEpisodes, present_rows
from ..errors import SettingsError
from ..forecast import ForecastSettings
from ..inputs import flag, instance, member, number, record_of, seed_of, shown, text
from ..policies import Policy
from ..reasons import MIN_EPISODES, Reason, Status, Verdict
from ..record import Decision
from ..returns import observed_returns
from ..safety import Tested, require_level, require_parts, tested, with_room
from .multiplicity import Multiplicity, holm_levels

DIRECTIONS = {"lower": True, "higher": False}


@dataclasses.dataclass(frozen=True)
class Guardrail:
    """An outcome that must not become worse by more than a margin.

    `margin` is in the outcome's own units per episode: the sum over an episode's steps, discounted as the
    reward is. It says how much harm is tolerable, and must be chosen before the test. With 0, the outcome
    must be shown to improve.
    """

    name: str
    margin: float
    lower_is_better: bool = True

    def __post_init__(self) -> None:
        if self.name == "":
            raise SettingsError("a guardrail has no outcome.", expected="an outcome of the log")
        name = text("the outcome of a guardrail", self.name, "the name of an outcome of the log")
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "margin", _margin(name, self.margin))
        object.__setattr__(self, "lower_is_better", _lower_is_better(name, self.lower_is_better))

    def __str__(self) -> str:
        verb = "rise" if self.lower_is_better else "fall"
        return f"{self.name} must not {verb} by more than {self.margin:g}"

    @property
    def sign(self) -> float:
        """The factor that makes more of the outcome better."""
        return -1.0 if self.lower_is_better else 1.0


def _margin(name: str, given: Any) -> float:
    try:
        return number(f"the margin of '{name}'", given, 0)
    except SettingsError as error:
        raise SettingsError(
            error.what,
            expected=f"{error.expected}, in the outcome's units per episode",
            remedy="Say how much worse the outcome may become; its direction is given separately.",
        ) from None


def _lower_is_better(name: str, given: Any) -> bool:
    """True or False, or the word for what is better."""
    if isinstance(given, str) and given.lower() in DIRECTIONS:
        return DIRECTIONS[given.lower()]
    if isinstance(given, str):
        raise SettingsError(
            f"lower_is_better is {shown(given)} for '{name}'.",
            expected="True or 'lower', False or 'higher'",
            remedy=f"Or write it as one text: parse_guardrail('{name}:0.3:higher').",
        )
    return flag("lower_is_better", given)


def guardrails_of(given: Any) -> tuple[Guardrail, ...]:
    """Guardrails as people name them: a list of `Guardrail`, of texts such as complaints:0.02, or one."""
    if given is None:
        return ()
    listed = given if isinstance(given, list | tuple) else (given,)
    return tuple(
        parse_guardrail(one) if isinstance(one, str) else record_of("a guardrail", Guardrail, one)
        for one in listed
    )


def parse_guardrail(text: str) -> Guardrail:
    """NAME:MARGIN, or NAME:MARGIN:higher for an outcome of which more is better.

    `complaints:0.02` must not rise by more than 0.02, `retention:0.01:higher` not fall by more than
    0.01. A name may itself contain colons.
    """
    instance("a guardrail", str, text, "NAME:MARGIN, or NAME:MARGIN:higher if more of it is better")
    rest, _, last = text.rpartition(":")
    direction = last if last in DIRECTIONS else "lower"
    name, _, margin = (rest if last in DIRECTIONS else text).rpartition(":")
    try:
        return Guardrail(name, float(margin), DIRECTIONS[direction])
    except SettingsError:
        raise
    except ValueError as error:
        raise SettingsError(
            f"'{text}' is not a guardrail.",
            expected="NAME:MARGIN, or NAME:MARGIN:higher if more of it is better",
            remedy="As in complaints:0.02 (may rise by 0.02), retention:0.01:higher (may fall by 0.01).",
        ) from error


@dataclasses.dataclass(frozen=True, eq=False)
class GuardrailDecision:
    """The test of one guardrail: a safety test of sign × outcome, which may lose up to the margin.

    `decision` is that test, at `level`; its numbers are signed so that more is better. `change` and
    `bound` are in the outcome's own direction. `constant` is the outcome's value if it is the same in
    every test episode: then the log carries no evidence on it, whatever the test says.
    """

    guardrail: Guardrail
    decision: Decision
    level: float
    constant: float | None = None

    @property
    def passed(self) -> bool:
        return self.constant is None and _rejects(self.decision, self.level)

    @property
    def change(self) -> float:
        """Forecast of the outcome under the candidate minus that under the safe policy, per episode."""
        return self.guardrail.sign * self.decision.advantage.point

    @property
    def bound(self) -> float:
        """The worst change that the log does not rule out at this level."""
        return self.guardrail.sign * self.decision.advantage.lower

    @property
    def sentence(self) -> str:
        name, margin = self.guardrail.name, self.guardrail.margin
        verb = "rise" if self.guardrail.lower_is_better else "fall"
        if self.constant is not None:
            return (
                f"the log carries no evidence on '{name}': it is {self.constant:.4g} in every test "
                "episode. Collect until it varies, or drop the guardrail knowingly."
            )
        if self.passed:
            return f"'{name}' is not forecast to {verb} by more than {margin:g} {self._numbers()}."
        if self.decision.reason in (Reason.BETTER, Reason.NOT_BETTER):
            return (
                f"the log does not rule out that '{name}' will {verb} by more than {margin:g} "
                f"{self._numbers()}."
            )
        if self.decision.reason is Reason.SCALES_DISAGREE:
            return (
                f"'{name}' may move: on the line through the log it would not {verb} by over {margin:g}, "
                f"but models that let it move do not rule that out {self._numbers()}. Wait for more episodes."
            )
        return f"'{name}' cannot be judged: {self.decision.sentence}"

    def _numbers(self) -> str:
        end = "at most" if self.guardrail.lower_is_better else "at least"
        return f"[change {self.change:+.4g}, {end} {self.bound:+.4g}; level {self.level:.4g}]"


@dataclasses.dataclass(frozen=True, eq=False)
class GuardedDecision:
    """The verdict on all outcomes: DEPLOY only if the reward improves and every guardrail holds.

    `main` is the test of the reward at `main_level`, and `tested` the comparison behind it; there is one of
    `guardrails` for each that was asked for.
    """

    main: Decision
    main_level: float
    guardrails: tuple[GuardrailDecision, ...]
    multiplicity: Multiplicity
    alpha: float
    tested: Tested = dataclasses.field(repr=False, metadata={"plain": False})

    @property
    def improves(self) -> bool:
        """Whether the reward is shown to improve."""
        return _rejects(self.main, self.main_level)

    @property
    def blocking(self) -> tuple[GuardrailDecision, ...]:
        """The guardrails that do not hold."""
        return tuple(one for one in self.guardrails if not one.passed)

    @property
    def verdict(self) -> Verdict:
        return Verdict.DEPLOY if self.improves and not self.blocking else Verdict.KEEP

    @property
    def status(self) -> Status:
        """A guardrail fails the gate if it alone keeps it shut, or if harm is shown to its outcome."""
        if self.verdict is Verdict.DEPLOY:
            return Status.PASS
        tests = (self.main, *(one.decision for one in self.guardrails))
        harm = any(one.status is Status.FAIL for one in tests)
        return Status.FAIL if harm or self.improves else Status.INCONCLUSIVE

    @property
    def sentence(self) -> str:
        """The reason, which names every guardrail that blocks."""
        return self.worded("{:,}".format)

    def worded(self, span: Callable[[int], str]) -> str:
        """The same, with lengths of time as `span` says them."""
        better = self.main.reason is Reason.BETTER
        main = Reason.NOT_BETTER.sentence if better and not self.improves else self.main.worded(span)
        if not self.guardrails:
            return main
        if self.blocking:
            blocks = [f"A guardrail blocks: {one.sentence}" for one in self.blocking]
            return " ".join([main, *blocks])
        held = "; ".join(str(one.guardrail) for one in self.guardrails)
        return f"{main} Every guardrail holds: {held}."

    def __str__(self) -> str:
        found = self.main.advantage
        numbers = (
            f"[reward: change {found.point:+.4g}, at least {found.lower:+.4g}; level {self.main_level:.4g}]"
        )
        held = (f"Guardrail: {one.sentence}" for one in self.guardrails if one.passed)
        return "\n".join([f"{self.verdict.name}: {self.sentence} {numbers}", *held])


@in_double
def guarded_test(
    candidate: Policy,
    safe: Policy,
    held_out: HeldOutEpisodes,
    settings: ForecastSettings,
    guardrails: Sequence[Guardrail | str],
    *,
    training: TrainingEpisodes | None = None,
    multiplicity: Multiplicity | str = Multiplicity.HOLM,
    level: float | None = None,
    seed: int = 0,
) -> GuardedDecision:
    """Will the candidate beat the safe policy, and will every guardrail hold, over the next episodes?

    There are m = 1 + len(guardrails) null hypotheses: that the reward does not improve, and, for each
    guardrail, that its outcome becomes worse by the margin or more. DEPLOY only if all m are rejected
    and no test raises another doubt (support, too few episodes, …). Requiring all of them makes this an
    intersection–union test (Berger, 1982): with every hypothesis at level α, a wrong deployment has
    probability at most α, whatever m. So Holm's rule is stricter than that guarantee requires. What it
    adds: with probability 1 − α every outcome that is reported to pass does pass, even when the gate
    stays shut because of another. It costs power; `Multiplicity.NONE` leaves it out. (Each bound is at
    its own level. Those of `BONFERRONI`, all at α/m, also hold simultaneously.)

    Holm's rule needs p-values. For a test that has none, each has level α/m (Bonferroni).
    Without guardrails this is `safety_test`.

    `level` is what all tests may use together, where that is not the settings' α: an error budget's
    share for this gate. At 0, nothing is left and the gate stays shut.
    """
    guardrails = guardrails_of(guardrails)
    multiplicity = member("multiplicity", Multiplicity, multiplicity)
    require_different(guardrails)
    require_parts(candidate, safe, held_out, settings, training)
    level, seed = require_level(level), seed_of(seed)
    alpha = settings.alpha if level is None else level
    training, held_out = with_room(settings, training, held_out)

    possible = _possible_levels(settings, alpha, 1 + len(guardrails), multiplicity)

    def test(guardrail: Guardrail | None) -> tuple[Tested, ...]:
        one = _hypothesis(held_out, training, guardrail)
        return tested(
            candidate,
            safe,
            one.held_out,
            settings,
            training=one.training,
            margin=one.margin,
            levels=possible,
            seed=seed,
        )

    # Of the guardrails' tests the decisions are kept, not all that they computed for every episode.
    rails = [[at.decision for at in test(one)] for one in guardrails]
    main = test(None)
    constants = [None, *(_constant(held_out.log, one.name, settings.discount) for one in guardrails)]
    levels = _levels([main[-1].decision, *(rail[-1] for rail in rails)], constants, possible)
    held = [rail[possible.index(level)] for rail, level in zip(rails, levels[1:], strict=True)]
    chosen = main[possible.index(levels[0])]
    return GuardedDecision(
        main=chosen.decision,
        main_level=levels[0],
        guardrails=tuple(map(GuardrailDecision, guardrails, held, levels[1:], constants[1:])),
        multiplicity=multiplicity,
        alpha=alpha,
        tested=chosen,
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _Hypothesis:
    """The inputs of one safety test; the main one has margin 0."""

    held_out: HeldOutEpisodes
    training: TrainingEpisodes | None
    margin: float


def _hypothesis(
    held_out: HeldOutEpisodes, training: TrainingEpisodes | None, guardrail: Guardrail | None
) -> _Hypothesis:
    def watched(log: EpisodeLog) -> EpisodeLog:
        if guardrail is None:
            return log.of_rewards()
        return log.with_outcome(guardrail.name, guardrail.sign)

    return _Hypothesis(
        dataclasses.replace(held_out, log=watched(held_out.log)),
        None if training is None else dataclasses.replace(training, log=watched(training.log)),
        0.0 if guardrail is None else guardrail.margin,
    )


def _possible_levels(
    settings: ForecastSettings, alpha: float, count: int, multiplicity: Multiplicity
) -> tuple[float, ...]:
    """The levels that one of so many tests may get, the largest last."""
    if multiplicity is Multiplicity.NONE or not alpha > 0:
        return (alpha,)
    if multiplicity is Multiplicity.BONFERRONI or not settings.test.has_p_value:
        return (alpha / count,)
    return tuple(alpha / (count - step) for step in range(count))


def _levels(
    alone: Sequence[Decision], constants: Sequence[float | None], possible: tuple[float, ...]
) -> tuple[float, ...]:
    """The level of each test, by the decisions at the largest."""
    if len(possible) == 1:
        return possible * len(alone)
    # A test with another doubt rejects nothing, so no later step may build on its p-value.
    fair = [
        one.reason in (Reason.BETTER, Reason.NOT_BETTER) and value is None
        for one, value in zip(alone, constants, strict=True)
    ]
    p_values = [one.p_value if ok else None for one, ok in zip(alone, fair, strict=True)]
    return holm_levels(p_values, possible[-1])


def _rejects(decision: Decision, level: float) -> bool:
    """Whether the test's verdict at this level and its p-value, if it has one, both reject."""
    small = decision.p_value is None or decision.p_value <= level
    return decision.verdict is Verdict.DEPLOY and small


def _constant(log: EpisodeLog, outcome: str, discount: float) -> float | None:
    """The outcome of every test episode, if it is the same for all of them."""
    watched = log.with_outcome(outcome)
    returns = np.asarray(observed_returns(watched, discount))[present_rows(watched)]
    with np.errstate(over="ignore"):
        if returns.size < MIN_EPISODES or np.ptp(returns) > 1e-12 * np.max(np.abs(returns)):
            return None
    return float(returns[0]) + 0.0  # no negative zero


def require_different(guardrails: Sequence[Guardrail]) -> None:
    """No outcome has two guardrails in the same direction."""
    watched = [(one.name, one.lower_is_better) for one in guardrails]
    twice = [name for name, better in watched if watched.count((name, better)) > 1]
    if twice:
        raise SettingsError(
            f"there are two guardrails on '{twice[0]}' in the same direction.",
            expected="one margin for each outcome and direction",
        )
