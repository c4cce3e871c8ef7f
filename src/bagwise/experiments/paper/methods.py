"""The methods compared, by name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Method:
    """A way to learn from bags.

    label: its name for readers.
    loss: of a network, a name of `aliases.PAPER_LOSSES`; None for an estimator that is no network.
    means: how a network estimates means, a name of `bagwise.means.MEANS`.
    """

    label: str
    loss: str | None = None
    means: str = "leave_one_out"

    @property
    def is_network(self) -> bool:
        """Whether it is trained by epochs, with a learning rate."""
        return self.loss is not None


METHODS: dict[str, Method] = {
    "ours": Method(label="Ours", loss="ours"),
    "li": Method(label="Li et al.", loss="li"),
    "vanilla_sq": Method(label="VanillaSQ", loss="vanilla_sq"),
    "vanilla_ce": Method(label="VanillaCE", loss="vanilla_ce"),
    "easyllp": Method(label="EasyLLP", loss="easyllp"),
    "ours_running": Method(label="ours, running mean", loss="ours", means="running"),
    "centred_log": Method(label="centred log loss", loss="centred_log", means="running"),
    "count_likelihood": Method(label="count likelihood", loss="count_likelihood"),
    "label_generation": Method(label="label generation", loss="label_generation"),
    "ridge": Method(label="ridge, closed form"),
    "boosting": Method(label="boosting"),
}
"""Every method by name; the first five are the paper's."""

PAPER = ("ours", "li", "vanilla_sq", "vanilla_ce", "easyllp")
