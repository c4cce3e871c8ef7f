r"""Number of trees, penalty and stretch, chosen by bags that fits did not see.

Counts of two classes choose by their likelihood (`Stage`, `best_stage`), in every formation. Real labels and several
classes choose by the label-free risk of random bags (`Path`, `choose`), as follows.

Shrunken steps and penalties keep predictions too close to p as long as trees are few. Held-out bags show by how much:
the stretch s of least squares of :math:`\sqrt{k_j}(\alpha_j - p)` on the deviations :math:`\Sigma(h - E[h])/\sqrt{k_j}`
makes :math:`p + s(h - p)` right on average. So fewer trees suffice, which overfit less. Lengths and penalties are
chosen for each kind of fit by itself; the last stretch is that of their mean, and classifiers apply it to log odds,
where it leads to no probability beyond 0 or 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bagwise.bags import Bags
from bagwise.folds import Fold
from bagwise.risk import bag_losses, clearly_above, least_of
from bagwise.utils.typing import Booleans, Floats, Integers

_SAMPLE = 2**15  # rows to know a mean by
_WATCHED, _ENOUGH_BAGS = 2**17, 2048  # rows that are watched, where bags are more than so many
_STRETCH_BOUNDS = (0.5, 2.0)  # what lies outside is due to chance, or to too few trees


@dataclass(frozen=True, eq=False)
class Path:
    """What fits say about bags they did not see, after each tree.

    deviations: (m, outputs, trees).  targets: (m, outputs) √k(α − p).  noise: (m,) s²/k, what declared noise adds.
    worth: (m,) what each bag counts.

    >>> path = Path(np.array([[[0.1, 0.4]], [[-0.1, -0.4]]]), np.array([[0.4], [-0.4]]), np.zeros(2), np.ones(2))
    >>> path.stretch
    array([2., 1.])
    >>> path.losses.mean(axis=0).round(3)
    array([0.04, 0.  ])
    """

    deviations: Floats
    targets: Floats
    noise: Floats
    worth: Floats

    @property
    def stretch(self) -> Floats:
        """(trees,) by what to multiply h − p."""
        products = np.einsum("mct,mc,m->t", self.deviations, self.targets, self.worth)
        squares = np.einsum("mct,mct,m->t", self.deviations, self.deviations, self.worth)
        return np.where(squares > 0, np.clip(products / np.where(squares > 0, squares, 1), *_STRETCH_BOUNDS), 1.0)

    @property
    def losses(self) -> Floats:
        """(m, trees) label-free loss of each bag by the stretched predictions, whose mean is p, as it counts."""
        # Sums over √k: each bag stands as one row whose p and E[h] are 0.
        unit = np.ones(len(self.targets))
        losses = bag_losses(self.deviations * self.stretch, unit, self.targets, prior=0, mean=0, noise=self.noise)
        return np.asarray(losses * (self.worth / self.worth.mean())[:, None])


@dataclass(frozen=True, eq=False)
class Choice:
    """A penalty and a number of trees for one kind of fit.

    risks: (trees,) label-free risk by number of trees.  deviations: (m, outputs) of held-out bags after `n_trees`.
    """

    reg_lambda: float
    n_trees: int
    risks: Floats
    deviations: Floats


@dataclass(frozen=True, eq=False)
class Mean:
    """The mean of fits of several kinds, as held-out bags like it.

    kinds: what was chosen for each.  stretch: of the mean.  losses: (m,) its label-free losses.
    """

    kinds: dict[str, Choice]
    stretch: float
    losses: Floats


def choose_mean(paths: Mapping[str, Mapping[float, Path]]) -> Mean:
    """The penalty and the number of trees of each kind, and the stretch of their mean.

    paths: of each kind, by penalty.
    """
    chosen = {kind: choose(found) for kind, found in paths.items()}
    deviations = np.mean([choice.deviations for choice in chosen.values()], axis=0)
    some = next(iter(next(iter(paths.values())).values()))
    mean = replace(some, deviations=deviations[:, :, None])  # a path one step long
    return Mean(chosen, float(mean.stretch[0]), mean.losses[:, 0])


def choose(paths: Mapping[float, Path]) -> Choice:
    """The penalty, of those that are keys of `paths`, and the number of trees."""
    losses = {penalty: path.losses for penalty, path in paths.items()}
    penalty = list(paths)[choose_path(list(losses.values()))]
    n_trees, path = choose_length(losses[penalty]), paths[penalty]
    at_end = path.deviations[:, :, n_trees - 1] if n_trees else np.zeros_like(path.targets)
    return Choice(penalty, n_trees, losses[penalty].mean(axis=0), at_end)


def join(parts: list[Path]) -> Path:
    """The paths of several folds as one; a fold that stopped early keeps its last deviations."""
    trees = [part.deviations.shape[2] for part in parts]
    even = [
        np.pad(part.deviations, ((0, 0), (0, 0), (0, max(trees) - n)), mode="edge" if n else "constant")
        for part, n in zip(parts, trees, strict=True)
    ]
    rest = (np.concatenate([getattr(part, name) for part in parts]) for name in ("targets", "noise", "worth"))
    return Path(np.concatenate(even), *rest)


def choose_length(losses: Floats) -> int:
    """Number of trees: past the least risk, until the bags agree that it got worse.

    losses: (m, trees) loss of each held-out bag after each tree.
    Averaging several fits allows for more trees than the risk of one shows; so growth stops where the mean rise over
    bags exceeds its standard error.

    >>> falls_then_rises = np.array([[3.0, 2.0, 2.1, 2.5], [3.0, 2.0, 1.9, 2.6]])
    >>> choose_length(falls_then_rises)
    3
    """
    if losses.shape[1] == 0:
        return 0
    best = int(np.argmin(losses.mean(axis=0)))
    worse = np.flatnonzero(clearly_above(losses[:, best:], losses[:, [best]]))
    return best + int(worse[0]) if len(worse) else losses.shape[1]


def choose_path(losses: list[Floats]) -> int:
    """The first, unless another's least risk is lower by more than a standard error of the difference over bags.

    losses: (m, trees) for each penalty.

    >>> choose_path([np.array([[0.2], [0.3], [0.25]]), np.array([[0.1], [0.2], [0.15]])])
    1
    """
    if min(each.shape[1] for each in losses) == 0:
        return 0
    return least_of([each[:, int(np.argmin(each.mean(axis=0)))] for each in losses])


# -- two classes, by likelihood -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Stage:
    """What a fit says after some of its trees.

    n_trees: how many.  sample: (rows,) log odds of some rows of the table.  known: which of these it was fitted to.
    watched: (n,) log odds of the rows of bags it did not see.  gains: (m,) of these bags over the mean label.
    weight, offset: (rows,) of those of the sample, None where rows are alike. Log odds are without the offset.
    """

    n_trees: int
    sample: Floats
    known: Booleans
    watched: Floats
    gains: Floats
    weight: Floats | None = None
    offset: Floats | None = None

    def of_sample(self) -> tuple[Floats | None, Floats | None]:
        """Weight and offset of the rows of the sample that it was fitted to."""
        weight, offset = (None if one is None else one[self.known] for one in (self.weight, self.offset))
        return weight, offset


def some_watched(folds: Sequence[Fold], bags: Bags) -> list[Fold]:
    """The same folds, with no more bags held out than are needed where rows are many."""
    step = max(1, min(bags.n_bagged // _WATCHED, len(bags) // _ENOUGH_BAGS))
    return [Fold(fold.train, fold.held_out[::step]) for fold in folds]


def sample_of(folds: Sequence[Fold], bags: Bags) -> Integers:
    """Rows of bags that every fit is fitted to, or watches."""
    rows = bags.take(np.sort(np.concatenate([fold.held_out for fold in folds]))).order
    return np.sort(rows[:: -(-len(rows) // _SAMPLE)])


def best_stage(paths: Sequence[Sequence[Stage]]) -> list[Stage]:
    """The stage of each fold that held-out bags choose, as `choose_length` does; where it stopped earlier, its last.

    paths: the stages of each fold.
    """
    longest = max(map(len, paths))
    even = [[*path, *[path[-1]] * (longest - len(path))] for path in paths]
    losses = np.concatenate([[-stage.gains for stage in path] for path in even], axis=1).T
    chosen = max(choose_length(losses), 1) - 1
    return [path[min(chosen, longest - 1)] for path in even]


def seeds_of(folds: Sequence[Fold], rng: np.random.Generator) -> list[int]:
    """Of the fits without each fold: every kind and penalty meets the same."""
    return [int(one) for one in rng.integers(2**31, size=len(folds))]
