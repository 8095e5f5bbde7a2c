"""Returns of recorded policies from Parquet files of any size, a chunk of rows at a time.

Only whole episodes are computed: the rows of the last, perhaps unfinished episode of a chunk are
carried over to the next. Within a chunk, episodes of one length form a matrix, and each of its rows
is summed on its own. So the results are the same, to the bit, whatever the size of the chunks.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..arrays import Floats, Values
from ..errors import LogError, SettingsError
from ..inputs import number, whole
from .chunks import Rows, whole_episodes
from .columns import Columns, TimeUnit, columns_of
from .memory import memory_limit as resolve_limit
from .parts import missing_propensities
from .sources import Source
from .specs import PolicySpec, SpecKind, parse_spec
from .timeline import TimeMeaning, axis_numbers

EPISODE_BYTES = 500  # of all arrays with one number per episode, up to the forecast
CHUNK_ROWS = 500_000  # measured best of 100,000 to 2,000,000 on two cores


@dataclasses.dataclass(frozen=True, eq=False)
class StreamedPolicy:
    """One recorded policy over the episodes of a log: the arrays of `tidegate.returns`.

    `returns` are `pdis_returns`, `ratios` are `episode_ratios`, `stopped_ratios` are what the support
    check of the safety test averages.
    """

    spec: PolicySpec
    returns: Floats
    ratios: Floats
    stopped_ratios: Floats


@dataclasses.dataclass(frozen=True, eq=False)
class StreamedReturns:
    """Per-episode arrays, in the order of time, of a log that was never in memory as a whole."""

    episode_numbers: Floats
    lengths: npt.NDArray[np.int32]
    policies: tuple[StreamedPolicy, ...]
    discount: float
    time: TimeMeaning

    @property
    def num_episodes(self) -> int:
        return int(self.lengths.size)

    @property
    def num_steps(self) -> int:
        return int(self.lengths.sum(dtype=np.int64))


def stream_returns(
    source: Source,
    policies: Sequence[str | PolicySpec],
    columns: Columns | Mapping[str, Any] | None = None,
    *,
    discount: float = 1.0,
    chunk_rows: int = CHUNK_ROWS,
    memory_limit: int | str | None = None,
) -> StreamedReturns:
    """Per-episode returns of the policies `behavior`, `column:NAME` and `ratio:NAME`, from Parquet.

    The rows of an episode must be next to each other, in the order of their steps; without a time
    column, episodes must be in the order of their numbers. The actions are not read: only the policies'
    probabilities of them matter. Forecast the result with `tidegate.forecast.forecast_returns`.
    `memory_limit` is that of `read_log`: it bounds the longest episode and the number of episodes.
    """
    columns = columns_of(columns)
    discount, chunk_rows = number("discount", discount, 0, 1), whole("chunk_rows", chunk_rows, 1)
    listed = [policies] if isinstance(policies, str) else policies
    specs = tuple(one if isinstance(one, PolicySpec) else parse_spec(one) for one in listed)
    _check_settings(columns, specs)
    limit, blocks, episodes = resolve_limit(memory_limit), [], 0
    for rows in whole_episodes(source, columns, specs, chunk_rows, limit):
        blocks.append(_block(rows, discount))
        episodes += rows.starts.size
        limit.require(episodes * EPISODE_BYTES, f"a log of more than {episodes:,} episodes")
    ids, times, lengths, sums = (np.concatenate(pieces, axis=-1) for pieces in zip(*blocks, strict=True))
    order, numbers, meaning = _timeline(ids, times, columns)
    lengths, sums = lengths[order], sums[:, :, order]
    return StreamedReturns(
        episode_numbers=numbers,
        lengths=lengths,
        policies=tuple(
            StreamedPolicy(spec, one[0], one[1], _stopped(one[1], one[2], lengths, discount))
            for spec, one in zip(specs, sums, strict=True)
        ),
        discount=discount,
        time=meaning,
    )


def _check_settings(columns: Columns, specs: tuple[PolicySpec, ...]) -> None:
    if not specs:
        raise SettingsError("no policy was named.", expected="at least one, as in 'behavior'")
    for spec in specs:
        if spec.kind in (SpecKind.POLICY, SpecKind.PYTHON):
            raise SettingsError(
                f"'{spec}' cannot be streamed.",
                expected="behavior, column:NAME or ratio:NAME",
                remedy="Write the policy's probabilities of the logged actions into a column.",
            )
        if spec.kind is SpecKind.COLUMN and columns.behavior_prob is None:
            raise missing_propensities(f"'{spec}' needs propensities, and no column is named.")


def _block(rows: Rows, discount: float) -> tuple[Values, Floats, Values, Floats]:
    """First id, earliest time and length of each episode, and its sums: (policies, 3, episodes)."""
    starts = rows.starts
    lengths = np.diff(np.append(starts, rows.ids.size))
    sums = np.empty((len(rows.log_ratios), 3, starts.size))
    for length in np.unique(lengths):
        chosen = np.flatnonzero(lengths == length)
        steps = starts[chosen][:, None] + np.arange(length)
        rewards, discounts = rows.rewards.take(steps), _log_discounts(int(length), discount)
        for policy, log_ratios in enumerate(rows.log_ratios):
            sums[policy][:, chosen] = _episode_sums(log_ratios.take(steps), rewards, discounts)
    times = np.minimum.reduceat(rows.times, starts)
    return rows.ids[starts], times, lengths.astype(np.int32), sums


def _episode_sums(log_ratios: Floats, rewards: Floats, log_discounts: Floats) -> list[Floats]:
    """Σ_t γᵗ rₜ Π_{l≤t} π/β, then Π_t π/β, then Σ_t γᵗ Π_{l≤t} π/β; all in log space until the end."""
    with np.errstate(over="ignore", invalid="ignore"):
        running = np.cumsum(log_ratios, axis=1)
        weights = np.exp(running + log_discounts)
        returns = np.sum(weights * rewards, axis=1)
        return [returns, np.exp(running[:, -1]), np.sum(weights, axis=1)]


def _log_discounts(length: int, discount: float) -> Floats:
    steps = np.arange(length)
    with np.errstate(divide="ignore", invalid="ignore"):
        # At step 0 the factor is 1 even for γ = 0, where log γ = −∞.
        return np.asarray(np.where(steps == 0, 0.0, steps * np.log(discount)))


def _stopped(ratios: Floats, partial: Floats, lengths: Values, discount: float) -> Floats:
    """The sums run to the end of the longest episode; a ratio stays as it is after its episode's end."""
    totals = np.cumsum(np.exp(_log_discounts(int(lengths.max()), discount)))
    rest = totals[-1] - totals[lengths - 1]
    with np.errstate(invalid="ignore"):
        return np.asarray((partial + np.where(rest > 0, ratios * rest, 0.0)) / totals[-1])


def _timeline(ids: Values, times: Floats, columns: Columns) -> tuple[Values | slice, Floats, TimeMeaning]:
    if columns.time is None:
        return slice(None), ids.astype(np.float64), TimeMeaning(TimeUnit.EPISODE, None)
    if np.unique(ids).size < ids.size:
        raise LogError(
            f"the rows of an episode (column '{columns.episode}') are not next to each other.",
            expected="all rows of an episode next to each other",
            remedy="Sort the file by episode and step, or read it whole (`stream=False`).",
        )
    ordered = bool(np.all(times[1:] >= times[:-1]))
    order = slice(None) if ordered else np.argsort(times, kind="stable")
    return order, *axis_numbers(times[order], columns)
