"""Every command with its options, from the command line itself."""

import enum
import inspect
from collections.abc import Iterator
from typing import Any

import typer

from tidegate.cli.app import app
from tidegate.cli.exits import FAILED, INTERRUPTED

from .words import code, first_sentence, page, table

OPTIONS = "Options"
CODES = [
    ("0", "done; for `gate` DEPLOY, for `watch` keep running, for `verify` and `audit verify` confirmed"),
    ("1", "decided, with a no: KEEP from `gate`, roll back from `watch`. Nothing else ends with 1"),
    (
        str(FAILED),
        "nothing was decided (bad usage, an unfit log, an unexpected error), or `verify` does not confirm",
    ),
    (str(INTERRUPTED), "interrupted from the keyboard"),
]
INTRODUCTION = """
An error is one paragraph on standard error: what is wrong, where, what was expected, and what to do.
`--help` after any command prints what is below. An option without a default is not set. Set
`TIDEGATE_TRACEBACK=1` to see where an unexpected error arose.
"""


def commands_page() -> str:
    """The page of all commands."""
    found = list(commands("tidegate", typer.main.get_command(app)))
    overview = table(
        ["command", "what it does"],
        [(f"[`{name}`](#{name.replace(' ', '-')})", first_sentence(one.help)) for name, one in found],
    )
    exits = f"## Exit codes\n\n{table(['exit code', 'means'], CODES)}"
    return page("Commands", INTRODUCTION, overview, exits, *(section(name, one) for name, one in found))


def commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """The commands of a group, those of groups in it too, by what one types."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for part, one in inner.items():
        yield from commands(f"{name} {part}", one)


def section(name: str, command: Any) -> str:
    """What a command does, its usage and its options, grouped as its help groups them."""
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one not in arguments and not one.hidden]
    panels = dict.fromkeys([OPTIONS, *map(_panel, options)])
    usage = " ".join([name, *(_argument(one) for one in arguments), *(["[OPTIONS]"] if options else [])])
    parts = [f"## {name}", inspect.cleandoc(command.help), f"```text\n{usage}\n```"]
    parts.append(
        table(["argument", "meaning"], [(f"`{one.metavar or one.name}`", one.help) for one in arguments])
    )
    for panel in panels:
        group = [option(one) for one in options if _panel(one) == panel]
        parts.append(table([panel.lower(), "default", "meaning"], group))
    return "\n\n".join(part for part in parts if part)


def option(one: Any) -> tuple[str, str, str]:
    """How an option is written, its default, and what it means."""
    kind = one.type_descriptor.annotation
    names = " / ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts))
    if not one.is_flag:
        names = names[:-1] + f" {one.metavar or _kind(kind)}`"
    notes = [
        one.help,
        f"One of {code([member.value for member in kind])}." if _is_enum(kind) else "",
        _range(one),
        f"Also from `${one.envvar}`." if one.envvar else "",
        "May be given several times." if one.multiple and "several times" not in one.help else "",
    ]
    default = "required" if one.required else "" if one.is_flag else code(one.default)
    return names, default, " ".join(note for note in notes if note)


def _panel(one: Any) -> str:
    return one.rich_help_panel or OPTIONS


def _argument(one: Any) -> str:
    name = one.metavar or one.name.upper()
    return name if one.required else f"[{name}]"


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, enum.Enum)


def _kind(kind: Any) -> str:
    return {int: "N", float: "NUMBER", str: "TEXT"}.get(kind, "NAME" if _is_enum(kind) else "PATH")


def _range(one: Any) -> str:
    if one.min is not None and one.max is not None:
        return f"From {one.min:,} to {one.max:,}."
    return "" if one.min is None else f"At least {one.min:,}."
