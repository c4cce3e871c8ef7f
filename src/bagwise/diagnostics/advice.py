"""What follows from a diagnosis for the choice of methods, in what a user can type: in Python or in a shell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bagwise.utils.text import listed

if TYPE_CHECKING:
    from bagwise.diagnostics.result import Diagnosis

_SINGLE = "how good a model is for single rows is not known from such bags alone"
_OF_ANY = "which learn from bags of every formation"


@dataclass(frozen=True)
class Terms:
    """What advice calls things.

    learners : models that learn from bags of every formation, and how they are told to.  any_model, values: those for
    random bags, and for values.  formation: where a user says how bags came about.  strata: to evaluate inside of the
    strata of some columns.  slope: what evaluates where rates differ.  last: to hold out the last bags.  labels: where
    a few individual labels go.
    """

    learners: str
    any_model: str
    values: str
    formation: str
    strata: Callable[[Sequence[str | int]], str]
    slope: str
    last: str
    labels: str


def columns_named(names: Sequence[str | int]) -> str:
    """Columns in a sentence; by number where they have no name.

    >>> columns_named(["a", "b"]), columns_named([2])
    ("'a' and 'b'", 'column 2')
    """
    return listed([repr(one) if isinstance(one, str) else f"column {one}" for one in names])


def _code(names: Sequence[str | int]) -> str:
    one = names[0]
    alone = repr(one) if isinstance(one, str) else f"X[:, {one}]"
    return f"evaluate(…, strata={alone if len(names) == 1 else f'{columns_named(names)} combined'})"


PYTHON = Terms(
    learners="BagAutoClassifier, BagBoostingClassifier, BagLogisticClassifier or BagNeuralClassifier",
    any_model="every estimator and every loss is right",
    values="a regressor",
    formation="the parameter formation",
    strata=_code,
    slope="evaluate",
    last="hold out the last bags rather than any",
    labels="evaluate(…, labels=…)",
)
"""What is called by its name in Python."""

COMMANDS = Terms(
    learners="--model auto, boosting, logistic or network",
    any_model="every --model is right",
    values="--model auto, boosting, ridge, tweedie or network",
    formation="--formation",
    strata=lambda names: f"bagwise evaluate --strata {','.join(map(str, names))}",
    slope="bagwise evaluate",
    last="hold out the last bags rather than any (--hold-out latest, --time)",
    labels="--labels",
)
"""What is typed on the command line."""


def advice(found: Diagnosis, terms: Terms = PYTHON) -> str:
    """What follows for the choice of methods, in sentences."""
    told = f"{_for_formation(found, terms)}."
    if found.drifting and not found.strata:
        told += f" Since they drift, {terms.last}, to see how a model does on later ones."
    return told


def _for_formation(found: Diagnosis, terms: Terms) -> str:
    if found.evidence.values:
        return _for_values(found, terms)
    fit = f"fit {terms.learners}, {_OF_ANY}"
    if found.too_few:
        return f"{fit}; if you know how the bags came about, say so by {terms.formation}"
    if found.formation.name == "random":
        return f"{terms.any_model}, and the label-free evaluation applies"
    if found.strata:
        return f"{fit}; evaluate stratum by stratum, {terms.strata(found.strata)}, since bags are random inside"
    if found.formation.name == "rates":
        why = "since rows of one label are alike in all bags; the risk of random bags is not right here"
        return f"{fit}; {terms.slope} goes by the slope of bag means on proportions, {why}"
    if found.formation.name == "effects" and not found.features_differ:
        mean = "an evaluation by residuals of bags, as for random ones, is right on average and only wide"
        doubt = "" if found.sureness == "clear" else "; of rates that differ a little, which look alike, it is not"
        return f"{fit}; where what is unseen has nothing to do with the features, {mean}{doubt}"
    ways = f"a few individual labels settle it ({terms.labels}), and so do some random bags"
    return f"{fit}; compare models by the likelihood of held-out bags; {_SINGLE}: {ways}"


def _for_values(found: Diagnosis, terms: Terms) -> str:
    if found.formation.name == "random":
        unless = (
            "unless means differ for reasons that features do not show, which only bags of different sizes can tell"
        )
        return f"fit {terms.values}; the label-free evaluation applies, {unless}"
    known = "how good one is for single rows is not known from such bags of values, and random bags would tell"
    return f"fit {terms.values}, and compare models by how far bags are from them; {known}"
