r"""Releasing the proportions of bags with label differential privacy.

Two data sets are neighbours if they differ in the label of one row; rows, features and bags are the same. A release is
(ε, δ)-differentially private if no outcome is more than :math:`e^\varepsilon` times as likely (plus δ) under one of
them as under the other. Noise comes from OpenDP (``pip install 'bagwise[privacy]'``), never from a generator of ours.
"""

from bagwise.privacy.mechanism import Budget, noise_variance
from bagwise.privacy.releases import Release, SelectedBagsWarning, release

__all__ = ["Budget", "Release", "SelectedBagsWarning", "noise_variance", "release"]
