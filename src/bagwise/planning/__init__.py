"""Before collecting data: what a bag size and a privacy budget cost, from theory and from a pilot table."""

from bagwise.planning.pilot import pilot
from bagwise.planning.question import Question, curves

__all__ = ["Question", "curves", "pilot"]
