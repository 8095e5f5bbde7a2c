"""Inputs checked at the door. Values inside a compiled function are unknown and pass unchecked."""

from typing import Any

import jax
import numpy as np

from ...errors import SettingsError


def check_not_negative(name: str, values: Any, unit: str) -> None:
    """Meals and insulin: finite and at least zero."""
    _check(name, values, f"finite {unit}, zero or more", lambda array: array >= 0)


def check_positive(name: str, values: Any, unit: str) -> None:
    """Ratios by which a dose is divided: finite and above zero."""
    _check(name, values, f"finite {unit}, above zero", lambda array: array > 0)


def _check(name: str, values: Any, expected: str, rule: Any) -> None:
    if isinstance(values, jax.core.Tracer):
        return
    array = np.asarray(values, float)
    wrong = np.argwhere(~(np.isfinite(array) & rule(array)))
    if wrong.size or (array.ndim == 0 and len(wrong)):
        index = tuple(int(i) for i in wrong[0])
        raise SettingsError(
            f"{name} is {array[index]:g}.",
            where=f"position {index}" if index else "",
            expected=expected,
        )
