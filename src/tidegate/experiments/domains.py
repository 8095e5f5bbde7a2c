"""The paper's two domains; apart from `studies`, so that the command line can name them unloaded."""

import enum


class Domain(enum.StrEnum):
    """Where the paper tries its algorithms."""

    RECOSYS = "recosys"
    DIABETES = "diabetes"
