"""Named rules for an error budget. Imports no numerical library, so that the command's help is fast."""

import enum


class BudgetRule(enum.StrEnum):
    """How an error budget shares out α among the tests."""

    HARMONIC = "harmonic"
    """Any number of tests; half of α is spent after the planned ones."""
    EVEN = "even"
    """The same for each of the planned tests."""
    OBRIEN_FLEMING = "obrien-fleming"
    """Little for the first of the planned tests, most for the last."""
    POCOCK = "pocock"
    """Nearly even."""
    SIDAK = "sidak"
    """Even, and each test uses only episodes that no earlier test has used."""
