"""A sweep is data: which world, which algorithm, which fields are fixed and which are drawn.

`Sweep` is the whole definition of an experiment, in Python or as a TOML file. Runs with the same values
of the fields that fix array shapes share one compiled program.
"""

import dataclasses
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ..arrays import Values
from ..errors import SettingsError
from ..inputs import names, number, require_fields, whole
from ..inputs import path as file_path
from ..logs.functions import imported

Columns: TypeAlias = dict[str, Values]  # one entry per run in each


@dataclasses.dataclass(frozen=True)
class Uniform:
    """Evenly between two numbers."""

    low: float
    high: float

    def __post_init__(self) -> None:
        number("the upper end", self.high, number("the lower end", self.low))

    def draw(self, rng: np.random.Generator, count: int) -> Values:
        return rng.uniform(self.low, self.high, count)


@dataclasses.dataclass(frozen=True)
class LogUniform:
    """Evenly in the logarithm."""

    low: float
    high: float

    def __post_init__(self) -> None:
        number("the upper end", self.high, number("the lower end", self.low, above=0))

    def draw(self, rng: np.random.Generator, count: int) -> Values:
        return np.exp(rng.uniform(np.log(self.low), np.log(self.high), count))


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of a few values, with equal odds."""

    values: tuple[Any, ...]

    def draw(self, rng: np.random.Generator, count: int) -> Values:
        return np.asarray(self.values)[rng.integers(0, len(self.values), count)]


Distribution = Uniform | LogUniform | Choice
_KINDS: dict[str, Callable[[list[Any]], Distribution]] = {
    "uniform": lambda v: Uniform(*v),
    "loguniform": lambda v: LogUniform(*v),
    "choice": lambda v: Choice(tuple(v)),
}


@dataclasses.dataclass(frozen=True)
class Sweep:
    """An experiment.

    `world` and `algorithm` name callables as `module:name`, of the current folder too. The world is built
    from `world_fixed` and the fields of a cell, the algorithm's `SpinSettings` from the `fixed` and the
    `drawn` fields. Drawn fields named in `shapes` become Python values, one compiled program for each; all
    others are traced numbers.

    `length` names a drawn field that makes a run long: runs of like length share a batch, so that none
    waits for the others. `jump` names a field of the cells, the time at which the world changes at once:
    then the rows say for how long a policy that the jump had made worse stayed in force.
    """

    name: str
    drawn: Mapping[str, Distribution]
    cells: Mapping[str, Mapping[str, float]]
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    world: str = "tidegate.simulators.recommender:Recommender"
    world_fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    algorithm: str = "tidegate.presets:paper_run"
    shapes: tuple[str, ...] = ("lookahead",)
    length: str | None = None
    jump: str | None = None
    num_episodes: int = 2_000
    warmup: int = 20

    def __post_init__(self) -> None:
        whole("num_episodes", self.num_episodes, 1)
        whole("warmup", self.warmup, 1)
        if not self.cells:
            raise SettingsError(f"sweep '{self.name}' has no cells", expected="at least one world")
        for name in self.shapes:
            if name in self.drawn and not isinstance(self.drawn[name], Choice):
                raise SettingsError(
                    f"'{name}' fixes array shapes but is drawn from a continuum",
                    expected="a choice of a few values",
                )
        if "lookahead" not in {*self.drawn, *self.fixed}:
            raise SettingsError(f"sweep '{self.name}' says nothing of the lookahead")
        if self.length is not None and self.length not in self.drawn:
            raise SettingsError(f"length is '{self.length}'", expected=f"one of {list(self.drawn)}")
        for cell, fields in self.cells.items():
            if self.jump is not None and self.jump not in fields:
                raise SettingsError(
                    f"jump is '{self.jump}'",
                    where=f"cell '{cell}'",
                    expected=f"one of {list(fields)}",
                )


def load_sweep(path: str | Path) -> Sweep:
    """Read a sweep from TOML; docs/explanation/experiments/sweeps.md shows one."""
    try:
        content = tomllib.loads(file_path("the sweep", path).read_text())
        require_fields("the sweep", Sweep, content)
        drawn = {name: _distribution(name, spec) for name, spec in content.pop("drawn", {}).items()}
        shapes = names("shapes", content.pop("shapes", ("lookahead",)))
        return Sweep(drawn=drawn, shapes=shapes, **content)
    except (OSError, TypeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"cannot read a sweep from {path}: {error}.") from error


def _distribution(name: str, spec: Mapping[str, list[Any]]) -> Distribution:
    if len(spec) != 1 or (kind := next(iter(spec))) not in _KINDS:
        raise SettingsError(f"'{name}' is drawn from {dict(spec)}", expected=f"one of {list(_KINDS)}")
    return _KINDS[kind](spec[kind])


def resolve(reference: str) -> Callable[..., Any]:
    """`module:name` -> the callable, from the current folder too."""
    found: Callable[..., Any] = imported(reference, SettingsError, "module:name, as in my_world:TwoArms")
    return found


@dataclasses.dataclass(frozen=True)
class Runs:
    """Every run of a sweep, one entry per run in each column, in an order that never changes."""

    cell: Values
    setting: Values
    trial: Values
    drawn: Columns

    def __len__(self) -> int:
        return len(self.cell)

    def take(self, rows: Values) -> "Runs":
        drawn = {name: values[rows] for name, values in self.drawn.items()}
        return Runs(self.cell[rows], self.setting[rows], self.trial[rows], drawn)


def list_runs(sweep: Sweep, *, settings: int, trials: int, seed: int) -> Runs:
    """All cells × settings × trials. A setting has the same fields in every cell and trial."""
    values = {
        name: distribution.draw(np.random.default_rng([seed, *name.encode()]), settings)
        for name, distribution in sweep.drawn.items()
    }
    cell, setting, trial = (grid.ravel() for grid in np.indices((len(sweep.cells), settings, trials)))
    return Runs(cell, setting, trial, {name: column[setting] for name, column in values.items()})
