"""What a long command is doing at the moment, told to whoever wants to show it."""

from collections.abc import Callable

Stage = Callable[[str], None]


def silent(stage: str) -> None:
    """Show nothing."""
