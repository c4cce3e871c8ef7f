"""
Planning a release
==================

How much regret a bag size and a privacy budget cost, before any label is published: what is to be expected on average,
what is likely kept, what a theorem guarantees, and below what nobody can be sure to come.
"""

# %%
# Two candidates, a million rows. Where the curve of an ε is flat, larger bags cost nothing.

import matplotlib.pyplot as plt
import numpy as np

from bagwise.planning import Question, curves
from bagwise.planning.figure import plan_figure

question = Question(rows=1_000_000, epsilons=(1.0, 0.1), regret=0.01, hypotheses=2)
found = curves(question)
shown = found[found["k"].isin([16, 64, 256])].fillna({"epsilon": np.inf})
columns = ["epsilon", "k", "regret_expected", "regret_likely", "regret_guaranteed", "regret_impossible"]
print(shown[columns].to_string(index=False, float_format="%.4g"))

# %%

plan_figure(found, regret=0.01, figure=plt.figure(figsize=(6.8, 4.8), layout="constrained"))
plt.show()
