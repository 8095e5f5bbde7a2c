"""The 30 virtual patients: ten adolescents, ten adults, ten children.

The figures are those of simglucose 0.2.11; see NOTICE in this folder.
"""

import csv
import dataclasses
import difflib
import functools
from importlib import resources
from typing import TypeVar

import numpy as np

from ...errors import SettingsError
from .patient import Digestion, Metabolism, Patient, PatientParameters, PatientState

T = TypeVar("T")


def patient_names() -> tuple[str, ...]:
    """adolescent#001 … adult#001 … child#010."""
    return tuple(_rows())


def load_patient(name: str) -> Patient:
    """One of the 30, with parameters in 64-bit."""
    row = _row(name)

    def read(cls: type[T], prefix: str = "") -> T:
        names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        return cls(**{name: np.float64(row[prefix + name]) for name in names})

    initial = PatientState(read(Digestion, "initial_"), read(Metabolism, "initial_"))
    return Patient(read(PatientParameters), initial)


def usual_treatment(name: str) -> tuple[float, float]:
    """(CR in g/U, CF in mg/dL/U) that simglucose prescribes for this patient."""
    row = _row(name)
    return float(row["carb_ratio"]), float(row["correction_factor"])


def _row(name: str) -> dict[str, str]:
    rows = _rows()
    if name not in rows:
        close = difflib.get_close_matches(str(name), rows, n=3, cutoff=0.5)
        raise SettingsError(
            f"there is no patient {name!r}.",
            expected=f"{' or '.join(close) if close else 'a name such as adolescent#003'}",
            remedy="patient_names() lists all thirty.",
        )
    return rows[name]


@functools.cache
def _rows() -> dict[str, dict[str, str]]:
    text = resources.files(__package__).joinpath("patients.csv").read_text()
    return {row["name"]: row for row in csv.DictReader(text.splitlines())}
