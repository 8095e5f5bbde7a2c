"""Pictures of a patient: a day of glucose, and which treatment is best as the patient drifts."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from .figures import AXIS, BETTER, CANDIDATE, SAFE, legend_above
from .palette import LIGHT

if TYPE_CHECKING:
    from ..arrays import Floats
    from ..simulators.diabetes import DayRecord

TARGET = (70.0, 180.0)  # mg/dL: the range a treatment aims at
TREATMENT_COLORS = tuple(LIGHT[name] for name in ("safe", "cyan", "better", "olive", "candidate"))


def draw_glucose_days(axis: Axes, days: "dict[str, DayRecord]", *, legend_columns: int = 3) -> Axes:
    """One day under each treatment, with the same meals; triangles are meals, stems are boluses."""
    first = next(iter(days.values()))
    hours = np.arange(1, np.size(first.glucose) + 1) * 24 / np.size(first.glucose)
    axis.axhspan(*TARGET, color=BETTER, alpha=0.1, lw=0, label="70 to 180 mg/dL")
    for (name, day), color in zip(days.items(), (SAFE, CANDIDATE), strict=True):
        axis.plot(hours, np.asarray(day.glucose), color=color, lw=1.8, label=name)
    top = max(float(np.max(np.asarray(day.glucose))) for day in days.values())
    axis.set_ylim(0, 1.25 * max(top, TARGET[1]))
    _mark_meals(axis, first, hours, apart=1.0 if legend_columns > 1 else 2.5)
    _mark_boluses(axis, days, hours)
    axis.set_xlim(0, 24)
    axis.set_xticks(range(0, 25, 3 if legend_columns > 1 else 6))
    axis.set_xlabel("hour of the day")
    axis.set_ylabel("blood glucose, mg/dL")
    legend_above(axis, ncols=4 if legend_columns > 1 else 2)
    return axis


def _mark_meals(axis: Axes, day: "DayRecord", hours: "Floats", apart: float) -> None:
    """A triangle for each meal, and its weight if that does not cover the one before."""
    grams = np.asarray(day.meals)
    eaten = grams > 0
    top = axis.get_ylim()[1]
    axis.plot(hours[eaten], np.full(eaten.sum(), 0.97 * top), "v", color=AXIS, ms=6, label="meal")
    weighed = -apart
    for hour, gram in zip(hours[eaten], grams[eaten], strict=True):
        if hour - weighed < apart:
            continue
        weighed = hour
        axis.annotate(f"{gram:.0f} g", (hour, 0.94 * top), ha="center", va="top", fontsize=8, color=AXIS)


def _mark_boluses(axis: Axes, days: "dict[str, DayRecord]", hours: "Floats") -> None:
    units = axis.twinx()
    units.set_ylabel("bolus, U")
    highest = 1e-9
    for day, color, shift in zip(days.values(), (SAFE, CANDIDATE), (-0.06, 0.06), strict=True):
        bolus = np.asarray(day.boluses)
        given = bolus > 0
        units.vlines(hours[given] + shift, 0, bolus[given], color=color, lw=2.5, alpha=0.7)
        highest = max(highest, float(bolus.max()))
    units.set_ylim(0, 4 * highest)
    units.spines["right"].set_visible(True)


def draw_best_treatment(
    axis: Axes,
    episodes: "Floats",
    worth: "np.ndarray[tuple[int, int], np.dtype[np.float64]]",
    treatments: "np.ndarray[tuple[int, int], np.dtype[np.float64]]",
    *,
    legend_columns: int = 3,
) -> Axes:
    """The true mean return of each treatment along the episodes; the strip below names the best."""
    best = worth.argmax(axis=1)
    low, high = float(worth.min()), float(worth.max())
    depth = 0.06 * (high - low)
    for action, (carb, correction) in enumerate(treatments):
        color = TREATMENT_COLORS[action % len(TREATMENT_COLORS)]
        axis.plot(
            episodes, worth[:, action], color=color, lw=1.6,
            label=f"CR {carb:g} g/U, CF {correction:g} mg/dL/U",
        )  # fmt: skip
        axis.fill_between(
            episodes, low - 2 * depth, low - depth, where=best == action, color=color, lw=0,
            step="mid",
        )  # fmt: skip
    axis.annotate("best", (episodes[0], low - 0.9 * depth), fontsize=8, va="bottom")
    axis.set_xlabel("episode (day)")
    axis.set_ylabel("true mean return")
    legend_above(axis, ncols=legend_columns)
    return axis
