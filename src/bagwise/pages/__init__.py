"""Pages to look at and to send: a diagnosis, a model, a comparison of models, a reproduction run.

Each is one HTML file that needs nothing else: no network, no script, no font. The verdict comes first, in plain words.
What comes from users' tables is shown, never run. The same input gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bagwise.pages.comparison import comparison
from bagwise.pages.diagnosis import diagnosis
from bagwise.pages.model import model
from bagwise.pages.page import Page, write
from bagwise.pages.reproduction import reproduction
from bagwise.tables import BagTable

__all__ = ["Page", "comparison_page", "diagnosis_page", "model_page", "reproduction_page", "write"]


def diagnosis_page(data: BagTable, *, command: str | None = None) -> str:
    """HTML on events and reports: do they fit, are the bags random, what do they give away?

    data: as `tables.join` returns it.  command: how the page was made, to be shown on it.
    """
    return diagnosis(data, command=command).html


def model_page(
    folder: str | Path, data: BagTable | None = None, *, command: str | None = None, even_if_not_random: bool = False
) -> str:
    """HTML on a fitted model: how good it is without labels, what drives it, how it was made.

    folder: as `bagwise fit` wrote it.  data: events and reports to judge it by. Of those that it was fitted to, only
    the bags held out are used; of others, all. Without tables, the page tells what the model's file does.
    even_if_not_random: show biased numbers where bags are not random, with a warning, instead of none.
    """
    return model(folder, data, command=command, even_if_not_random=even_if_not_random).html


def comparison_page(
    folders: Sequence[str | Path],
    data: BagTable | None = None,
    *,
    command: str | None = None,
    even_if_not_random: bool = False,
) -> str:
    """HTML on several models, judged by the same bags, which none of them was fitted to; paired differences.

    even_if_not_random: show biased numbers where bags are not random; which model is best is told in no case then.
    """
    return comparison(folders, data, command=command, even_if_not_random=even_if_not_random).html


def reproduction_page(results: str | Path, *, command: str | None = None) -> str:
    """HTML on what `bagwise reproduce` stored in a folder: the paper's claims, figures and tables."""
    return reproduction(results, command=command).html
