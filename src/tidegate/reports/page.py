"""One self-contained HTML page: styles and pictures inside, no network."""

import io
import re
from pathlib import Path

import jinja2
import matplotlib.pyplot as plt
from markupsafe import Markup
from matplotlib.figure import Figure

from ..record import write_whole
from .figures import STYLE
from .log_words import change, moment, number, percent, sentence, shown
from .model_words import family_words, shown_families
from .palette import color, palette_css, themed

# Nothing is loaded, run or sent, even if a name from a log should get through as markup.
CONTENT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
)
FILTERS = (number, change, percent, moment, shown, sentence, color)
HERE = Path(__file__).parent / "templates"


def templates(folder: Path = HERE) -> jinja2.Environment:
    """The page templates of a folder, beside those of all pages; a missing value is an error."""
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, HERE]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters.update({one.__name__: one for one in FILTERS})
    found.globals.update(content_policy=CONTENT_POLICY, palette=Markup(palette_css()))
    found.globals.update(family_words=family_words, shown_families=shown_families)
    return found


def inline_svg(figure: Figure, description: str) -> Markup:
    """The figure as an SVG element that scales with the page and takes its colours and its font.

    `description` says in words and numbers what the picture shows.
    """
    buffer = io.StringIO()
    salt = f"{description} {figure.get_size_inches()}"  # no name in a page twice
    with plt.rc_context({**STYLE, "svg.hashsalt": salt}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    plt.close(figure)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    for pattern in (r'(?<=<svg )([^>]*?)(?:width|height)="[^"]*" ?',) * 2:
        svg = re.sub(pattern, r"\1", svg, count=1)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font-family: [^;\"]*; ?", "", svg)
    return Markup(themed(svg).replace(">", f' role="img" aria-label="{Markup.escape(description)}">', 1))


def save_svg(figure: Figure, path: Path, description: str) -> None:
    """The figure as a file of its own, which brings its font and its colours."""
    style = f"<style>svg {{ font-family: sans-serif; }}\n{palette_css('svg')}</style>"
    write_whole(path, str(inline_svg(figure, description)).replace(">", f">{style}", 1))
