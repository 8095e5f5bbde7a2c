"""A record as a card for a notebook: its few lines and its picture; styles inside, no script."""

from collections.abc import Sequence

from markupsafe import Markup

from .log_pictures import (
    Picture,
    backtest_pictures,
    clock_of,
    evaluation_picture,
    scale_picture,
    watch_pictures,
)
from .log_words import Plain
from .page import templates
from .palette import palette_css
from .summary import BEWARE, summary


def card(content: Plain) -> str:
    """The card of a record, given as its `to_dict`."""
    template = templates().get_template("card.html")
    return template.render(
        data=content,
        lines=summary(content),
        beware=BEWARE,
        pictures=_pictures(content),
        colors=Markup(palette_css(".tidegate-card")),
    ).strip()


def _pictures(data: Plain) -> Sequence[Picture]:
    """Those that the page of such a record shows first; a plan has none."""
    if "verdict" in data:
        return [scale_picture(data["advantage"], clock_of(data))]
    if "forecast" in data:
        return [evaluation_picture(data, data["forecast"], data.get("stationary"))]
    return watch_pictures(data)[:1] if data["kind"] == "watch" else backtest_pictures(data)
