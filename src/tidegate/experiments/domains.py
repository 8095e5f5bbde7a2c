"""The paper's two domains, in a file of their own so that the command line's help need not load JAX."""

import enum


class Domain(enum.StrEnum):
    """Where the paper tries its algorithms."""

    RECOSYS = "recosys"
    DIABETES = "diabetes"
