"""What does each part of the default preset buy? One part is taken out at a time.

    python benchmarks/ablation.py out/streams/*.npz --dates 6 --logs 200

On real streams (built by `make streams`): wrong, of truly worse candidates, and passed, of those that are
better by more than two points; and on the shapes of `shapes.py` with 1,000 episodes and a lookahead of 200,
sizes .05 / .10: how often the gate opens. The streams' logs go through the gate's comparison in batches.
`--seasons 50` scores intervals in seasonal worlds instead (that many logs in each of eight cells): the mean
interval score of the list without a part, over that of the whole list.
"""

import argparse
import zlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import jax
import numpy as np
import numpy.typing as npt

from shapes import SHAPES, SIZES, draw
from tidegate import cells, models
from tidegate.comparison import Multiscale
from tidegate.experiments.many_gates import OneStepLogs, gate_many
from tidegate.experiments.stream_files import Stream, load_stream
from tidegate.experiments.streams import DEFAULT_CELLS, StreamCell, draw_log, stream_dates
from tidegate.experiments.world_coverage import WorldCell
from tidegate.forecast import ForecastSettings
from tidegate.models import TrendModels
from tidegate.presets import multiscale_forecast
from tidegate.simulators.drifting import DriftingBandit

LIKE = (1_000, 200)
# Parts of the list that a prior of 0 takes out; their probability goes to standing still, or to a line.
LISTS = {
    "the preset": TrendModels(),
    "no breaks": TrendModels(still=0.55, broken=0.0),
    "no smooth movement": TrendModels(still=0.55, smooth=0.0),
    "no rough movement": TrendModels(still=0.9),
    "nothing moves": TrendModels(still=1.0, broken=0.0, smooth=0.0),
    "no season": TrendModels(season=0.0),
    "always a line": TrendModels(level=0.0),
    "always a level": TrendModels(level=1.0),
}
# Constants of the code that switch a part off.
CONSTANTS = {
    "noise of the whole log": (cells, "SHARED", 1e9),
    "newest cell not halved": (cells, "HALVINGS", 0),
    "slopes not damped": (models, "BELIEVED", 1e6),
}
Rates = dict[str, float]


def stream_logs(
    stream: Stream, cell: StreamCell, dates: int
) -> Iterator[tuple[float, npt.NDArray[np.float64]]]:
    """The true advantage and the columns of every log of a cell, as the study of the streams draws them."""
    for date in stream_dates(stream, cell, dates):
        for which in range(1, len(stream.names)):
            name = f"{stream.name} {stream.names[which]} {cell.episodes} {cell.lookahead} {date} 0"
            past = slice(date - cell.episodes, date)
            log = draw_log(stream, past, which, np.random.default_rng(zlib.crc32(name.encode())))
            values = [stream.value(policy, date, cell.lookahead) for policy in (which, 0)]
            yield values[0] - values[1], log["reward", "behavior_prob", "new_prob"].to_numpy().T


def on_streams(streams: list[Stream], cells: list[StreamCell], dates: int, trend: TrendModels) -> Rates:
    """Wrong of worse, and passed of better."""
    found: list[tuple[float, bool]] = []
    for cell in cells:
        rows = [row for stream in streams for row in stream_logs(stream, cell, dates)]
        if rows:
            columns = np.stack([row[1] for row in rows], axis=1)
            opened = gate_many(
                OneStepLogs(*columns), cell.lookahead, _settings(cell.lookahead, trend)
            ).deploys
            found += [(row[0], bool(one)) for row, one in zip(rows, opened, strict=True)]
    advantage, opens = (np.array(one) for one in zip(*found, strict=True))
    return {"wrong": opens[advantage < 0].mean(), "passed": opens[advantage > 0.02].mean()}


def on_shapes(logs: int, seed: int, trend: TrendModels) -> list[str]:
    """How often the gate opens, by shape."""
    n, lookahead = LIKE
    cells = []
    for index, shape in enumerate(SHAPES.values()):
        rates = []
        for which, size in enumerate(SIZES):
            drawn = draw(shape, size, n, logs, np.random.default_rng([seed, n, lookahead, index, which]))
            rates.append(gate_many(drawn, lookahead, _settings(lookahead, trend)).deploys.mean())
        cells.append(" / ".join(f"{100 * rate:.0f}" for rate in rates))
    return cells


SEASONAL = [
    WorldCell(f"period {period}, noise {noise}", DriftingBandit.seasonal(period, noise), episodes, 10)
    for episodes in (500, 2_000)
    for period in (400.0, 1_000.0)
    for noise in (0.05, 0.5)
]


def on_seasons(logs: int, seed: int) -> None:
    """What a part of the list is worth to an interval, cell by cell, and in the geometric mean."""
    names, lists = zip(*LISTS.items(), strict=True)
    methods = tuple(partial(_with_list, one) for one in lists)
    print(f"| world | k | {' | '.join(names[1:])} |\n|{'---|' * (1 + len(names))}")
    ratios = []
    for cell in SEASONAL:
        scores = np.asarray(cell.judged(methods, jax.random.key(seed), logs).judged.scores).mean(axis=0)
        ratios.append(scores[1:] / scores[0])
        _print_ratios(cell.name, f"{cell.episodes:,}", ratios[-1])
    _print_ratios("geometric mean", "", np.exp(np.log(ratios).mean(axis=0)))


def _with_list(trend: TrendModels, lookahead: int, _: object) -> ForecastSettings:
    return _settings(lookahead, trend)


def _print_ratios(name: str, length: str, ratios: npt.NDArray[np.float64]) -> None:
    print(f"| {name} | {length} | {' | '.join(f'{one:.2f}' for one in ratios)} |", flush=True)


def _settings(lookahead: int, trend: TrendModels) -> ForecastSettings:
    return replace(multiscale_forecast(ForecastSettings(lookahead)), test=Multiscale(trend))


def variants() -> Iterator[tuple[str, TrendModels]]:
    yield from LISTS.items()
    for name, (module, constant, value) in CONSTANTS.items():
        before = getattr(module, constant)
        setattr(module, constant, value)
        jax.clear_caches()  # type: ignore[no-untyped-call]
        yield name, TrendModels()
        setattr(module, constant, before)
    jax.clear_caches()  # type: ignore[no-untyped-call]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("streams", nargs="*", help="files of `make streams`")
    parser.add_argument("--dates", type=int, default=6)
    parser.add_argument("--cells", nargs="+", default=list(map(str, DEFAULT_CELLS)))
    parser.add_argument("--logs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seasons", type=int, default=0, help="logs of each seasonal world")
    given = parser.parse_args()
    if given.seasons:
        on_seasons(given.seasons, given.seed)
        return
    streams = [load_stream(one) for one in given.streams]
    chosen = [StreamCell.parse(one) for one in given.cells]
    print(
        "| variant | wrong of worse % | passed of better % |",
        " | ".join(SHAPES),
        "|\n|" + "---|" * (3 + len(SHAPES)),
    )
    for name, trend in variants():
        rates = (
            on_streams(streams, chosen, given.dates, trend)
            if streams
            else {"wrong": np.nan, "passed": np.nan}
        )
        row = [
            f"{100 * rates['wrong']:.1f}",
            f"{100 * rates['passed']:.1f}",
            *on_shapes(given.logs, given.seed, trend),
        ]
        print(f"| {name} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
