"""The command line: each command a thin twin of one library function. Numbers load when needed."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from . import __version__
from .errors import TidegateError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Safe policy improvement in a changing world: forecast, bound, test, then deploy or keep.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tidegate {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Safe policy improvement in a changing world: forecast, bound, test, then deploy or keep."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The HTML page to write.")] = Path("demo.html"),
    speed: Annotated[
        int, typer.Option(min=0, max=3, help="How fast the world drifts; 0 stands still.")
    ] = 2,
    episodes: Annotated[int, typer.Option(min=8, help="Episodes to run.")] = 2_000,
    lookahead: Annotated[
        int, typer.Option(min=1, help="Episodes per window: one search and one test each.")
    ] = 4,
    order: Annotated[int, typer.Option(min=0, help="Order of SPIN's cosine trend.")] = 3,
    seed: Annotated[int, typer.Option(help="Same seed, same run.")] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the table as JSON instead.")
    ] = False,
) -> None:
    """Run SPIN and the stationary baseline live on a drifting recommender; write a page about it.

    Prints, for both: the improvement over the trusted policy, the share of episodes that ran under a
    policy truly worse than it, and in how many windows a candidate ran.
    """
    from .experiments.demo import run_demo
    from .reports.page import demo_page
    from .reports.terminal import demo_table, progress_bar

    with progress_bar() as progress:
        result = run_demo(
            speed=speed,
            num_episodes=episodes,
            lookahead=lookahead,
            order=order,
            seed=seed,
            progress=progress,
        )
    out.write_text(demo_page(result), encoding="utf-8")
    if as_json:
        typer.echo(json.dumps({**result.summary(), "page": str(out)}, indent=1))
    else:
        demo_table(result, out)


def main() -> None:
    """Entry point: errors we know are one paragraph and exit code 2, never a traceback."""
    try:
        app()
    except TidegateError as error:
        typer.echo(f"tidegate: {error}", err=True)
        sys.exit(2)
    except OSError as error:
        typer.echo(f"tidegate: cannot write or read {error.filename}: {error.strerror}", err=True)
        sys.exit(2)
