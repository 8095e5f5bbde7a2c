"""Pictures: the bound that decides, arrows for what lies outside, nothing cut, colours for day and night."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from tidegate.arrays import Floats
from tidegate.reports.backtest_figure import draw_advantages
from tidegate.reports.calendar import Clock
from tidegate.reports.changes import what_would_change
from tidegate.reports.figures import (
    AXIS,
    BETTER,
    CANDIDATE,
    OBSERVED,
    draw_comparison,
    draw_figure,
)
from tidegate.reports.log_pictures import NARROW, WIDE, scale_picture
from tidegate.reports.page import inline_svg, save_svg
from tidegate.reports.palette import COLORS, LIGHT, palette_css, themed
from tidegate.reports.scale_figure import draw_scales, scale_rows

CLOCK = Clock()


def _family(kind: str, memory: float, weight: float, point: float, lower: float) -> dict[str, Any]:
    return {
        "kind": kind, "memory": memory, "weight": weight, "point": point, "lower": lower,
        "standard_error": 0.2, "p_value": 0.1,
    }  # fmt: skip


def _advantage(lower: float) -> dict[str, Any]:
    """One standard error is 0.21: a bar of ± 0.21 about 0.26 is right of zero, whatever the bound."""
    models = [
        _family("line", 90, 0.6, 0.3, 0.1),
        _family("level", 90, 0.2, 0.1, -0.8),
        _family("rough", 45, 0.15, -0.1, -0.2),
        _family("break", 10, 0.04, -9.0, -12.0),
        _family("smooth", 20, 0.004, 0.3, 0.2),
    ]
    return {
        "point": 0.26, "lower": lower, "upper": 0.6, "standard_error": 0.21, "p_value": 0.146, "level": 0.05,
        "margin": 0.0, "models": models, "season": None, "past": None,
    }  # fmt: skip


def _axis(draw: Callable[[Axes], Axes], width: float = WIDE) -> Axes:
    return draw_figure(width, 4.0, draw).axes[0]


def _xs(line: Line2D) -> list[float]:
    return [float(x) for x in np.asarray(line.get_xdata(), float)]


def _ys(line: Line2D) -> list[float]:
    return [float(y) for y in np.asarray(line.get_ydata(), float)]


def _bars(axis: Axes, row: int) -> list[tuple[list[float], str, float]]:
    """The horizontal bars of a row: their ends, their colour and their thickness."""
    return [
        (_xs(line), to_hex(line.get_color()), line.get_linewidth())
        for line in axis.lines
        if _ys(line) == [row, row]
    ]


def _markers(axis: Axes, marker: str) -> list[tuple[float, float]]:
    lines = [line for line in axis.lines if line.get_marker() == marker]
    return [place for line in lines for place in zip(_xs(line), _ys(line), strict=True)]


@pytest.mark.parametrize(("lower", "color"), [(-0.11, CANDIDATE), (0.07, BETTER)])
def test_the_first_bar_reaches_from_the_forecast_to_the_bound_that_decides(lower: float, color: str) -> None:
    axis = _axis(lambda axis: draw_scales(axis, _advantage(lower), CLOCK.span))
    ((ends, found, thickness),) = _bars(axis, 0)
    assert (ends, found, thickness) == ([0.26, lower], color, 5.0)
    assert (min(ends) > 0) == (lower > 0)


def test_families_are_quiet_the_weightiest_first_and_the_lightest_left_out() -> None:
    """What a family says decides nothing: its colour says neither yes nor no."""
    axis = _axis(lambda axis: draw_scales(axis, _advantage(0.07), CLOCK.span))
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert labels == [
        "all models together", "a line that goes on", "a level that stands still",
        "wandering, forgotten after 45 episodes", "another level until 10 episodes ago",
    ]  # fmt: skip
    bars = [line for line in axis.lines if len(_ys(line)) == 2 and _ys(line)[0] == _ys(line)[1] > 0]
    assert {to_hex(line.get_color()) for line in bars} == {OBSERVED}
    shades = [line.get_alpha() for line in bars if line.get_linewidth() == 2.5]
    assert shades == sorted(shades, key=lambda one: -(one or 0.0))
    assert len(set(shades)) == 4
    weights = [text.get_text() for text in axis.texts][1:]
    assert weights == ["weight 60%", "weight 20%", "weight 15%", "weight 4%"]


def test_one_family_alone_is_not_shown_twice() -> None:
    alone = {**_advantage(0.07), "models": [_family("trend", 90, 1.0, 0.26, 0.07)]}
    assert [row.label for row in scale_rows(alone, CLOCK.span)] == ["all models together"]


def test_what_lies_outside_gets_an_arrow_at_the_edge() -> None:
    axis = _axis(lambda axis: draw_scales(axis, _advantage(0.07), CLOCK.span))
    low, high = axis.get_xlim()
    assert low < 0 < 0.26 < high < 0.8  # what decides fills the picture
    assert (low, 4) in _markers(axis, "<")  # a forecast of −9
    assert (low, 2) in _markers(axis, "<")  # a bound of −0.8
    assert not [place for place in _markers(axis, "<") + _markers(axis, ">") if place[1] in (0, 1)]


def test_a_picture_says_in_words_what_it_shows() -> None:
    shown = scale_picture(_advantage(-0.11), CLOCK)
    for svg in (shown.wide, shown.narrow):
        assert svg.startswith("<svg ")
        label = re.search(r'role="img" aria-label="([^"]*)"', svg)
        assert label is not None
        assert "at level 0.05. All models together: +0.26, at least -0.11." in label[1]
        assert "A line that goes on (weight 60%): +0.3, at least +0.1." in label[1]
        assert "Another level until 10 episodes ago (weight 4%): -9, at least -12." in label[1]


def _forecast(returns: Floats, lower: float, upper: float) -> dict[str, Any]:
    values = returns
    bins = np.array_split(np.arange(values.size), 20)
    past = [
        {
            "from": float(b[0] + 1),
            "to": float(b[-1] + 1),
            "mean": float(values[b].mean()),
            "standard_error": 0.1,
        }
        for b in bins
    ]
    return {
        "point": float(values.mean()), "lower": lower, "upper": upper, "alpha": 0.05, "past": past,
        "points": {"episode": list(np.arange(1.0, values.size + 1)), "estimated_return": list(values)},
        "curve": {"episode": [1.0, values.size + 5.0], "fitted": [float(values.mean())] * 2},
        "forecast_episodes": [values.size + 1.0, values.size + 10.0],
    }  # fmt: skip


def test_rare_rewards_do_not_flatten_the_picture() -> None:
    rng = np.random.default_rng(0)
    sold = rng.uniform(size=400) < 0.05
    returns = np.where(sold, 100.0, 0.0)  # a mean of about 5, and every twentieth twenty times as large
    policies = _forecast(returns, 3.0, 7.0), _forecast(returns, -1e6, 7.0)
    axis = _axis(lambda axis: draw_comparison(axis, *policies, CLOCK))
    low, high = axis.get_ylim()
    means = [one["mean"] for one in policies[0]["past"]]
    assert low < 0 <= min(means) <= max(means) < high < 60
    outside = _markers(axis, "^")
    assert len(outside) == 2 * int(sold.sum())
    assert {y for _, y in outside} == {high}
    assert {x for x, _ in outside} == set(np.flatnonzero(sold) + 1.0)
    assert [y for _, y in _markers(axis, "v")] == [low]  # the interval that goes on below


def test_a_backtest_shows_the_difference_about_zero_with_its_verdicts() -> None:
    past = {
        "dates": [10.0, 20.0, 30.0], "advantage": [0.5, 0.1, None], "advantage_lower": [0.2, -50.0, None],
        "difference": [0.4, -0.3, 0.1], "difference_noise": [0.1, 0.1, 0.1],
        "verdicts": ["DEPLOY", "KEEP", "KEEP"],
    }  # fmt: skip
    axis = _axis(lambda axis: draw_advantages(axis, past, CLOCK))
    low, high = axis.get_ylim()
    assert low < 0 < high < 2
    zero = [line for line in axis.lines if _ys(line) == [0, 0]]
    assert to_hex(zero[0].get_color()) == AXIS
    diamonds = {to_hex(line.get_color()): _ys(line) for line in axis.lines if line.get_marker() == "D"}
    assert diamonds[BETTER] == [0.5]
    assert diamonds[OBSERVED][0] == 0.1
    assert [y for _, y in _markers(axis, "X")] == [-0.3]
    assert [y for _, y in _markers(axis, "v")] == [low]  # the bound of −50


def _cut(figure: Figure) -> list[str]:
    """The texts that leave the figure, as wide as its own font makes them."""
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    width, height = canvas.get_width_height()
    hidden = {id(text) for axis in figure.axes for text in _out_of_view(axis)}
    return [
        text.get_text()
        for text in figure.findobj(Text)
        if text.get_text() and id(text) not in hidden and _leaves(text, canvas, width, height)
    ]


def _out_of_view(axis: Axes) -> list[Text]:
    """Labels of ticks beyond the ends of an axis, which nobody draws."""
    sides = ((axis.xaxis, sorted(axis.get_xlim())), (axis.yaxis, sorted(axis.get_ylim())))
    return [
        text
        for side, (low, high) in sides
        for tick in side.get_major_ticks()
        if not low <= tick.get_loc() <= high
        for text in (tick.label1, tick.label2)
    ]


def _leaves(text: Text, canvas: Any, width: float, height: float) -> bool:
    box = text.get_window_extent(canvas.get_renderer())
    return bool(box.x0 < -1 or box.y0 < -1 or box.x1 > width + 1 or box.y1 > height + 1)


@pytest.mark.parametrize(("width", "columns"), [(WIDE, 3), (NARROW, 1)])
def test_no_text_leaves_its_picture(width: float, columns: int) -> None:
    returns = np.linspace(-1e-3, 1e-3, 60)
    one, other = _forecast(returns, -1.0, 1.0), _forecast(1e5 * returns, -1e4, 1e4)
    for draw in (
        lambda axis: draw_scales(axis, _advantage(-0.11), CLOCK.span, legend_columns=columns),
        lambda axis: draw_comparison(axis, one, other, CLOCK, legend_columns=columns),
    ):
        assert _cut(draw_figure(width, 4.0, draw)) == []


def test_colours_are_named_and_known_by_day_and_by_night() -> None:
    assert len(set(LIGHT.values())) == len(COLORS)
    painted = "; ".join(f"fill: {light}" for light in LIGHT.values())
    assert re.findall(r"fill: var\(--([a-z-]+), (#\w+)\)", themed(painted)) == list(LIGHT.items())
    other = '<text style="stroke: #123456">#c2410c and fill</text>'
    assert themed(other) == other
    day, night = palette_css().split("@media (prefers-color-scheme: dark)")
    for name, (light, dark) in COLORS.items():
        assert f"--{name}: {light};" in day
        assert f"--{name}: {dark};" in night


def _brightness(color: str) -> float:
    """Relative luminance (WCAG 2.2)."""
    channels = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("name", ["ink", "axis", "quiet", "candidate", "safe", "better", "worse", "alert"])
def test_what_is_read_stands_out_from_its_ground(name: str, which: int) -> None:
    """At least 4.5 to 1, as WCAG 2.2 asks of text."""
    for ground in ("ground", "panel"):
        pair = sorted(_brightness(COLORS[one][which]) for one in (name, ground))
        assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5, ground


def test_a_picture_as_a_file_brings_its_colours(tmp_path: Any) -> None:
    path = tmp_path / "one.svg"
    figure = draw_figure(4, 3, lambda axis: axis)
    figure.axes[0].axhline(1, color=BETTER)
    save_svg(figure, path, "A <line> & more")
    text = path.read_text()
    assert text.startswith("<svg ")
    assert 'aria-label="A &lt;line&gt; &amp; more"' in text
    assert "prefers-color-scheme: dark" in text
    assert f"stroke: var(--better, {BETTER})" in text
    assert "#ffffff" not in re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)  # no ground of its own
    inside = inline_svg(draw_figure(4, 3, lambda axis: axis), "Empty")
    assert not re.search(r'<svg [^>]*(width|height)="', inside)
    assert "font-family" not in inside


def _record(**changes: Any) -> dict[str, Any]:
    content: dict[str, Any] = {
        "verdict": "KEEP", "reason": "NOT_BETTER", "status": "inconclusive", "advantage": _advantage(-0.11),
        "guardrails": None, "range": None, "outlook": {"sentence": "About 300 more episodes."},
        "provenance": {"columns": {}, "time_unit": "day"},
    }  # fmt: skip
    return {**content, **changes}


def test_what_would_change_a_verdict() -> None:
    first, second = what_would_change(_record())
    assert first.startswith("0.11 more per episode from the candidate would open the gate")
    assert second == "About 300 more episodes."
    opened = what_would_change(_record(verdict="DEPLOY", reason="BETTER", advantage=_advantage(0.07)))
    assert opened[0].startswith("It holds unless the advantage falls by more than 0.07 per episode below")
    harmful = {**_advantage(-0.9), "upper": -0.2}
    (only,) = what_would_change(_record(advantage=harmful, status="fail"))
    assert "upper bound of the advantage, -0.2, is below zero" in only
    assert what_would_change(_record(reason="SCALES_DISAGREE")) == [first, second]
    rails = {"outcomes": [{"outcome": "calls", "holds": False, "margin": 0.02, "bound": 0.05}]}
    assert what_would_change(_record(guardrails=rails))[0] == (
        "The guardrail ‘calls’ would have to hold: its worst change is +0.05, and its margin is 0.02."
    )
    unknown = {**_advantage(0.0), "lower": None, "upper": None}
    assert what_would_change(_record(advantage=unknown)) == ["About 300 more episodes."]
    (spent,) = [what_would_change(_record(reason="BUDGET_SPENT"))]
    assert spent == []
