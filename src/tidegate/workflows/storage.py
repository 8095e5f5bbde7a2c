"""Records as files that can prove themselves: plain JSON, sealed with its own hash."""

import hashlib
import json
from pathlib import Path
from typing import Any

from ..errors import SettingsError

SEAL = "record_hash"
FORMAT = 2


def sealed(content: dict[str, Any]) -> dict[str, Any]:
    """The content with its hash."""
    return {**content, SEAL: record_hash(content)}


def record_hash(content: dict[str, Any]) -> str:
    """SHA-256 of all but the seal; numbers by the digits that give every bit back."""
    rest = {name: value for name, value in content.items() if name != SEAL}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def write_record(content: dict[str, Any], path: str | Path) -> None:
    """Write a record's `to_dict`."""
    text = json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False)
    Path(path).write_text(text + "\n", encoding="utf-8")


def read_record(path: str | Path) -> dict[str, Any]:
    """Read a record, whatever became of it since; the seal is judged by `verify`."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise SettingsError(f"{path} is not JSON: {error}.", expected=_EXPECTED) from error
    if not isinstance(content, dict) or SEAL not in content:
        raise SettingsError(f"{path} is no record.", expected=_EXPECTED)
    return content


_EXPECTED = "a decision record written by `tidegate gate` or `tidegate improve`"
