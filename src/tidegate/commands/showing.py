"""How a record is shown: as the lines that end a command's output, as a page, and as a card in a notebook."""

from pathlib import Path
from typing import Any

from ..inputs import path as file_path
from ..record import write_whole


class Shown:
    """What every record of a command can do. All of it is said from `to_dict`, as for a stored record."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values: what the command prints with `--json`."""
        raise NotImplementedError

    def to_html(self, path: str | Path) -> Path:
        """Write one self-contained HTML page: what the command writes with `--report`."""
        from ..reports.log_page import log_page  # it loads what draws pictures

        target = file_path("the page", path)
        write_whole(target, log_page(self))
        return target

    def __str__(self) -> str:
        from ..reports.summary import summary

        return "\n".join(summary(self.to_dict()))

    def _repr_html_(self) -> str:
        """The card and the picture, for a notebook."""
        from ..reports.card import card

        return card(self.to_dict())
