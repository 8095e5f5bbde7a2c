"""The command line: the only place that knows of typer and rich."""

from .app import main as main
