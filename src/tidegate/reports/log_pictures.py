"""The pictures of a record, drawn from its plain values: one for a wide window and one for a phone."""

import dataclasses
from collections.abc import Callable

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes

from .figures import (
    CANDIDATE,
    SAFE,
    draw_backtest,
    draw_comparison,
    draw_evaluation,
    draw_figure,
    draw_scales,
    floats,
    legend_above,
)
from .log_words import Plain, axis_label, units
from .page import inline_svg

WIDE, NARROW, HEIGHT = 9.0, 3.6, 4.2  # inches; a narrow picture has its legend in fewer columns
ESTIMATES = {
    True: "by importance sampling around what a model of the rewards predicts (doubly robust: a wrong "
    "model adds noise, not bias)",
    False: "by importance sampling",
}
REACH = 3  # standard errors of the scales that must pass, which a picture shows


@dataclasses.dataclass(frozen=True)
class Picture:
    """One picture for a wide window and one for a phone."""

    wide: Markup
    narrow: Markup
    caption: str | Markup


def picture(
    title: str, caption: str, draw: Callable[[Axes, int], Axes], *, height: float = HEIGHT
) -> Picture:
    """Draw it twice; `draw` gets the number of columns that its legend may have."""
    wide = draw_figure(WIDE, height, lambda axis: draw(axis, 2))
    narrow = draw_figure(NARROW, height, lambda axis: draw(axis, 1))
    return Picture(inline_svg(wide, title), inline_svg(narrow, f"{title}, narrow"), caption)


def estimates(data: Plain) -> str:
    """How returns are estimated; a stream has no model of them."""
    return ESTIMATES[data["settings"]["doubly_robust"] and not data.get("streamed")]


def comparison_picture(data: Plain) -> Picture:
    """Both policies: estimated returns, trends and forecasts."""
    return picture(
        "Estimated returns, trends and forecasts of both policies",
        "Dots: what the candidate (orange) and the safe policy (blue) would have earned in single test "
        f"episodes, {estimates(data)}. Circles: means of consecutive episodes with their standard "
        "errors. Lines: fitted trends. Boxes at the right: forecasts with their intervals, drawn wide "
        f"enough to be seen. {data['settings']['rule']}",
        lambda axis, columns: draw_comparison(
            axis,
            data["candidate"],
            data["safe"],
            time_label=axis_label(data),
            legend_columns=columns,
        ),
    )


def evaluation_picture(data: Plain, forecast: Plain, stationary: Plain | None = None) -> Picture:
    """One policy: its estimated returns, trend and forecast, and the forecast if nothing changed."""
    still = ", and the forecast if nothing changed" if stationary else ""
    return picture(
        "Estimated returns, trend and forecast",
        f"Dots: what the policy would have earned in single episodes, {estimates(data)}. Circles: means of "
        "consecutive episodes with their standard errors. Line: the fitted trend. Boxes at the right: "
        f"the forecast with its interval{still}.",
        lambda axis, columns: draw_evaluation(
            axis,
            forecast,
            stationary,
            time_label=axis_label(data),
            legend_columns=columns,
        ),
    )


def scale_picture(data: Plain) -> Picture:
    """The advantage at each time scale, near the scales that must pass."""
    scales = data["advantage"]["scales"]
    count, ahead = len(scales), int(np.sum(floats(one["point"] for one in scales) > 0))
    return picture(
        f"Forecast advantage of the candidate at {count} time scales, of which {ahead} are above zero",
        "The forecast advantage at each time scale. Thick bars: one standard error of noise; thin bars: "
        "with the bias. Diamond: the leading scale. Filled circles must pass, open ones must not "
        "contradict, grey ones are not asked. Right of the vertical line the candidate is better. What "
        "lies far from the scales that must pass is cut off at the edge.",
        lambda axis, columns: _draw_scales(axis, data["advantage"], units(data), columns),
        height=1.8 + 0.3 * count,
    )


def _draw_scales(axis: Axes, advantage: Plain, units: str, columns: int) -> Axes:
    draw_scales(axis, advantage, units)
    asked = [one for one in advantage["scales"] if one["role"] in ("leads", "must pass")]
    points, errors = (floats(one[name] for one in asked) for name in ("point", "standard_error"))
    finite = [
        end for end in (0.0, *(points - REACH * errors), *(points + REACH * errors)) if np.isfinite(end)
    ]
    edge = 0.05 * (max(finite) - min(finite))
    if edge > 0:
        axis.set_xlim(min(finite) - edge, max(finite) + edge)
    legend_above(axis, ncols=4 if columns > 1 else 1, markerscale=1)
    return axis


def backtest_pictures(data: Plain) -> list[Picture]:
    """One for each policy; none without a backtest."""
    past = data.get("backtest")
    if not past or not past["dates"]:
        return []
    roles = {"candidate": ("candidate", CANDIDATE), "safe": ("safe policy", SAFE)}
    if past["candidate"] == past["safe"]:
        roles = {"safe": ("logged policy", SAFE)}
    return [_backtest_picture(data, role, *style) for role, style in roles.items()]


def _backtest_picture(data: Plain, role: str, name: str, color: str) -> Picture:
    return picture(
        f"Backtest of the {name}",
        f"The {name} at each past date: the forecast with its interval, and the mean return that was "
        "then measured. Green dots lie in the interval of what could be measured, red crosses "
        "outside. That interval is the wider one, since what came next is known only with noise. "
        "An interval that dwarfs the others is cut off at the edge.",
        lambda axis, columns: draw_backtest(
            axis,
            data["backtest"],
            role,
            color,
            time_label=axis_label(data),
            legend_columns=columns,
        ),
    )
