"""Sentences name settings as Python does, `lookahead=7`; here they become flags, --lookahead 7."""

import ast
import functools
import inspect
import re
from typing import Any, get_type_hints

from typer.models import OptionInfo

from ..errors import SettingsError

_SETTING = re.compile(r"`([a-z_]+)(?:=([^`]*))?`")
_SUBJECT = re.compile(r"^([a-z_]+)(?= is | lists )")
# Where a flag is not the argument's own name.
_OTHER_NAMES = {"confirmed_order": "--confirm-order", "guardrails": "--guardrail"}
_PROPENSITIES = {
    "log_probability": "--log-probs",
    "density": "--densities",
    "log_density": "--log-probs --densities",
}


def spoken(text: object) -> str:
    """The text with flags in place of arguments."""
    return _SETTING.sub(lambda found: _as_flag(found[1], found[2]) or found[0], str(text))


def spoken_error(error: BaseException) -> str:
    """An error in the words of the shell: a setting is also named where its value is refused."""
    text = str(error)
    if isinstance(error, SettingsError):
        text = _SUBJECT.sub(lambda found: _as_flag(found[1], None) or found[0], text)
    return spoken(text)


def _as_flag(name: str, value: str | None) -> str | None:
    """The flag of an argument; None if there is none."""
    given = None if value is None else _literal(value)
    if name == "propensity" and given in _PROPENSITIES:
        return _PROPENSITIES[given]
    flag = flags().get(name)
    if flag is None or value is None or given is True:
        return flag
    if given is False:
        return flag.replace("--", "--no-", 1)
    return f"{flag} {_written(given)}"


def _literal(value: str) -> Any:
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value


def _written(value: Any) -> str:
    if value is None:
        return "''"
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


@functools.cache
def flags() -> dict[str, str]:
    """The flag of each argument that a command for logs takes."""
    from .flags import spread
    from .log_commands import COMMANDS
    from .service_commands import serve

    found = dict(_OTHER_NAMES)
    for command in (*COMMANDS, serve):
        function = spread(command)
        hints = get_type_hints(command, include_extras=True)
        for name, parameter in inspect.signature(function).parameters.items():
            for one in getattr(hints.get(name, parameter.annotation), "__metadata__", ()):
                if isinstance(one, OptionInfo):
                    found.setdefault(name, _declared(one) or f"--{name.replace('_', '-')}")
    return found


def _declared(option: OptionInfo) -> str | None:
    """The flag as it was written; in an annotation, Typer keeps the first one where a default would be."""
    words = [one for one in (option.default, *(option.param_decls or ())) if isinstance(one, str)]
    return next((word.split("/")[0] for word in words if word.startswith("--")), None)
