"""Keep running, or roll back? What a watch says about the episodes that were logged since a release."""

import dataclasses
import datetime
from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

import numpy as np

from ..arrays import Floats
from ..episodes import EpisodeLog, HeldOutEpisodes
from ..errors import LogError
from ..gates.guardrails import Guardrail, guardrails_of
from ..gates.watch import followed, signal_of, watch_step, weighed_episodes
from ..gates.watch_records import Signal, Watch, WatchReason
from ..gates.weighing import WeighedEpisodes
from ..inputs import seed_of
from ..policies import Policy
from ..reasons import Status
from ..record import plain, sealed, thinned
from .asking import ColumnNames, Named, asked
from .conditions import Conditions, written
from .gating import GateRecord, decide
from .guarding import with_outcomes
from .opening import Log, OpenLog, PolicyLike, Stage, open_log, policy_name, silent
from .origins import time_of_log
from .provenance import Provenance, provenance
from .room import require_room
from .settings import PlainSettings, Settings
from .showing import Shown
from .training import Overlap
from .trials import Trial

ROLL_BACK, KEEP_RUNNING = "ROLL BACK", "KEEP RUNNING"


@dataclasses.dataclass(frozen=True)
class Curve:
    """The mean advantage since the release after some episodes, with its bounds; null where there is none."""

    name: str
    episode: Floats
    mean: Floats
    lower: Floats
    upper: Floats


@dataclasses.dataclass(frozen=True)
class ForecastWarning:
    """What the gate forecasts from the episodes since the release. It warns; it does not roll back.

    It warns if it no longer forecasts an advantage: a point of zero or less, or harm.
    """

    derived: ClassVar = ("warns", "sentence")

    lookahead: int
    status: Status
    reason: str
    point: float
    lower: float
    told: str

    @property
    def warns(self) -> bool:
        return self.status is Status.FAIL or self.point <= 0

    @property
    def sentence(self) -> str:
        if self.warns:
            return "the gate no longer forecasts an advantage for the new policy."
        return "the gate still forecasts an advantage for the new policy."


@dataclasses.dataclass(frozen=True, eq=False)
class WatchRecord(Shown):
    """Whether the new policy may go on, with all that this rests on.

    `candidate` is the new policy, under which the episodes were logged. `since` is the first time that
    counts, as it was given. `warning` is None if no lookahead was asked for. The record is about the time
    until the last episode, at which it was `decided_at`.
    """

    candidate: str
    safe: str
    since: str | None
    watch: Watch
    signal: Signal
    curves: tuple[Curve, ...]
    warning: ForecastWarning | None
    decided_at: str
    settings: PlainSettings
    seed: int
    provenance: Provenance

    @property
    def status(self) -> Status:
        return self.signal.status

    @property
    def reason(self) -> WatchReason:
        return self.signal.reason

    @property
    def rolls_back(self) -> bool:
        return self.signal.rolls_back

    @property
    def exit_code(self) -> int:
        """0: keep running, 1: roll back, 2: the episodes cannot tell."""
        return {Status.FAIL: 1, Status.ERROR: 2}.get(self.status, 0)

    @property
    def caveats(self) -> tuple[str, ...]:
        """What a reader must know first."""
        origin = self.provenance
        return (*((origin.propensities,) if origin.estimated else ()), *origin.caveats)

    @property
    def sentence(self) -> str:
        """The reason in words, with what shows it."""
        harm = self.signal.harm
        return self.reason.sentence if harm is None else harm.sentence

    @property
    def headline(self) -> str:
        """What to do, and why."""
        return f"{ROLL_BACK if self.rolls_back else KEEP_RUNNING}: {self.sentence}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: what `tidegate watch --json` prints."""
        content = {
            "status": self.status.value,
            "rolls_back": self.rolls_back,
            "advice": ROLL_BACK if self.rolls_back else KEEP_RUNNING,
            "reason": self.reason.name,
            "sentence": self.sentence,
            "headline": self.headline,
            "caveats": list(self.caveats),
            **plain(self),
        }
        return sealed("watch", content)


@plain.register
def _(status: Status) -> Any:
    return status.value


