"""Rates of groups of rows from reports of bags that mix them: estimates, intervals, and bounds that always hold.

`group_rates` is for users. `bounds` holds what counts alone allow (Duncan and Davis, 1953), `shifts` the likelihood in
which every group has log odds of its own, and `rates` puts them together; `values` does so for sums of real labels.
"""

from bagwise.disaggregation.bounds import group_bounds
from bagwise.disaggregation.groups import group_rates
from bagwise.disaggregation.result import GroupRate, GroupRates

__all__ = ["GroupRate", "GroupRates", "group_bounds", "group_rates"]
