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

# Nothing is loaded, run or sent, even if a name from a log should get through as markup.
CONTENT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
)


def templates(folder: Path) -> jinja2.Environment:
    """The page templates of a folder; a missing value is an error."""
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals["content_policy"] = CONTENT_POLICY
    return found


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
    write_whole(path, inline_svg(figure, title))
