"""Text from logs, records and files may hold anything: here it becomes harmless to a terminal."""

import contextlib
import sys
import unicodedata
from collections.abc import Iterator

import typer

from ..errors import TidegateError
from .speaking import spoken, spoken_error

# They reorder what a reader sees; Unicode counts them as formatting, not as control characters.
_BIDIRECTIONAL = {0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
_UNSEEN = {"Cc", "Zl", "Zp", "Cs"}


def printable(text: object) -> str:
    """One line of text, in which whatever a terminal could obey is written out, as in \\x1b."""
    return "".join(map(_harmless, " ".join(str(text).splitlines())))


def _harmless(character: str) -> str:
    if ord(character) in _BIDIRECTIONAL or unicodedata.category(character) in _UNSEEN:
        return character.encode("unicode_escape", "surrogatepass").decode()
    return character


def tell(text: object) -> None:
    """One line on standard error, in the words of the shell."""
    typer.echo(printable(spoken(text)), err=True)


def cause(error: BaseException) -> str:
    """An error in a few words; Rich hides a closed pipe behind an exit."""
    system = error if isinstance(error, OSError) else error.__context__
    if isinstance(system, OSError):
        return f"cannot write or read {system.filename or 'standard output'}: {system.strerror or system}"
    return spoken_error(error) if isinstance(error, TidegateError) else repr(error)


def allow_any_text() -> None:
    """Write out what the terminal's encoding lacks: an answer is not lost for one letter."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def decision_stands(decision: str, failed: str) -> Iterator[None]:
    """A decision that is on record stands, even if it cannot be shown: say why, and go on.

    Rich turns a closed pipe into an exit with code 1, which would read as KEEP.
    """
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        with contextlib.suppress(Exception):
            stands = f"the decision stands: {decision.rstrip('.')}"
            tell(f"tidegate: {stands}; {failed}: {cause(error).rstrip('.')}.")
