"""How a command ends: exit codes 0 and 1 come from what was decided, and from nothing else."""

import contextlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup

from ..errors import TidegateError
from .printing import allow_any_text, cause, tell
from .speaking import spoken_error

FAILED, INTERRUPTED = 2, 130


class Commands(TyperGroup):
    """A command returns or raises `typer.Exit`. One that ends in another way has decided nothing.

    Code that it calls may want to exit: a user's policy with any code, Rich with 1 if a pipe is closed. Typer
    itself takes a closed pipe or the end of the input for an exit with code 1, which would read as KEEP.
    """

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (SystemExit, OSError, EOFError) as error:
            raise TidegateError(
                f"nothing was decided, because the command ended early: {cause(error)}."
            ) from error


def ended(application: Callable[[], Any]) -> int:
    """Run the application; its exit code, with one paragraph about any error."""
    allow_any_text()
    try:
        application()
    except SystemExit as end:
        # Typer ends with the code of an `Exit`: that is how a command, or its help, says that it is done.
        done = isinstance(end.__context__, typer.Exit)
        code = end.code if isinstance(end.code, int) else FAILED
        return FAILED if code in (0, 1) and not done else code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BaseException as error:  # Python's exit code for it, 1, would read as KEEP
        with contextlib.suppress(Exception):  # there may be no terminal left
            _report(error)
    return FAILED


def discard_unwritten() -> None:
    """What a closed or full standard output did not take must not become Python's last word, code 120."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report(error: BaseException) -> None:
    if os.environ.get("TIDEGATE_TRACEBACK"):
        traceback.print_exception(error)
    if isinstance(error, TidegateError):
        tell(f"tidegate: {spoken_error(error)}")
    else:
        tell(
            f"tidegate: nothing was decided, because of an unexpected {type(error).__name__}: {error}. "
            "Set TIDEGATE_TRACEBACK=1 to see where, and please report it."
        )
