"""Candidates of all families, chosen without labels."""

from bagwise.auto.estimator import BagAutoClassifier, default_candidates

__all__ = ["BagAutoClassifier", "default_candidates"]
