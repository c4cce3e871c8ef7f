r"""Integrated gradients of networks: what features add to scores, along the way from one row to another.

.. math:: c_i = (x_i - m_i) \int_0^1 \partial_i s\bigl(m + t (x - m)\bigr)\, dt, \qquad \sum_i c_i = s(x) - s(m)

The integral is taken at Gauss and Legendre's points, which leave the more of the sum missing the less smooth a network
is: that is spread over features by how large their contributions are, so that they add up exactly.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from bagwise.explanation.contributions import adding_up_to
from bagwise.neural.training import score
from bagwise.utils.typing import Floats

_POINTS = 32


def integrated_gradients(module: nn.Module, X: Tensor, start: Tensor, rows: int) -> tuple[Floats, Floats]:
    """Contributions (n, features, outputs) to the scores of rows X (n, …), from those of a row `start` (…).

    rows: in a batch.  Also the scores (outputs,) of that row.

    >>> module = nn.Linear(2, 1)
    >>> values, base = integrated_gradients(module, torch.eye(2), torch.zeros(2), 8)
    >>> bool(np.allclose(values[:, :, 0], np.diag(module.weight.detach().numpy()[0]), atol=1e-6))
    True
    """
    base = score(module, start[None], 1).astype(float).reshape(-1)
    total = score(module, X, rows).astype(float).reshape(len(X), -1)
    places, weights = np.polynomial.legendre.leggauss(_POINTS)
    found = []
    for part in X.split(int(rows)):
        apart, mean = part - start, torch.zeros((len(base), *part.shape), dtype=part.dtype, device=part.device)
        for place, weight in zip((places + 1) / 2, weights / 2, strict=True):
            at = (start + float(place) * apart).detach().requires_grad_()
            said = module(at).reshape(len(at), -1)
            for output in range(len(base)):
                (slope,) = torch.autograd.grad(said[:, output].sum(), at, retain_graph=output + 1 < len(base))
                mean[output] += float(weight) * slope
        each = (mean * apart).reshape(len(base), len(part), -1).permute(1, 2, 0)
        found.append(each.cpu().numpy().astype(float))
    return adding_up_to(total - base, np.concatenate(found)), base
