"""The answers of theory in words."""

from dataclasses import replace
from math import isfinite, sqrt

import pandas as pd

from bagwise.planning.question import KINDS, Question
from bagwise.theory import bag_information, largest_size


def sentences(question: Question, found: pd.DataFrame) -> list[str]:
    """The answers for people who do not read proofs."""
    lines = []
    for epsilon in question.epsilons:
        rows = found[found["epsilon"].isna() if epsilon is None else found["epsilon"] == epsilon].set_index("k")
        for k in question.sizes:
            lines += [*_at(question, rows.loc[k], k, epsilon), ""]
        if question.rows is not None and question.regret is not None:
            lines += [_which_size(question, epsilon, question.rows, question.regret), ""]
    return [*lines, *_meaning(question)]


def _at(question: Question, line: pd.Series, k: int, epsilon: float | None) -> list[str]:
    lines, noise, formed = [], f", {_noise(question, epsilon)}", _formed(question)
    if question.rows is not None:
        lines.append(f"{question.rows:,} rows in {line['bags']:,.0f} bags of {k:,}{formed}{noise}:")
        for kind, words in KINDS.items():
            regret = line[f"regret_{kind}"]
            found = f"{regret:.2g}" if isfinite(regret) else f"– ({_nothing(question)})"
            lines.append(f"  {words:<17} regret {found}")
        lines += _reported(question, k, epsilon)
        noise = ""  # is said once
    if question.regret is not None:
        lines.append(f"A regret of {question.regret:g} from bags of {k:,}{formed}{noise}:")
        for kind, words in KINDS.items():
            bags, with_ = line[f"bags_{kind}"], "" if kind == "impossible" else "with "
            found = f"{with_}{bags:,.0f} bags ({bags * k:,.0f} rows)" if isfinite(bags) else f"– ({_nothing(question)})"
            lines.append(f"  {words:<17} {found}")
        lines += [] if question.rows is not None else _reported(question, k, epsilon)
    return lines


def _nothing(question: Question) -> str:
    """Why there is no guarantee."""
    if question.formation != "random":
        return "the theorems are for random bags"
    if question.value_sd is not None or not question.setting(1, question.epsilons[0]).plain:
        return "the theorems are for counts that are exact or have discrete Laplace noise"
    return "no number of bags" if question.rows is None else "nothing below a constant guess follows from so few bags"


def _formed(question: Question) -> str:
    """How bags came about, after their size."""
    if question.formation == "rates":
        return f" whose rates differ (standard deviation {question.rates_sd:g})"
    if question.formation == "effects":
        return f" with effects (standard deviation {question.effects_sd:g} on log odds)"
    return " grouped by features" if question.formation == "features" else ""


def _noise(question: Question, epsilon: float | None) -> str:
    setting = question.setting(1, epsilon)
    if setting.noise_variance == 0:
        return "without noise"
    kind = {"gaussian": "Gaussian ", "laplace": "Laplace "}[setting.kind_of_noise] if not setting.plain_noise else ""
    said = "" if epsilon is None else f" of ε = {epsilon:g}"
    if question.sensitivity is not None and epsilon is not None:
        said += f" at a sensitivity of {question.sensitivity:g}"
    what = "count" if question.value_sd is None else "sum"
    return f"{kind}noise{said} (standard deviation {sqrt(setting.noise_variance):.3g} on each {what})"


def _reported(question: Question, k: int, epsilon: float | None) -> list[str]:
    """What it costs that reports are not exact, and what further tables add."""
    setting, lines = question.setting(k, epsilon), []
    if setting.cells:
        made = {"hidden": "hidden between {0[0]:g} and {0[1]:g}", "rounded": "rounded to multiples of {0:g}"}
        made["clamped"] = "clamped to {0[0]:g} to {0[1]:g}"
        told = [text.format(getattr(question, name)) for name, text in made.items() if getattr(question, name)]
        share = bag_information(setting) / bag_information(replace(setting, hidden=None, rounded=None, clamped=None))
        lines.append(f"  Counts {', '.join(told)} keep {share:.0%} of what they would tell.")
    if question.further:
        sizes = " and ".join(f"{one:,}" for one in question.further)
        more = setting.together(1e6) / 1e6
        lines.append(f"  With further tables, of bags of {sizes}, they tell {more:.2f} times as much as alone.")
    return lines


def _which_size(question: Question, epsilon: float | None, rows: int, regret: float) -> str:
    found = largest_size(question.setting(1, epsilon), rows, regret, question.axis)
    parts = []
    for name, words in (KINDS | {"impossible": "possible at best"}).items():
        k = found[name]
        size = "no bag size" if k is None else f"bags of {k:,}{' or more' if k == max(question.axis) else ''}"
        parts.append(f"{words} for {size}")
    which = f"The largest bags that give a regret of {regret:g} with {rows:,} rows, {_noise(question, epsilon)}"
    return f"{which}: {', '.join(parts)}."


def _meaning(question: Question) -> list[str]:
    what = f"a choice among {question.hypotheses} candidates"
    if question.parameters is None:
        what += ", the true one included"
    else:
        model = f"a linear model of {question.parameters} parameters fitted by least squares (likely, expected)"
        what = f"{model} and of {what} (guaranteed, impossible)"
    setting, kept = question.setting(1, None), f"{1 - question.error:.0%}"
    worst = "" if question.parameters is not None else ", for the candidates that make it largest"
    lines = [
        f"Regret is by how much the mean square error (Brier score) exceeds that of the best model, here for {what}.",
        f"Expected is the mean of the regret and likely its {kept} quantile{worst}, if bags are as said and the best "
        f"model's own square error is at most {setting.best_risk:.3g}: plan with these.",
        f"Guaranteed is what a theorem promises with probability {kept} for every distribution, the worst that anyone "
        "could think of included, and so asks for far more bags than are needed as a rule.",
        f"Below the regret called impossible no method can promise to come with probability {kept}.",
    ]
    if question.value_sd is not None:
        lines[0] = lines[0].replace(" (Brier score)", "")
    lines += [] if question.formation == "random" else [_MEANING[question.formation]]
    return [*lines, *dict.fromkeys(text for name, text in _OF_REPORTS.items() if getattr(question, name))]


_OF_CELLS = (
    "Counts that are hidden, rounded or clamped are learned from as lying between their ends; what is impossible is "
    "said of counts that are not."
)
_OF_REPORTS = {
    "hidden": _OF_CELLS,
    "rounded": _OF_CELLS,
    "clamped": _OF_CELLS,
    "further": "Further tables are taken to be crossed with the first, and reported in the same way; one that groups "
    "rows as another does, or joins its bags, adds nothing. Guaranteed is by the first alone.",
    "value_sd": "Bags report sums of values; regret is in their unit, squared.",
}


_MEANING = {
    "rates": "Rows of one label are taken to be alike in all bags: rows of a bag with more positives then tell what "
    "positives look like.",
    "features": "Rows with the same features are taken to have the same chances in all bags; without a share between "
    "bags, the numbers are for what bags do not differ in.",
    "effects": "Something unseen is taken to move the log odds of all rows of a bag, which limits what its count "
    "tells, however large it is; without a share between bags, the numbers are for what bags do not differ in.",
}
