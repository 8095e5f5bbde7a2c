"""The paper's studies as sweeps: Table 1 is six of them, Figure 4 two, in either domain."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from jaxtyping import Array

from ..simulators.diabetes import DiscreteDiabetes
from ..simulators.recommender import speed_frequency
from .domains import Domain
from .sweep import Choice, Distribution, LogUniform, Sweep, Uniform

DRAWN: dict[str, Distribution] = {
    "lookahead": Choice((2, 4, 6, 8)),
    "order": Choice((1, 2, 3, 4)),
    "steps_per_episode": Uniform(2.0, 5.0),
}
LENGTH = "steps_per_episode"


@dataclasses.dataclass(frozen=True)
class _Setting:
    """What differs between the domains."""

    world: str
    cell: Callable[[int], Mapping[str, float]]
    entropy_weight: LogUniform


_SETTINGS = {
    Domain.RECOSYS: _Setting(
        "tidegate.simulators.recommender:Recommender",
        lambda speed: {"frequency": speed_frequency(speed)},
        LogUniform(5e-5, 1.0),
    ),
    Domain.DIABETES: _Setting(
        "tidegate.experiments.studies:diabetes_world",
        lambda speed: {"speed": float(speed)},
        LogUniform(1e-2, 1.0),
    ),
}


def table1(speeds: Iterable[int] = range(4), domain: Domain = Domain.RECOSYS) -> list[Sweep]:
    """The ablation, in the rows' order."""
    setting = _SETTINGS[domain]
    cells = {str(speed): setting.cell(speed) for speed in speeds}
    drawn = {**DRAWN, "entropy_weight": setting.entropy_weight}

    def spin(name: str, **fixed: object) -> Sweep:
        return Sweep(name, drawn, cells, fixed, setting.world, length=LENGTH)

    return [
        spin("SPIN 75-25", train_fraction=0.75),
        spin("SPIN 25-75", train_fraction=0.25),
        spin("SPIN 50-50", train_fraction=0.5),
        spin("SPIN-mean", train_fraction=0.5, objective="MEAN"),
        spin("No safety", train_fraction=1.0, test_candidates=False),
        Sweep(
            "Stationary",
            {name: one for name, one in drawn.items() if name != "order"},
            cells,
            world=setting.world,
            algorithm="tidegate.presets:stationary_run",
            length=LENGTH,
        ),
    ]


def figure4(speeds: Iterable[int] = range(4), domain: Domain = Domain.RECOSYS) -> list[Sweep]:
    """SPIN and the baseline."""
    return [sweep for sweep in table1(speeds, domain) if sweep.name in ("SPIN 50-50", "Stationary")]


def prepare(domain: str) -> None:
    """Simulate the truth about a patient's treatments once, before the programs that look it up."""
    if domain == Domain.DIABETES:
        diabetes_world(0.0)


def diabetes_world(speed: float | Array) -> DiscreteDiabetes:
    """The drifting patient, with the true worth of its treatments from the cache."""
    return DiscreteDiabetes.at_speed(speed).with_truth()
