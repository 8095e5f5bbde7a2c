"""The command line: each command wraps one library function. Numerical libraries load when needed."""

import enum
import gc
import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from .. import __version__
from ..errors import SettingsError
from ..experiments.domains import Domain
from .compiled import OFF, VARIABLE, cache_folder, clear, keep_programs, size
from .exits import Commands, discard_unwritten, ended
from .log_commands import add_commands
from .printing import printable, tell
from .service_commands import add_service_commands

GARBAGE = 100_000  # objects; with Python's own 700, collecting takes a tenth of a short command

app = typer.Typer(
    cls=Commands,
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
    domain: Annotated[
        Domain, typer.Option(help="A recommender, or a patient with diabetes.")
    ] = Domain.RECOSYS,
    speed: Annotated[int, typer.Option(min=0, max=3, help="How fast the world drifts; 0: not at all.")] = 2,
    episodes: Annotated[int, typer.Option(min=8, help="Episodes to run.")] = 2_000,
    lookahead: Annotated[
        int, typer.Option(min=1, help="Episodes per window: one search and one test each.")
    ] = 4,
    order: Annotated[int, typer.Option(min=0, help="Order of SPIN's cosine trend.")] = 3,
    seed: Annotated[int, typer.Option(help="Same seed, same run.")] = 0,
    truth_days: Annotated[
        int, typer.Option(min=2, help="Simulated days behind a treatment's true worth (diabetes).")
    ] = 500,
    log: Annotated[
        Path | None,
        typer.Option(
            help="A CSV file to write: what the trusted policy did in this world, for `gate` to read."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON instead.")] = False,
) -> None:
    """Run Tidegate, SPIN and a stationary baseline live in a drifting world; write a page about it.

    Prints, for each: the improvement over the trusted policy, the share of episodes that ran under a policy
    truly worse than that one, and in how many windows a candidate ran. Exit code 0.
    """
    keep_programs()
    from ..experiments.demo import HEADINGS, run_demo, trusted_log
    from ..experiments.demo_page import demo_page
    from ..record import write_whole
    from .terminal import print_table, progress_bar

    for file in filter(None, (out, log)):
        if not file.parent.is_dir():
            raise SettingsError(f"there is no folder for {file}", remedy=f"Create {file.parent} first.")
    with progress_bar() as progress:
        result = run_demo(
            domain=domain,
            speed=speed,
            num_episodes=episodes,
            lookahead=lookahead,
            order=order,
            seed=seed,
            truth_days=truth_days,
            progress=progress,
        )
    write_whole(out, demo_page(result))
    if log is not None:
        write_whole(log, trusted_log(result).write_csv())
    if as_json:
        typer.echo(json.dumps({**result.summary(), "page": str(out)}, indent=1))
    else:
        world = {Domain.RECOSYS: "Recommender", Domain.DIABETES: "Diabetes"}[domain]
        title = f"{world} at speed {speed}, one run each, seed {seed}"
        print_table(title, HEADINGS, result.rows())
        typer.echo(f"Learning curves, decisions and one decision in detail: {printable(out)}")


class Study(enum.StrEnum):
    """What can be reproduced."""

    TABLE1 = "table1"
    FIGURE4 = "figure4"
    COVERAGE = "coverage"
    BEYOND = "beyond"
    SWEEP = "sweep"


class Part(enum.StrEnum):
    """The parts of the study beyond the paper."""

    RECOSYS = "recosys"
    WORLDS = "worlds"
    DIABETES = "diabetes"
    COVERAGE = "coverage"
    ALL = "all"


@app.command()
def reproduce(
    study: Annotated[Study, typer.Argument(help="Which study; `sweep` runs one of your own.")],
    definition: Annotated[
        Path | None, typer.Argument(help="The TOML file of a sweep (with `sweep` only).")
    ] = None,
    runs: Annotated[
        int, typer.Option(min=1, help="Runs per cell: up to 1,000 settings, then trials of each.")
    ] = 1_000,
    domain: Annotated[
        Domain, typer.Option(help="The world of table1 and figure4: a recommender or a patient.")
    ] = Domain.RECOSYS,
    speeds: Annotated[str, typer.Option(help="Speeds, separated by commas (coverage has none).")] = "0,1,2,3",
    part: Annotated[
        Part, typer.Option(help="Which part of `beyond`: the paper's worlds, others, intervals.")
    ] = Part.ALL,
    seed: Annotated[int, typer.Option(help="Same seed, same rows.")] = 0,
    device: Annotated[str, typer.Option(help="cpu, gpu, or auto for what JAX finds.")] = "auto",
    engine: Annotated[str, typer.Option(help="local, or ray for a Ray cluster.")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Ray cluster to join; default $RAY_ADDRESS or a local one.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the study; resumes if interrupted.")] = None,
) -> None:
    """Reproduce a study of the paper: rows (Parquet), table (Markdown), figures (SVG, PNG), manifest.

    `beyond` goes further: three algorithms in the paper's worlds and in worlds with other drifts, as
    tables. An interrupted study resumes where it stopped when started again with the same --out. Exit code
    130 after an interruption, 2 for bad usage.
    """
    _choose_device(device)
    from ..experiments import commands
    from ..experiments.beyond import run_beyond
    from ..experiments.reproduce import Effort
    from .terminal import progress_bar

    folder = out or Path("out") / (study if domain is Domain.RECOSYS else f"{study}-{domain}")
    chosen = _speeds(speeds)
    try:
        with progress_bar("") as progress:
            effort = Effort(runs, seed, engine, address, progress)
            match study:
                case Study.TABLE1:
                    table = commands.reproduce_table1(chosen, folder, domain, effort)
                case Study.FIGURE4:
                    table = commands.reproduce_figure4(chosen, folder, domain, effort)
                case Study.COVERAGE:
                    table = commands.reproduce_coverage(folder, effort)
                case Study.BEYOND:
                    table = run_beyond(part.value, folder, effort, speeds=chosen)
                case Study.SWEEP:
                    if definition is None:
                        raise SettingsError("`reproduce sweep` needs the TOML file of the sweep.")
                    table = commands.reproduce_sweep(definition, folder, effort)
    except KeyboardInterrupt:
        tell(f"tidegate: stopped; the same command resumes from {folder}.")
        os._exit(130)  # batches in flight are abandoned, not waited for
    for line in table.splitlines():  # it names the user's sweep and its worlds
        typer.echo(printable(line))
    typer.echo(f"Rows, table, figures and manifest: {printable(folder)}")


@app.command()
def cache(
    remove: Annotated[bool, typer.Option("--clear", help="Remove all compiled programs.")] = False,
) -> None:
    """Where compiled programs are kept, and how much room they take.

    The first use of a command spends seconds compiling; later uses load what was compiled.
    TIDEGATE_CACHE names another folder, or is `off`. Exit code 0.
    """
    folder = cache_folder()
    if folder is None:
        typer.echo(f"Compiled programs are not kept ({VARIABLE}={OFF}).")
    elif remove:
        typer.echo(f"{clear() / 1e6:,.1f} MB of compiled programs removed from {printable(folder)}.")
    else:
        typer.echo(f"{size(folder) / 1e6:,.1f} MB of compiled programs in {printable(folder)}.")


add_commands(app)
add_service_commands(app)


def _choose_device(device: str) -> None:
    platforms = {"auto": None, "cpu": "cpu", "gpu": "cuda"}
    if device not in platforms:
        raise SettingsError(f"device is '{device}'", expected="auto, cpu or gpu")
    if platforms[device]:
        os.environ["JAX_PLATFORMS"] = str(platforms[device])


def _speeds(text: str) -> list[int]:
    try:
        speeds = sorted({int(one) for one in text.split(",")})
    except ValueError:
        speeds = []
    if not speeds or not set(speeds) <= {0, 1, 2, 3}:
        raise SettingsError(f"speeds are '{text}'", expected="some of 0, 1, 2, 3, as in 0,2")
    return speeds


def main() -> None:
    """Entry point: errors are one paragraph and exit code 2, never a traceback."""
    gc.set_threshold(GARBAGE)
    code = ended(app)
    discard_unwritten()
    sys.exit(code)
