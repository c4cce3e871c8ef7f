"""Rates of groups in a register whose truth is known, by what bags tell of them, beside Goodman's regression.

Precincts report how many of their voters each party has; the register also says how many of each group are of which
party, which is for measuring alone. Nothing is chosen by it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from bagwise.bags import Bags
from bagwise.disaggregation import GroupRates, group_rates
from bagwise.experiments.bench.precincts import GROUPS, register
from bagwise.utils.typing import Floats

PARTIES = {"dem": "Democrats", "rep": "Republicans", "non": "no party"}
_LEVEL = 0.95
_TITLE = """# Rates of groups in a register, estimated from precincts

{precincts} precincts of eight counties in North Carolina with {voters:,} registered voters;
the truth is the register's own cross table, which nothing here learns from.
Written by `python -m bagwise.experiments.disaggregation`.

"""


def goodman(people: Floats, counts: Floats, *, weighted: bool, level: float = _LEVEL) -> tuple[Floats, Floats]:
    """Goodman's regression of shares of labels on shares of groups: rates (groups,), and their intervals (2, groups).

    people: (m, groups) of each bag.  counts: (m,) positives.  weighted: by the people of a bag, or all bags alike.
    The intervals are the usual ones of least squares.
    """
    size = people.sum(axis=1)
    root = np.sqrt(size if weighted else np.ones(len(size)))
    share, rate = root[:, None] * people / size[:, None], root * counts / size
    inverse = np.linalg.inv(share.T @ share)
    beta = inverse @ share.T @ rate
    free = len(size) - share.shape[1]
    error = np.sqrt(np.diag(inverse) * ((rate - share @ beta) ** 2).sum() / free)
    far = stats.t.ppf((1 + level) / 2, free) * error
    return beta, np.stack([beta - far, beta + far])


def estimates(people: Floats, counts: Floats, names: list[str]) -> GroupRates:
    """Rates of groups of people (m, groups) by the positives (m,) of bags, as `bagwise.group_rates` has them."""
    m, groups = people.shape
    code = np.tile(np.arange(groups), m).repeat(people.ravel().astype(int))
    bag = np.arange(m).repeat(people.sum(axis=1).astype(int))
    share = counts / people.sum(axis=1)
    p = float(counts.sum() / people.sum())
    bags = Bags.from_rows(share[bag], bag)
    by = np.array(names)[code]
    return group_rates(np.full(len(bag), p), None, bags=bags, by=by, formation="effects")


def table() -> tuple[pd.DataFrame, list[str]]:
    """One line per party and group, with the truth; and what the estimates assume."""
    found, told = register(), []
    people, names = found[list(GROUPS)].to_numpy(dtype=float), list(GROUPS)
    lines: list[dict[str, Any]] = []
    for party, title in PARTIES.items():
        counts = found[party].to_numpy(dtype=float)
        rates = estimates(people, counts, names)
        told.append(f"{title}: {rates.assumption}")
        plain, weighted = (goodman(people, counts, weighted=which) for which in (False, True))
        for one in rates.rates:
            g = names.index(one.value)
            truth = found[f"{GROUPS[one.value]}{party}"].sum() / people[:, g].sum()
            lines.append(
                {
                    "party": title,
                    "group": one.value,
                    "people": one.n_rows,
                    "truth": truth,
                    "estimate": one.rate,
                    "low": one.low,
                    "high": one.high,
                    "least": one.least,
                    "most": one.most,
                    "goodman": plain[0][g],
                    "goodman_low": plain[1][0, g],
                    "goodman_high": plain[1][1, g],
                    "weighted": weighted[0][g],
                    "weighted_low": weighted[1][0, g],
                    "weighted_high": weighted[1][1, g],
                }
            )
    return pd.DataFrame(lines), told


def page(found: pd.DataFrame, told: list[str], precincts: int) -> str:
    """The table in Markdown."""
    head = "party, group | truth | estimate | interval | bounds | Goodman | interval | weighted by voters | interval"
    lines = [f"| {head} |", "|" + " --- |" * 9]
    inside = {"": 0, "goodman_": 0, "weighted_": 0}
    for one in found.to_dict("records"):
        ends = {}
        for kind in inside:
            low, high = one[f"{kind}low"], one[f"{kind}high"]
            holds = low - 1e-12 <= one["truth"] <= high + 1e-12
            inside[kind] += holds
            ends[kind] = f"{low:.3f} to {high:.3f}{'' if holds else ' (misses)'}"
        cells = [f"{one['party']}, {one['group']}", f"{one['truth']:.3f}", f"{one['estimate']:.3f}", ends[""]]
        cells += [f"{one['least']:.3f} to {one['most']:.3f}", f"{one['goodman']:.3f}", ends["goodman_"]]
        cells += [f"{one['weighted']:.3f}", ends["weighted_"]]
        lines.append(f"| {' | '.join(cells)} |")
    n = len(found)
    said = f"Intervals at 95% hold the truth: {inside['']} of {n}, Goodman's {inside['goodman_']} of {n}"
    said += f", weighted by voters {inside['weighted_']} of {n}."
    columns = {"estimates": "estimate", "Goodman": "goodman", "weighted": "weighted"}
    errors = [f"{name} {np.abs(found[of] - found['truth']).mean():.3f}" for name, of in columns.items()]
    title = _TITLE.format(precincts=precincts, voters=int(found.groupby("party")["people"].sum().iloc[0]))
    distance = f"Mean distance from the truth: {', '.join(errors)}."
    return "\n".join([title + lines[0], *lines[1:], "", said, distance, "", *(f"- {one}" for one in told), ""])


def main(out: Path = Path("docs/results/disaggregation.md")) -> None:
    """Write the table."""
    found, told = table()
    out.write_text(page(found, told, len(register())))


if __name__ == "__main__":
    main()
