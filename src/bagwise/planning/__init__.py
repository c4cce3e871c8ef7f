"""Before collecting data: what bags, noise and reports cost, from theory and from a pilot table."""

from bagwise.planning.question import Question, curves
from bagwise.planning.rebagging import pilot
from bagwise.planning.sentences import sentences as sentences

__all__ = ["Question", "curves", "pilot"]
