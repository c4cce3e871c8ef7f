"""What theory says in numbers: descriptions go in, values with their theorem and assumptions come out."""

from bagwise.theory.information import (
    InformationBound,
    SymmetricPair,
    binary_entropy,
    information_bound,
    limiting_information,
)

__all__ = ["InformationBound", "SymmetricPair", "binary_entropy", "information_bound", "limiting_information"]
