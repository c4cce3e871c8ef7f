"""What is done about bags that do not fit: which kinds are left out, what may be behind them, and how that biases."""

import warnings
from collections.abc import Collection, Sequence

from bagwise.privacy import SelectedBagsWarning
from bagwise.tables.bag_table import MISMATCHES, Mismatch
from bagwise.utils.parameters import Parameter, check_parameters, one_of, several
from bagwise.utils.text import listed

OF_COUNTS = ("no_value", "outside", "impossible")  # what depends on labels: to leave such bags out biases
_ON_MISMATCH = one_of("error", "drop") | several(one_of(*MISMATCHES), f"of the kinds {', '.join(MISMATCHES)}")


def dropped(on_mismatch: str | Sequence[str]) -> set[str]:
    """The kinds of mismatch that are left out; on_mismatch: as in `join`.

    >>> dropped("error"), dropped(["unreported"])
    (set(), {'unreported'})
    """
    check_parameters({"on_mismatch": on_mismatch}, {"on_mismatch": _ON_MISMATCH})
    if on_mismatch == "drop":
        return {*MISMATCHES}
    return {*()} if on_mismatch == "error" else {on_mismatch} if isinstance(on_mismatch, str) else {*on_mismatch}


def further_keys(spare: Sequence[str], events: Collection[str]) -> list[str]:
    """What to do where bags have several reports, in parts of a sentence.

    spare: columns of the reports that say nothing else.  events: columns of the events.
    """
    shared = [repr(name) for name in spare if name in events]
    if shared:
        both = f"both tables have {listed(shared)}, too: name all columns that tell reports apart ("
        return [both, Parameter("keys"), ")"]
    if spare:
        named = listed([repr(name) for name in spare])
        return [f"the reports have {named}, too, which the events lack: add it to the events, or add the reports up"]
    return ["add the reports up, to one line per bag"]


def remedy(wrong: Mismatch, further: Sequence[str]) -> list[str]:
    """What to do about a mismatch, in parts of a sentence.  further: see `further_keys`."""
    if wrong.kind == "repeated":
        return [*further]
    noised = wrong.kind in ("impossible", "outside")
    return ["repair the tables", *([" or declare the noise (", Parameter("noise_variance"), ")"] if noised else [])]


def warn_of_bias(left_out: Mismatch, low: int) -> None:
    """Say which way it biases to leave bags out for what they report.  low: how many of them report less than 0."""
    said, high = f"{left_out}, are left out, which biases what is learned: ", left_out.bags - low
    if left_out.kind == "no_value":
        how = ["where small counts are hidden, as they often are, the bags that are left report too much."]
    else:
        both = "too much where labels are rare, and too little where they are many"
        way = "too much" if low > high else "too little" if high > low else both
        sides = f"{low:,} of them report less than 0 and {high:,} more than all of their rows"
        told = f"{sides}, so that the bags that are left report {way}; if that is noise, declare it ("
        how = [told, Parameter("noise_variance"), ")."]
    warnings.warn(SelectedBagsWarning(said, *how), stacklevel=5)
