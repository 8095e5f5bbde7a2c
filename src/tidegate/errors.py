"""Exceptions a user understands: what is wrong, where, what was expected, what to do.

Here, and in every other sentence for a user, a setting stands in backquotes as Python writes it: `budget`,
`draws=200`, `confirmed_order=True`. The command line prints it as the flag that it is there: --draws 200.
So a stored sentence is the same, wherever it arose.
"""

import contextlib
from collections.abc import Callable, Iterator


class TidegateError(Exception):
    """Base of every error that Tidegate raises on purpose."""

    def __init__(self, what: str, *, where: str = "", expected: str = "", remedy: str = "") -> None:
        self.what, self.where, self.expected, self.remedy = what, where, expected, remedy
        sentences = [f"{where}: {what}" if where else what]
        if expected:
            sentences.append(f"Expected {expected}.")
        if remedy:
            sentences.append(remedy)
        super().__init__(" ".join(sentences))


class LogError(TidegateError, ValueError):
    """The log of episodes is malformed."""


class PolicyError(TidegateError, ValueError):
    """A policy does not fit its parameters, its file or the log."""


class SettingsError(TidegateError, ValueError):
    """A setting is outside its range."""


@contextlib.contextmanager
def foreign_code(refusal: Callable[[BaseException], TidegateError]) -> Iterator[None]:
    """Whatever a user's code raises becomes an error of ours: `sys.exit` too, which would end in success.

    Only an interruption stays what it is. `os._exit` ends the process and cannot be caught.
    """
    try:
        yield
    except (KeyboardInterrupt, TidegateError):
        raise
    except BaseException as error:
        raise refusal(error) from error
