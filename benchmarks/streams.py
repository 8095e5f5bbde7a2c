"""How often do gates err in real streams, and what do they let pass?

    python benchmarks/streams.py build --archives FOLDER --out out/streams
    python benchmarks/streams.py run out/streams/*.npz --dates 12 --out gates.csv

`build` makes streams of public data sets: the task is to name the class of each row, which earns 1. The
policies are softened classifiers, trained before the stream begins and left alone, as deployed models are.
`run` gates every policy but the first at many dates and prints two tables; the rows go to a file, if named.
Peer, in the same run: a paired z-test over the whole log, which is what most people do.
"""

import argparse
import csv
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from classifiers import Array, Scores, boosted, logistic, tree
from stream_sources import SOURCES, Labelled
from tidegate import TidegateError
from tidegate.experiments.stream_files import Stream, load_stream, save_stream
from tidegate.experiments.stream_tables import stream_tables
from tidegate.experiments.streams import DEFAULT_CELLS, StreamCell, StreamGate, stream_dates, stream_gates

SAFE, BOLD, SHY, OTHERS = 0.7, 0.85, 0.6, 0.75  # the probability of the class that a policy names
FEW = 2  # features of the policy that has few


def build_stream(name: str, data: Labelled) -> Stream:
    """Ten policies: a stale classifier, sharper and softer too; others, trained otherwise; two habits."""
    x, y, classes = data.features, data.classes, int(data.classes.max()) + 1
    half, start = data.start // 2, data.start
    early, late, whole = slice(0, half), slice(half, start), slice(0, start)
    last = slice(start - start // 6, start)

    def named(fit: Callable[[Array, Array, int], Scores], rows: slice, features: int | None = None) -> Array:
        best: Array = fit(x[rows, :features], y[rows], classes)(x[:, :features]).argmax(axis=1)
        return best

    stale = named(logistic, early)
    policies = {
        "safe": soft(stale, classes, SAFE),
        "bold": soft(stale, classes, BOLD),
        "shy": soft(stale, classes, SHY),
        "boosted": soft(named(boosted, early), classes),
        "fresh": soft(named(logistic, late), classes),
        "late_season": soft(named(logistic, last), classes),
        "tree": soft(named(tree, late), classes),
        "few_features": soft(named(logistic, whole, FEW), classes),
        "majority": soft(np.full(len(y), np.bincount(y[whole]).argmax()), classes),
        "persist": soft(np.concatenate([y[:1], y[:-1]]), classes),
    }
    return Stream(name, np.eye(classes)[y], np.stack(list(policies.values())), tuple(policies), start)


def soft(named: Array, classes: int, mass: float = OTHERS) -> Array:
    """Probabilities: `mass` for the named class, the rest shared by the others."""
    rest = (1 - mass) / (classes - 1)
    return rest + (mass - rest) * np.eye(classes)[named]


def build(options: argparse.Namespace) -> None:
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.streams:
        begin = time.perf_counter()
        data = SOURCES[name](options.archives)
        stream = build_stream(name, data)
        save_stream(options.out / f"{name}.npz", stream, data.season)
        rest = len(stream.rewards[stream.start :])
        values = [stream.value(policy, stream.start, rest) for policy in range(len(stream.names))]
        earned = ", ".join(f"{one} {value:.3f}" for one, value in zip(stream.names, values, strict=True))
        print(f"{name}: {rest:,} rows in {time.perf_counter() - begin:.1f} s; {earned}", flush=True)


def run(options: argparse.Namespace) -> None:
    streams, cells = list(map(load_stream, options.files)), list(map(StreamCell.parse, options.cells))
    total = sum(
        len(stream_dates(stream, cell, options.dates)) * (len(stream.names) - 1)
        for cell in cells
        for stream in streams
    )
    gates = stream_gates(streams, cells, dates=options.dates, seed=options.seed)
    rows = list(watched(gates, total))
    if not rows:
        raise SystemExit("No stream is long enough for any of these cells.")
    if options.out is not None:
        write_rows(options.out, rows)
    print(stream_tables(rows))


def watched(gates: Iterator[StreamGate], total: int) -> Iterator[StreamGate]:
    """The gates, with a line of progress and of time left whenever the cell or the stream changes."""
    begin, before = time.perf_counter(), ""
    for done, one in enumerate(gates, 1):
        here = f"{one.episodes}:{one.lookahead} {one.stream}"
        if here != before or done == total:
            spent = time.perf_counter() - begin
            left = spent / done * (total - done)
            print(f"{done:,} of {total:,} gates, {spent:.0f} s, some {left:.0f} s left: {here}", flush=True)
        before = here
        yield one


def write_rows(path: Path, rows: Sequence[StreamGate]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([field.name for field in dataclasses.fields(StreamGate)])
        writer.writerows(dataclasses.astuple(row) for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    builder = commands.add_parser("build", help="archives of packages -> streams")
    builder.add_argument("--archives", type=Path, required=True)
    builder.add_argument("--out", type=Path, default=Path("out/streams"))
    builder.add_argument("--streams", nargs="+", choices=list(SOURCES), default=list(SOURCES))
    builder.set_defaults(command=build)
    runner = commands.add_parser("run", help="streams -> gates -> tables")
    runner.add_argument("files", type=Path, nargs="+")
    runner.add_argument("--cells", nargs="+", default=list(map(str, DEFAULT_CELLS)))
    runner.add_argument("--dates", type=int, default=12)
    runner.add_argument("--seed", type=int, default=0)
    runner.add_argument("--out", type=Path)
    runner.set_defaults(command=run)
    options = parser.parse_args()
    try:
        options.command(options)
    except TidegateError as error:
        raise SystemExit(f"Error: {error}") from error


if __name__ == "__main__":
    main()
