"""The commands about the service: serve, push, tokens, the audit log."""

import importlib.util
import json
from pathlib import Path
from typing import Annotated

import typer

from ..errors import SettingsError
from .printing import printable

DATA = Path("tidegate-data")

Data = Annotated[Path, typer.Option("--data", help="The folder of the service's data.", metavar="DIR")]
Address = Annotated[
    str | None,
    typer.Option("--database", help="PostgreSQL instead of the embedded database.", metavar="URL"),
]

token_app = typer.Typer(no_args_is_help=True, help="Tokens of the service: make, list, revoke.")
audit_app = typer.Typer(no_args_is_help=True, help="The service's audit log.")


def add_service_commands(app: typer.Typer) -> None:
    """Give the application the commands about the service."""
    app.command()(serve)
    app.command()(push)
    app.add_typer(token_app, name="token")
    app.add_typer(audit_app, name="audit")


def serve(
    data: Data = DATA,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on.")] = 8400,
    database: Address = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="Gates to define.", metavar="gates.toml")
    ] = None,
    rate: Annotated[float, typer.Option("--rate", min=1, help="Requests per second for each token.")] = 500,
    max_body: Annotated[
        int, typer.Option("--max-body", min=1, max=1024, help="Largest request body, in MiB.")
    ] = 32,
) -> None:
    """Run the live gate: it takes episodes, decides, and says which policy to run.

    Needs the extra `serve`. Prints a first token where there is none yet. Ends when interrupted; exit
    code 2 if it cannot start.
    """
    _require_extra()
    from ..service import server

    server.serve(data, host, port, database, config, rate, max_body * 2**20)


def push(
    log: Annotated[str, typer.Argument(metavar="LOG", help="Parquet, CSV or JSON lines.")],
    gate: Annotated[str, typer.Option("--gate", help="The gate to send them to.", metavar="NAME")],
    url: Annotated[str, typer.Option("--url", help="The service.")] = "http://127.0.0.1:8400",
    token: Annotated[
        str, typer.Option("--token", envvar="TIDEGATE_TOKEN", help="A token with the scope ingest.")
    ] = "",
    rows: Annotated[int, typer.Option("--rows", min=1, help="About how many rows per request.")] = 5_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Send the episodes of a file to a gate of the service.

    Run the same command again to send what is missing: the service recognises the requests that got through.
    Exit code 0 if all of it is stored; 2 if not.
    """
    from ..client.pushing import push as pushed

    found = pushed(log, gate, url, token, rows)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=1))
    else:
        typer.echo(str(found))


@token_app.command("new")
def token_new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who or what will use it.")],
    scopes: Annotated[
        str, typer.Option("--scopes", help="Some of read, ingest, decide, approve, admin, joined by commas.")
    ] = "read",
    expires: Annotated[
        str, typer.Option("--expires", help="How long it is valid: 12h, 90d; or never.", metavar="TIME")
    ] = "90d",
    data: Data = DATA,
    database: Address = None,
) -> None:
    """Make a token and print it, once. Exit code 0."""
    _require_extra()
    from ..service import database as store
    from ..service import tokens

    life = None if expires == "never" else expires
    typer.echo(tokens.new_token(store.opened(data, database), name, scopes, life))


@token_app.command("list")
def token_list(data: Data = DATA, database: Address = None) -> None:
    """List all tokens: names, scopes and times, never the tokens themselves. Exit code 0."""
    _require_extra()
    from ..service import database as store
    from ..service import tokens

    with store.at_work(data, database).reading() as connection:
        for one in tokens.listed(connection):
            end = f"revoked {one.revoked_at}" if one.revoked_at else f"until {one.expires_at or 'revoked'}"
            typer.echo(printable(f"{one.name}: {' '.join(one.scopes)}, {end}"))


@token_app.command("revoke")
def token_revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The token's name.")],
    data: Data = DATA,
    database: Address = None,
) -> None:
    """Revoke a token at once. Exit code 0; 2 if no token has this name."""
    _require_extra()
    from ..service import database as store
    from ..service import tokens

    tokens.revoke(store.at_work(data, database), name)
    typer.echo(printable(f"The token '{name}' is revoked."))


@audit_app.command("verify")
def audit_verify(
    replay: Annotated[
        str | None,
        typer.Option("--replay", help="Replay this evaluation, or `all`, from the stored log.", metavar="ID"),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option("--head", help="An entry noted earlier, which must still be there.", metavar="N:SHA256"),
    ] = None,
    data: Data = DATA,
    database: Address = None,
) -> None:
    """Verify the audit log: every entry, every stored batch and record; with --replay, decide again.

    Exit code 0 if all of it holds, 2 if not.
    """
    _require_extra()
    from ..service import database as store
    from ..service import proving
    from .compiled import keep_programs

    keep_programs()
    proof = proving.prove(store.at_work(data, database), replay, head)
    for line in proof.lines:
        typer.echo(printable(line))
    raise typer.Exit(0 if proof.holds else 2)


def _require_extra() -> None:
    missing = [name for name in ("fastapi", "uvicorn", "sqlalchemy", "alembic") if not _is_there(name)]
    if missing:
        raise SettingsError(
            f"the service needs packages that are not installed: {', '.join(missing)}.",
            remedy="pip install 'tidegate[serve]'",
        )


def _is_there(name: str) -> bool:
    return importlib.util.find_spec(name) is not None
