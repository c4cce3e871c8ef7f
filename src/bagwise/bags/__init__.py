"""Which rows form which bag, and what each bag reported."""

from bagwise.bags.bags import Bags
from bagwise.bags.grouping import aggregate, as_bags, random_bags
from bagwise.bags.several import several

__all__ = ["Bags", "aggregate", "as_bags", "random_bags", "several"]