def watch(
    log: Log,
    *,
    candidate: PolicyLike = "behavior",
    safe: PolicyLike,
    settings: Settings = None,
    columns: ColumnNames = None,
    guardrails: Sequence[Guardrail | str] = (),
    margin: float = 0.0,
    since: str | float | None = None,
    now: datetime.datetime | None = None,
    seed: int = 0,
    stage: Stage = silent,
    **named: Unpack[Named],
) -> WatchRecord:
    """Is the new policy shown to be worse than the safe one since its release?

    The log holds episodes under the new policy: `candidate` is what logged them, unless named otherwise.
    `since` is the first time that counts, written as in the log: the release. A gradual release may be logged
    under a mixture of both policies; then name both. `margin` is how much worse the new policy may be per
    episode. The sequences of the reward and of the guardrails share `alpha`.

    With a `lookahead`, the gate also forecasts from these episodes, and warns if it sees no advantage ahead.
    """
    wanted, seed, rails = (
        asked(watch, log, settings, columns, named),
        seed_of(seed),
        guardrails_of(guardrails),
    )
    chosen = Watch(
        alpha=wanted.settings.alpha, margin=margin, guardrails=rails, discount=wanted.settings.discount
    )
    moment = Conditions(now=now).decided_at
    opened = open_log(with_outcomes(wanted.log, rails), seed=seed, stage=stage, hold=True)
    new, opened = opened.policy(candidate)
    old, opened = opened.policy(safe)
    released = since_release(opened, since)
    stage("watching")
    signal, curves = _scanned(chosen, new, old, released.log)
    settled = wanted.settings.over(released.span, opened.loaded.time)
    names = policy_name(candidate), policy_name(safe)
    warning = None
    if wanted.settings.lookahead is not None:
        stage("forecasting")
        warning = _forecast(released, (candidate, safe), (new, old), settled, seed)
    return WatchRecord(
        *names, None if since is None else str(since), chosen, signal, curves, warning, written(moment),
        settled, seed, provenance(opened),
    )  # fmt: skip


def since_release(opened: OpenLog, since: str | float | None) -> OpenLog:
    """The log of the episodes since the release."""
    if since is None:
        return opened
    boundary = time_of_log(opened.loaded, str(since), f"since '{since}'")
    rows = np.flatnonzero(opened.loaded.began >= boundary)
    if not rows.size:
        raise LogError(
            f"no episode of the log is at {since} or later.", expected="episodes since the release"
        )
    return opened.part(rows)


def _scanned(
    watch: Watch, candidate: Policy, safe: Policy, log: EpisodeLog
) -> tuple[Signal, tuple[Curve, ...]]:
    """What the watch says at the end, and what it has known on the way."""
    begin = watch.begin()
    weighed, _ = weighed_episodes(watch, begin, candidate, safe, log)
    state, _ = watch_step(watch, begin, weighed)
    return signal_of(watch, state), _curves(watch, weighed)


def _curves(watch: Watch, weighed: WeighedEpisodes) -> tuple[Curve, ...]:
    begin = watch.begin()
    path, rows = followed(watch, begin.sums, begin.ratios, weighed), thinned(weighed.numbers.size)
    numbers = (path.sums.mean, path.lower, path.upper)
    return tuple(
        Curve(name, weighed.numbers[rows], *(one[rows, place] for one in numbers))
        for place, name in enumerate(watch.names)
    )


def _forecast(
    released: OpenLog,
    given: tuple[PolicyLike, PolicyLike],
    policies: tuple[Policy, Policy],
    settings: PlainSettings,
    seed: int,
) -> ForecastWarning:
    """The gate on the episodes since the release, which nobody has searched on."""
    require_room(released, settings, *policies)
    names = policy_name(given[0]), policy_name(given[1])
    (new, old), reduced = released.reduced(given, policies, settings.forecast(), silent)
    held_out = HeldOutEpisodes(reduced.log, reduced.span)
    trial = Trial(reduced, names, (new, old), held_out, None, Overlap.ELSEWHERE, None, settings, seed)
    return warning_of(decide(trial, Conditions(), silent))


def warning_of(record: GateRecord) -> ForecastWarning:
    """What a forecast says about a policy that was released."""
    advantage = record.advantage
    return ForecastWarning(
        lookahead=record.settings.forecast().lookahead,
        status=record.status,
        reason=record.reason.name,
        point=advantage.point,
        lower=advantage.lower,
        told=record.headline,
    )
