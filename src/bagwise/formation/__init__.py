"""How bags came about: four formations, what each of them allows, and what bags themselves tell of theirs.

What a report says about a row depends on how the rows came together. `FORMATIONS` holds the four cases by name;
`evidence` measures what speaks for which, and `told` draws the conclusion as far as no model is needed for it. With
what a model says of held-out bags, `slopes` measures more, and `settled` decides the rest.
"""

from bagwise.formation.evidence import Evidence, evidence, evidence_of, formation_of, told
from bagwise.formation.formations import Formation, Told
from bagwise.formation.slopes import Slope, slopes
from bagwise.formation.support import Support, settled, settled_by, support
from bagwise.utils.parameters import one_of

__all__ = [
    "FORMATION",
    "FORMATIONS",
    "Evidence",
    "Formation",
    "Slope",
    "Support",
    "Told",
    "evidence",
    "evidence_of",
    "formation_of",
    "settled",
    "settled_by",
    "slopes",
    "support",
    "told",
]

_LIKELIHOOD = ("count_likelihood",)
_SQUARES = ("debiased_square", "li_square")
_LINEAR = ("easyllp", "easyllp_square", "centred_log", "centred_square")

FORMATIONS = {
    one.name: one
    for one in (
        Formation(
            "random", "a bag is a random set of rows", _LIKELIHOOD + _SQUARES + _LINEAR, ("risk", "slope"), "risk"
        ),
        Formation(
            "rates",
            "rows of one label are alike in all bags, and bags differ in how many of them have it",
            _LIKELIHOOD,
            ("slope",),
            "likelihood",
        ),
        Formation(
            "features",
            "rows with the same features have the same chances in all bags, and bags differ in the features of their "
            "rows",
            _LIKELIHOOD,
            (),
            "likelihood",
        ),
        Formation(
            "effects",
            "bags differ in their features and in something unseen, which moves the log odds of all their rows",
            _LIKELIHOOD,
            (),
            "likelihood",
        ),
    )
}
"""The formations by name, the strictest assumption first."""

FORMATION = one_of("auto", *FORMATIONS)
"""What the parameter `formation` of an estimator may be."""
