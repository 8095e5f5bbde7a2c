"""Type-1 diabetes: a virtual patient, its sensor and pump, and a world in which it drifts."""

from .day import DayRecord as DayRecord
from .day import DaySettings as DaySettings
from .day import Treatment as Treatment
from .day import simulate_day as simulate_day
from .environment import TREATMENTS as TREATMENTS
from .environment import ContinuousDiabetes as ContinuousDiabetes
from .environment import DiscreteDiabetes as DiscreteDiabetes
from .environment import DriftingPatient as DriftingPatient
from .parameters import load_patient as load_patient
from .parameters import patient_names as patient_names
from .parameters import usual_treatment as usual_treatment
from .solver import simulate_minutes as simulate_minutes
