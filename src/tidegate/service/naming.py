"""Names of gates, budgets and tokens: what may stand in an address and in a file name alike."""

import re
from typing import Any

from ..errors import SettingsError

PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
WORDS = "letters, digits, . _ and -, at most 64, the first a letter or a digit"


def require_name(what: str, given: Any) -> str:
    """A name that needs no quoting anywhere."""
    if isinstance(given, str) and re.fullmatch(PATTERN.strip("^$"), given):
        return given
    raise SettingsError(f"the name of {what} is {str(given)[:80]!r}.", expected=WORDS)
