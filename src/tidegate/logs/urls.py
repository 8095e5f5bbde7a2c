"""What lies in a store, by its address."""

from typing import Any

CREDENTIALS = "Check the address, and the credentials that the store's own tools use."


def is_url(source: Any) -> bool:
    """Whether this names something in a store, as s3://bucket/log.parquet does."""
    return isinstance(source, str) and "://" in source
