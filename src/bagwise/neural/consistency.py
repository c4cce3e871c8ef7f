r"""Predictions that stay as they are where rows are changed in ways that do not matter, such as small shifts of images.

.. math:: \ell + \lambda \cdot \frac{1}{n} \sum_i \lVert h(x_i) - h(a(x_i)) \rVert^2

ℓ is the mean loss of a batch's bags, a changes rows, and λ weighs what predictions of the n rows of the batch lose by
it: nothing is asked of labels, so that it is right in every formation where what a does to rows leaves their labels as
they were.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bagwise.utils.parameters import ParameterError

Augment = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Consistency:
    """What is asked of predictions.

    augment: makes of rows (n, …) as the network reads them others of the same shape.  weight: λ.
    """

    augment: Augment
    weight: float

    def beside(self, x: Tensor) -> Tensor:
        """Rows x and, after them, what they are changed to."""
        if len(x) == 0:  # the bags of this batch are all with other processes
            return x
        changed = self.augment(x.clone())  # which may write to what it gets
        if not isinstance(changed, Tensor) or changed.shape != x.shape:
            got = f"a tensor of shape {tuple(changed.shape)}" if isinstance(changed, Tensor) else type(changed).__name__
            raise ParameterError(
                "augment", f"makes {got} of rows of shape {tuple(x.shape)}: it must give a tensor of the same shape."
            )
        return torch.cat([x, changed.to(x.dtype).to(x.device)])
