"""What Schemathesis does not know of itself: rows are bytes. It loads this file; it has no Tidegate."""

from typing import Any

import schemathesis

ROWS = ("application/x-ndjson", "application/jsonl", "application/vnd.apache.parquet")


def rows(_: Any, value: Any) -> bytes:
    """The bytes of a body."""
    return value if isinstance(value, bytes) else str(value).encode()


schemathesis.serializer(*ROWS)(rows)
