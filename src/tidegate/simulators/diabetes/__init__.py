"""Type-1 diabetes: a virtual patient, its sensor and pump, and a world in which it drifts."""

from .day import (
    DayDraws,
    DayRecord,
    DaySettings,
    GlucoseRangeWarning,
    Treatment,
    day_return,
    draw_day,
    run_day,
    simulate_day,
    warn_out_of_range,
)
from .environment import (
    TREATMENTS,
    ContinuousDiabetes,
    DiscreteDiabetes,
    DriftingPatient,
    simulate_episodes,
)
from .meals import MealPlan, meals_at, usual_meals
from .parameters import load_patient, patient_names, usual_treatment
from .patient import (
    Digestion,
    Eating,
    Metabolism,
    Patient,
    PatientParameters,
    PatientState,
    blend,
    blood_glucose,
)
from .pump import PUMPS, Pump, load_pump
from .risk import Risk, reading_risk, risk_index
from .sensor import SENSORS, Sensor, load_sensor
from .solver import Trajectory, advance, simulate_minutes
from .truth import PerformanceTable, performance_table

__all__ = [
    "PUMPS",
    "SENSORS",
    "TREATMENTS",
    "ContinuousDiabetes",
    "DayDraws",
    "DayRecord",
    "DaySettings",
    "Digestion",
    "DiscreteDiabetes",
    "DriftingPatient",
    "Eating",
    "GlucoseRangeWarning",
    "MealPlan",
    "Metabolism",
    "Patient",
    "PatientParameters",
    "PatientState",
    "PerformanceTable",
    "Pump",
    "Risk",
    "Sensor",
    "Trajectory",
    "Treatment",
    "advance",
    "blend",
    "blood_glucose",
    "day_return",
    "draw_day",
    "load_patient",
    "load_pump",
    "load_sensor",
    "meals_at",
    "patient_names",
    "performance_table",
    "reading_risk",
    "risk_index",
    "run_day",
    "simulate_day",
    "simulate_episodes",
    "simulate_minutes",
    "usual_meals",
    "usual_treatment",
    "warn_out_of_range",
]
