"""How did these bags come about, do they drift, what do they leak? Nothing here needs an individual label.

The verdict is that of `bagwise.formation`, with all that speaks for it: how much bags differ in proportions and
features, what a quick model says of bags that it was not fitted to, whether bags are random inside strata. `drift`
compares what a model says of bags that came later with their reports.
"""

from bagwise.diagnostics.diagnosis import diagnose
from bagwise.diagnostics.drifting import Drift, drift
from bagwise.diagnostics.result import Diagnosis
from bagwise.disclosure import Leaks
from bagwise.dispersion import Finding

__all__ = ["Diagnosis", "Drift", "Finding", "Leaks", "diagnose", "drift"]
