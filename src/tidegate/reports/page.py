"""One self-contained HTML page: styles and pictures inside, no network."""

import io
import json
import re
from pathlib import Path
from typing import Any

import jinja2
import matplotlib.pyplot as plt
from markupsafe import Markup
from matplotlib.figure import Figure

from ..experiments.demo import Demo, patient_days, true_advantage
from ..experiments.domains import Domain
from ..records import Advantage
from ..simulators.diabetes import TREATMENTS
from .diabetes import draw_best_treatment, draw_glucose_days
from .figures import STYLE, draw_decisions, draw_figure, draw_learning_curves, draw_showcase
from .scales import draw_scales

_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def inline_svg(figure: Figure, title: str) -> Markup:
    """The figure as an SVG element that scales with the page, with a title for screen readers."""
    buffer = io.StringIO()
    with plt.rc_context({**STYLE, "svg.hashsalt": title}):
        figure.savefig(buffer, format="svg", dpi=150, metadata={"Date": None})
    plt.close(figure)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'<svg ([^>]*?)width="[^"]*" ?', r"<svg \1", svg, count=1)
    svg = re.sub(r'<svg ([^>]*?)height="[^"]*" ?', r"<svg \1", svg, count=1)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    return Markup(svg.replace(">", f' role="img" aria-label="{Markup.escape(title)}">', 1))


def save_svg(figure: Figure, path: Path, title: str) -> None:
    """The figure as a file of its own."""
    path.write_text(inline_svg(figure, title), encoding="utf-8")


def _patient_pictures(demo: Demo) -> dict[str, Any]:
    """A day under the likeliest treatment of either policy, and the treatments along time."""
    days = patient_days(demo)
    glucose = draw_figure(9, 4.0, lambda axis: draw_glucose_days(axis, days))
    drift = draw_figure(
        *(9, 3.8),
        lambda axis: draw_best_treatment(
            axis, demo.shown.window_ends, demo.action_performance, TREATMENTS
        ),
    )
    return {
        "outside": [name for name, day in days.items() if bool(day.out_of_range)],
        "glucose": inline_svg(glucose, "Glucose of a day under both treatments"),
        "drift": inline_svg(drift, "True worth of the treatments as the patient drifts"),
    }


def _scale_rows(advantage: Advantage) -> list[dict[str, Any]]:
    """What each time scale says, and what is asked of it."""
    return [
        {**vars(scale), "role": advantage.role(index)}
        for index, scale in enumerate(advantage.scales)
    ]


def demo_page(demo: Demo) -> str:
    """The demonstration as a page."""
    decision = demo.shown.showcase
    advantage = decision.advantage
    assert advantage is not None
    rows = len(advantage.scales)
    curves = draw_figure(9, 3.6, lambda axis: draw_learning_curves(axis, demo))
    strips = draw_figure(9, 2.3, lambda axis: draw_decisions(axis, demo.runs))
    picture = draw_figure(9, 4.2, lambda axis: draw_showcase(axis, demo.shown))
    scales = draw_figure(9, 1.3 + 0.3 * rows, lambda axis: draw_scales(axis, advantage))
    return _TEMPLATES.get_template(f"{demo.domain}.html").render(
        demo=demo,
        patient=_patient_pictures(demo) if demo.domain is Domain.DIABETES else {},
        summary=demo.summary(),
        decision=decision,
        advantage=advantage,
        rows=_scale_rows(advantage),
        truth=true_advantage(demo),
        curves=inline_svg(curves, "True performance of the policy in force over time"),
        strips=inline_svg(strips, "Decisions of the algorithms along time"),
        picture=inline_svg(picture, "One decision: returns, trends and forecasts"),
        scales=inline_svg(scales, "The same decision: the forecast advantage at every time scale"),
        record=decision.to_json(),
        settings=json.dumps({run.name: run.settings for run in demo.runs}, indent=1),
    )
