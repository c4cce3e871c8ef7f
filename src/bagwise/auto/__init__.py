"""Candidates of all families, chosen without labels."""

from bagwise.auto.candidates import default_candidates
from bagwise.auto.estimator import BagAutoClassifier

__all__ = ["BagAutoClassifier", "default_candidates"]
