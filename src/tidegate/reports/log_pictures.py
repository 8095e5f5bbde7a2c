"""The pictures of a record, drawn from its plain values: one for a wide window and one for a phone.

Each says in words, for those who cannot see it, what it shows.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes

from .backtest_figure import draw_advantages, draw_backtest
from .calendar import Clock
from .figures import CANDIDATE, SAFE, draw_comparison, draw_evaluation, draw_figure, floats
from .log_words import Plain
from .numbers import count, figure, signed
from .page import inline_svg
from .scale_figure import Row, draw_scales, scale_rows
from .watch_figure import draw_watch

WIDE, NARROW, HEIGHT = 9.0, 4.4, 4.0  # inches; a narrow picture has its legend in one column
ESTIMATES = {
    True: "by importance sampling around what a model of the rewards predicts (doubly robust: a wrong "
    "model adds noise, not bias)",
    False: "by importance sampling",
}
OUTSIDE = "Arrows at an edge: there is more outside."


@dataclasses.dataclass(frozen=True)
class Picture:
    """One picture for a wide window and one for a phone."""

    wide: Markup
    narrow: Markup
    caption: str | Markup


def picture(
    description: str, caption: str, draw: Callable[[Axes, int], Axes], *, height: float = HEIGHT
) -> Picture:
    """Draw it twice; `draw` gets the number of columns that its legend may have."""
    wide = draw_figure(WIDE, height, lambda axis: draw(axis, 3))
    narrow = draw_figure(NARROW, height, lambda axis: draw(axis, 1))
    return Picture(inline_svg(wide, description), inline_svg(narrow, description), caption)


def clock_of(data: Plain) -> Clock:
    """What the numbers on the time axis of a record mean."""
    return Clock.of(data["provenance"])


def estimates(data: Plain) -> str:
    """How returns are estimated."""
    return ESTIMATES[data["settings"]["doubly_robust"]]


def comparison_picture(data: Plain) -> Picture:
    """Both policies: estimated returns, trends and forecasts."""
    policies = {"candidate": data["candidate"], "safe policy": data["safe"]}
    told = "; ".join(f"{name} {_interval(one)}" for name, one in policies.items())
    return picture(
        f"Estimated returns, trends and forecasts of both policies. Forecast of the mean return: {told}.",
        "Dots: what the candidate (orange) and the safe policy (blue) would have earned in single test "
        f"episodes, {estimates(data)}. Circles: means of consecutive episodes with their standard "
        "errors. Lines: fitted trends. Bars at the right, after the end of the log: forecasts with their "
        f"intervals. {OUTSIDE}",
        lambda axis, columns: draw_comparison(
            axis, data["candidate"], data["safe"], clock_of(data), legend_columns=columns
        ),
    )


def evaluation_picture(data: Plain, forecast: Plain, stationary: Plain | None = None) -> Picture:
    """One policy: its estimated returns, trend and forecast, and the forecast if nothing changed."""
    still = ", and the forecast if nothing changed" if stationary else ""
    told = f"; if nothing changed, {_interval(stationary)}" if stationary else ""
    return picture(
        "Estimated returns, trend and forecast of the policy. Forecast of the mean return: "
        f"{_interval(forecast)}{told}.",
        f"Dots: what the policy would have earned in single episodes, {estimates(data)}. Circles: means of "
        "consecutive episodes with their standard errors. Line: the fitted trend. Bars at the right, after "
        f"the end of the log: the forecast with its interval{still}. {OUTSIDE}",
        lambda axis, columns: draw_evaluation(
            axis, forecast, stationary, clock_of(data), legend_columns=columns
        ),
    )


def _interval(forecast: Plain) -> str:
    point, lower, upper = (figure(forecast[name]) for name in ("point", "lower", "upper"))
    return f"{point}, between {lower} and {upper}"


def scale_picture(advantage: Plain, clock: Clock) -> Picture:
    """The bound that decides, and what each family of models would say."""
    rows = scale_rows(advantage, clock.span)
    line = "zero" if not advantage["margin"] else f"{figure(-advantage['margin'])}"
    return picture(
        f"The forecast advantage of the candidate with the bound that decides, at level "
        f"{figure(advantage['level'])}. {' '.join(map(_told, rows))}",
        "Marks: the forecast advantage. Bars: from there to the lower bound. The first bar, of all models "
        f"together, decides: it is green if all of it is right of the line at {line}, else orange. The "
        f"others are families of models, in order of weight. {OUTSIDE}",
        lambda axis, columns: draw_scales(axis, advantage, clock.span, legend_columns=columns),
        height=1.5 + 0.3 * len(rows),
    )


def _told(row: Row) -> str:
    """A row of the picture as a sentence."""
    weight = "" if row.decides else f" (weight {row.weight:.0%})"
    return f"{row.label.capitalize()}{weight}: {signed(row.point, 3)}, at least {signed(row.bound, 3)}."


def backtest_pictures(data: Plain) -> list[Picture]:
    """The difference, then each policy; none without a backtest."""
    past = data.get("backtest")
    if not past or not past["dates"]:
        return []
    if past["candidate"] == past["safe"]:
        return [_backtest_picture(data, "safe", "logged policy", SAFE)]
    return [
        _advantage_picture(data),
        _backtest_picture(data, "candidate", "candidate", CANDIDATE),
        _backtest_picture(data, "safe", "safe policy", SAFE),
    ]


def _advantage_picture(data: Plain) -> Picture:
    past = data["backtest"]
    opened, came = past["verdicts"].count("DEPLOY"), floats(past["difference"])
    better = int(np.sum(came > 0))
    return picture(
        f"Candidate minus safe policy at {count(len(past['dates']), 'past date')}: the gate opened at "
        f"{opened} of them; in the time that followed, the candidate did better after {better} of them.",
        "Candidate minus safe policy at each past date. Bars: from the forecast advantage (diamond) down to "
        "the bound that decides; green and filled where the gate would have opened. Beside it, what was "
        "measured in the time that followed, with its 95 % noise: a red cross where the candidate did "
        f"worse. {OUTSIDE}",
        lambda axis, columns: draw_advantages(axis, past, clock_of(data), legend_columns=columns),
    )


def _backtest_picture(data: Plain, role: str, name: str, color: str) -> Picture:
    held = data["backtest"]["coverage"][role]
    return picture(
        f"Backtest of the {name}: the interval held what came next at {held['count']} of {held['total']} "
        "dates.",
        f"The {name} at each past date: the forecast with its interval, and the mean return that was "
        "then measured. Green dots lie in the interval of what could be measured, red crosses "
        "outside. That interval is the wider one, since what came next is known only with noise. "
        f"{OUTSIDE}",
        lambda axis, columns: draw_backtest(
            axis, data["backtest"], role, color, clock_of(data), legend_columns=columns
        ),
    )


def watch_pictures(data: Plain) -> list[Picture]:
    """The mean advantage since the release with its bounds: of the reward, then of each guardrail."""
    pairs = zip(data["curves"], data["signal"]["sequences"], strict=True)
    return [_watch_picture(data, curve, sequence) for curve, sequence in pairs if curve["episode"]]


def _watch_picture(data: Plain, curve: Plain, sequence: Plain) -> Picture:
    harm = data["signal"]["harm"]
    own = harm if harm and harm["sequence"] == curve["name"] else None
    ended = f" Rolled back at {clock_of(data).at(own['episode'])}." if own else ""
    between = f"between {signed(sequence['lower'])} and {signed(sequence['upper'])}"
    return picture(
        f"Mean advantage of the new policy in '{curve['name']}' since its release: "
        f"{signed(sequence['mean'])}, {between}, after {count(data['signal']['num_episodes'], 'episode')}."
        f"{ended}",
        "Line: the mean advantage of all episodes since the release. Band: its bounds, which hold at every "
        "time at once. Harm is shown where all of the band is below the line across, and from there on the "
        "safe policy runs; what the log holds of later episodes is drawn all the same.",
        lambda axis, columns: draw_watch(
            axis, curve, sequence["margin"], own, clock_of(data), legend_columns=columns
        ),
    )
