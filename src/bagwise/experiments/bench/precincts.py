"""A register of voters whose reports and truth are both known: precincts, each with its voters by group and by party.

Bags are precincts, which report how many of their voters are Democrats; the model sees the voter's group. How many of
each group are Democrats is in the cross table, which is for measuring alone.
"""

import numpy as np
import pandas as pd

from bagwise.datasets import Split, encode
from bagwise.datasets.files import file, held
from bagwise.utils.typing import Integers

_REGISTER = "precincts/senc.tsv"
GROUPS = {"white": "wh", "black": "bl", "natam": "natam"}
"""Columns of the register with the voters of each group, and how those of the cross table begin."""


def register() -> pd.DataFrame:
    """A line per precinct: its voters by group, by party, and by both."""
    if not held(_REGISTER):
        raise FileNotFoundError(f"the precinct register is not there: set BAGWISE_DATA to a folder with {_REGISTER}.")
    return pd.read_csv(file(_REGISTER), sep=" ")


def _voters() -> pd.DataFrame:
    """One row per voter: number of the precinct, group, and whether a Democrat."""
    table, parts = register(), []
    for group, short in GROUPS.items():
        democrats = table[f"{short}dem"].to_numpy()
        for label, count in ((1, democrats), (0, table[group].to_numpy() - democrats)):
            parts.append(pd.DataFrame({"precinct": np.repeat(table.index, count), "group": group, "democrat": label}))
    return pd.concat(parts).sort_values("precinct", kind="stable", ignore_index=True)


def bag_ids() -> Integers:
    """The precinct of each voter."""
    return np.asarray(_voters()["precinct"])


def load(*, context: bool) -> tuple[Split, Split]:
    """The voters, to learn from and to measure on, as a table and as numbers.

    context: whether a row also tells the county, and the shares of groups in the precinct.
    """
    table, voters = register(), _voters()
    X = pd.DataFrame({"group": pd.Categorical(voters["group"], categories=list(GROUPS))})
    if context:
        of_row = table.loc[voters["precinct"]].reset_index(drop=True)
        X["county"] = of_row["county"].astype("category")
        for group in list(GROUPS)[:2]:
            X[f"share_{group}"] = of_row[group] / of_row["total"]
    y = voters["democrat"].to_numpy()
    whole = Split(X, y, X, y)
    return whole, encode(whole)
