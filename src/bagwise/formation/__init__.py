"""How bags came about: four formations, what each of them allows, and what bags themselves tell of theirs.

What a report says about a row depends on how the rows came together. `FORMATIONS` holds the four cases by name;
`evidence` measures what speaks for which, and `told` draws the conclusion as far as no model is needed for it. With
what a model says of held-out bags, `slopes` measures more, and `settled` decides the rest.
"""

from bagwise.formation.evidence import ENOUGH_BAGS, Evidence, Slope, evidence, formation_of, slopes, told
from bagwise.formation.formations import FORMATION, FORMATIONS, Formation, Told
from bagwise.formation.support import Support, settled, support

__all__ = [
    "ENOUGH_BAGS",
    "FORMATION",
    "FORMATIONS",
    "Evidence",
    "Formation",
    "Slope",
    "Support",
    "Told",
    "evidence",
    "formation_of",
    "settled",
    "slopes",
    "support",
    "told",
]
