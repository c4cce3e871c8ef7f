"""Axes that figures share: a logarithmic one has several ticks with numbers, whatever range it shows."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from bagwise.plotting import draw_ratios


def numbered(axis):
    """The numbers that can be read off an axis."""
    axis.figure.canvas.draw()
    low, high = sorted(axis.get_view_interval())
    ticks = [*zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)]
    ticks += zip(axis.get_minorticklocs(), axis.get_minorticklabels(), strict=True)
    return [label.get_text() for place, label in ticks if low <= place <= high and label.get_text()]


@pytest.mark.parametrize("largest", [0.9, 1.5, 9.9, 10, 11, 99, 870, 1e9])
def test_ratios_have_several_ticks(largest):
    panel = Figure().add_subplot()
    values = np.array([0.9, 1.0, largest])
    draw_ratios(panel, ["a", "b", "c"], values, values > 3)
    assert panel.get_xscale() == "log"
    assert len(numbered(panel.xaxis)) >= 2
