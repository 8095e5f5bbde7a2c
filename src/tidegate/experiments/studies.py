"""The paper's studies as sweeps: Table 1 is six of them, Figure 4 two."""

from collections.abc import Iterable

from ..simulators.recommender import speed_frequency
from .sweep import Choice, Distribution, LogUniform, Sweep, Uniform

DRAWN: dict[str, Distribution] = {
    "lookahead": Choice((2, 4, 6, 8)),
    "order": Choice((1, 2, 3, 4)),
    "steps_per_episode": Uniform(2.0, 5.0),
    "entropy_weight": LogUniform(5e-5, 1.0),
}


def table1(speeds: Iterable[int] = range(4)) -> list[Sweep]:
    """The ablation, in the rows' order."""
    cells = {str(speed): {"frequency": speed_frequency(speed)} for speed in speeds}

    def spin(name: str, **fixed: object) -> Sweep:
        return Sweep(name, DRAWN, cells, fixed)

    return [
        spin("SPIN 75-25", train_fraction=0.75),
        spin("SPIN 25-75", train_fraction=0.25),
        spin("SPIN 50-50", train_fraction=0.5),
        spin("SPIN-mean", train_fraction=0.5, objective="MEAN"),
        spin("No safety", train_fraction=1.0, test_candidates=False),
        Sweep(
            "Stationary",
            {name: one for name, one in DRAWN.items() if name != "order"},
            cells,
            algorithm="tidegate.presets:stationary_run",
        ),
    ]


def figure4(speeds: Iterable[int] = range(4)) -> list[Sweep]:
    """SPIN and the baseline."""
    return [sweep for sweep in table1(speeds) if sweep.name in ("SPIN 50-50", "Stationary")]
