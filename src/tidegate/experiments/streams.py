"""Gates in real streams: verdicts and intervals beside a future that is known.

A stream is a time-ordered data set with full information: what every action would have earned in every row,
and with which probability each policy would have taken it. A log is drawn with the probabilities of the
first policy, the safe one. So it is known what each policy earns in the rows after the log, and whether a
DEPLOY was right. The gate sees the log alone, with its default settings.
"""

import dataclasses
import zlib
from collections.abc import Iterable, Iterator
from typing import Self

import numpy as np
import polars as pl
from scipy.special import ndtri

from ..arrays import Floats
from ..commands.choices import Preset
from ..commands.evaluation import evaluate
from ..commands.gating import gate
from ..errors import SettingsError
from ..inputs import seed_of, whole
from .coverage import interval_score
from .stream_files import Stream

CANDIDATE = "column:new_prob"
ALPHA = 0.05  # of the z-test; the gate's own default
WARM_UP = 20  # rewards whose mean is the z-test's first guess


@dataclasses.dataclass(frozen=True)
class StreamCell:
    """How many rows a log has, and how many rows ahead are forecast."""

    episodes: int
    lookahead: int

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, whole(field.name, getattr(self, field.name), 1))

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `1000:50`: logs of 1,000 rows, 50 rows ahead."""
        parts = text.split(":")
        if len(parts) != 2 or not all(part.strip().isdecimal() for part in parts):
            raise SettingsError(f"{text!r} is not a cell.", expected="two numbers, as in 1000:50")
        return cls(*map(int, parts))

    def __str__(self) -> str:
        return f"{self.episodes}:{self.lookahead}"


LOOKAHEADS = {300: (50,), 1_000: (50, 200), 3_000: (200, 1_000), 10_000: (200, 1_000)}
DEFAULT_CELLS = tuple(StreamCell(n, lookahead) for n, several in LOOKAHEADS.items() for lookahead in several)


@dataclasses.dataclass(frozen=True)
class StreamGate:
    """One log, what three rules say of one candidate, and what came.

    `date` is the row in which the future begins. `value` is what the candidate earns per row from there on,
    `advantage` how much more than the safe policy; `lower` and `upper` are the forecast of `value`. `reason`
    and `paper_reason` say why the gate with the default preset, and with the paper's, decided so: a test that
    passes and a caveat that keeps the gate shut all the same is NOT_GUARANTEED.
    """

    stream: str
    candidate: str
    episodes: int
    lookahead: int
    date: int
    value: float
    advantage: float
    lower: float
    upper: float
    score: float
    default: bool
    paper: bool
    naive: bool
    reason: str
    paper_reason: str

    @property
    def covers(self) -> bool:
        return self.lower <= self.value <= self.upper


def stream_dates(stream: Stream, cell: StreamCell, dates: int) -> range:
    """Evenly spaced dates, from the first that has a whole log behind it; no two futures overlap."""
    first, last = stream.start + cell.episodes, len(stream.rewards[cell.lookahead :])
    step = max(cell.lookahead, (last - first) // max(dates - 1, 1))
    return range(first, last + 1, step)[: whole("dates", dates, 1)]


def stream_gates(
    streams: Iterable[Stream],
    cells: Iterable[StreamCell] = DEFAULT_CELLS,
    *,
    dates: int = 12,
    seed: int = 0,
) -> Iterator[StreamGate]:
    """Every candidate at every date, cell by cell: gates of a cell share their compiled programs."""
    streams, seed = tuple(streams), seed_of(seed)
    for cell in cells:
        for stream in streams:
            for date in stream_dates(stream, cell, dates):
                for which in range(1, len(stream.names)):
                    yield stream_gate(stream, cell, date, which, seed)


def stream_gate(stream: Stream, cell: StreamCell, date: int, which: int, seed: int = 0) -> StreamGate:
    """Draw a log that ends before `date`, ask the rules about policy number `which`, and look ahead."""
    name, lookahead = stream.names[which], cell.lookahead
    drawn = zlib.crc32(f"{stream.name} {name} {cell.episodes} {lookahead} {date} {seed}".encode())
    log = draw_log(stream, slice(date - cell.episodes, date), which, np.random.default_rng(drawn))
    safe, value = (stream.value(policy, date, lookahead) for policy in (0, which))
    forecast = evaluate(log, policy=CANDIDATE, lookahead=lookahead).forecast
    lower, upper = forecast.lower, forecast.upper
    default = gate(log, candidate=CANDIDATE, lookahead=lookahead)
    paper = gate(log, candidate=CANDIDATE, lookahead=lookahead, preset=Preset.PAPER)
    return StreamGate(
        stream=stream.name,
        candidate=name,
        episodes=cell.episodes,
        lookahead=lookahead,
        date=date,
        value=value,
        advantage=value - safe,
        lower=lower,
        upper=upper,
        score=float(interval_score(lower, upper, value, forecast.alpha)),
        default=default.deploys,
        paper=paper.deploys,
        naive=naive_deploys(log),
        reason=default.reason.name,
        paper_reason=paper.reason.name,
    )


def draw_log(stream: Stream, past: slice, which: int, rng: np.random.Generator) -> pl.DataFrame:
    """Actions of the safe policy in these rows, with both policies' probabilities and the rewards."""
    safe, candidate, rewards = stream.policies[0, past], stream.policies[which, past], stream.rewards[past]
    rows = np.arange(len(rewards))
    actions = (rng.random(len(rows))[:, None] > safe.cumsum(axis=1)[:, :-1]).sum(axis=1)
    return pl.DataFrame(
        {
            "episode": rows,
            "action": actions,
            "behavior_prob": safe[rows, actions],
            "new_prob": candidate[rows, actions],
            "reward": rewards[rows, actions],
        }
    )


def naive_deploys(log: pl.DataFrame) -> bool:
    """A one-sided paired z-test over the whole log, in the belief that the world stands still.

    From each reward, the mean of the earlier ones is taken, which leaves the difference unbiased and makes
    it less noisy.
    """
    ratios, rewards = (log["new_prob"] / log["behavior_prob"]).to_numpy(), log["reward"].to_numpy()
    differences = (ratios - 1) * (rewards - _earlier_means(rewards))
    error = differences.std(ddof=1) / np.sqrt(len(differences))
    return bool(differences.mean() > ndtri(1 - ALPHA) * error)


def _earlier_means(rewards: Floats) -> Floats:
    means = np.cumsum(rewards) / np.arange(1, len(rewards) + 1)
    return np.concatenate([[rewards[:WARM_UP].mean()], means[:-1]])
