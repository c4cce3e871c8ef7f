"""Trees grown by several processes, each of which holds the rows of some streams of blocks.

LightGBM's data-parallel learner adds up histograms over the processes; what the objective needs of the rows of others
are sums of streams (see `boosting.parts`). Bins are found on a sample of the rows of all processes. Gradients are
rounded so that sums of them are exact in whatever order they are added up. So trees and leaf values are the same,
however many processes there are.

A stretch of trees is grown by a booster, a seed and an objective of its own: what is known after one is its trees, from
which each process finds the scores of its rows again. So a fit that is taken up from a checkpoint goes on as it would
have.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import lightgbm as lgb
import numpy as np
import torch

from bagwise.bags import Bags
from bagwise.boosting import links
from bagwise.boosting.dataset import TreeOptions, in_blocks
from bagwise.boosting.growth import add_tree, objective_of
from bagwise.boosting.leaves import count_leaves
from bagwise.boosting.network import Machines, network
from bagwise.boosting.parts import Parts
from bagwise.boosting.trees import Boosted
from bagwise.data.rows import BagRows, bags_in_order, row_starts, subset
from bagwise.distributed.checkpoints import unpacked
from bagwise.distributed.options import Distributed, check_streams
from bagwise.distributed.processes import Processes
from bagwise.utils.deadline import check_time
from bagwise.utils.typing import Floats

STRETCH = 10
"""Trees that one booster grows; checkpoints lie between stretches."""

_SAMPLE_ROWS, _SAMPLE_NUMBERS = 200_000, 2**25  # that bins are found on, which every process holds meanwhile
_DIGITS = 20  # binary ones of a gradient: eight billion of them add up without rounding
_END = "end of trees\n"


@dataclass(frozen=True)
class Task:
    """One fit of at most `n_trees` trees."""

    options: TreeOptions
    n_trees: int
    seed: int


@dataclass(eq=False)
class Progress:
    """What is grown so far, in LightGBM's text, and where it is kept.

    texts: of each fit, those of its stretches.  centre: offsets of the mean of all fits, and of each, once all are
    grown; the texts are then those of whole fits.
    """

    how: Distributed
    texts: list[list[str]]
    centre: list[list[float]] | None = None

    @classmethod
    def last(cls, how: Distributed, n_fits: int) -> Progress:
        """From the last checkpoint, if there is one."""
        checkpoints, leads = how.checkpoints, how.processes.leads
        found = how.processes.share_bytes(checkpoints.last() if checkpoints and leads else b"")
        tensors, facts = unpacked(found) if found else ({}, {})
        texts: list[dict[int, str]] = [{} for _ in range(n_fits)]
        for name, data in tensors.items():
            fit, number = map(int, name.split("."))
            texts[fit][number] = data.numpy().tobytes().decode()
        return cls(how, [[own[number] for number in sorted(own)] for own in texts], facts.get("centre"))

    def save(self) -> None:
        """Write a checkpoint."""
        checkpoints, step = self.how.checkpoints, sum(n_trees(text) for own in self.texts for text in own)
        if checkpoints is None or not self.how.processes.leads:
            return
        each = {f"{fit}.{number}": text for fit, own in enumerate(self.texts) for number, text in enumerate(own)}
        tensors = {name: torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8) for name, text in each.items()}
        checkpoints.save(step + (self.centre is not None), tensors, {"centre": self.centre})

    def finish(self, fits: Sequence[Boosted], offset: Floats) -> None:
        """All is known: keep it for who takes it over."""
        self.texts = [[fit.boosters[0].model_to_string(num_iteration=-1)] for fit in fits]
        self.centre = [offset.tolist(), *(fit.offset.tolist() for fit in fits)]
        self.save()

    def finished(self, prior: Floats, tasks: Sequence[Task]) -> tuple[list[Boosted], Floats] | None:
        """The fits, and the offset of their mean, if all is known."""
        if self.centre is None:
            return None
        offset, *each = map(np.array, self.centre)
        boosters = [[lgb.Booster(model_str=merged(own))] for own in self.texts]
        made = [Boosted(prior, own, task.options.link) for own, task in zip(boosters, tasks, strict=True)]
        return [replace(fit, offset=own) for fit, own in zip(made, each, strict=True)], offset


@dataclass(eq=False)
class Grower:
    """What this process holds, ready for trees to be grown on the rows of all.

    blocks: of its streams, one stream after the other.  parts: the bags of these.  binned: their rows, as LightGBM's
    machines in this process hold them.  alone: a booster without trees, on other data.
    """

    data: BagRows
    how: Distributed
    blocks: list[int]
    parts: Parts
    binned: list[lgb.Dataset]
    alone: lgb.Booster
    prior: Floats
    _down: Floats = field(init=False)

    @classmethod
    def of(
        cls, data: BagRows, how: Distributed, options: TreeOptions, categorical: Sequence[int], prior: Floats
    ) -> Grower:
        """Find the bins, and read the rows of this process's streams."""
        n_streams, processes = check_streams(data, how), how.processes
        streams = np.array_split(np.arange(len(data)), n_streams)
        mine = np.arange(n_streams)[processes.rank :: processes.world]
        blocks = np.concatenate([streams[one] for one in mine]).tolist()
        whole = without_rows(data)
        edges = [(int(data.starts[streams[one][0]]), int(data.starts[streams[one][-1] + 1])) for one in mine]

        def gather(own: Floats) -> Floats:
            every = np.zeros((n_streams, *own.shape[1:]))
            every[mine] = own
            return processes.total(every)

        bags = [subset(data, np.arange(first, last)) for first, last in edges]
        parts = Parts(bags, whole, [slice(first, last) for first, last in edges], gather)
        sample = _sample(data, processes, blocks)
        given = options.for_lightgbm(0, data.shape[1]) | {"bin_construct_sample_cnt": len(sample)}
        told: Any = {"params": given, "categorical_feature": list(categorical)}
        found = lgb.Dataset(sample, label=np.zeros(len(sample)), **told).construct()
        del sample
        rows: list[Any] = [in_blocks(data, blocks)]
        if processes.world == 1:  # two machines: see `network`
            rows[0][-1].batch_size -= 1
            rows.append(data.block(blocks[-1])[-1:])
        sizes = (sum(map(len, rows[0])), 1)
        binned = [
            lgb.Dataset(own, label=np.zeros(size), reference=found, params=given).construct()
            for own, size in zip(rows, sizes, strict=False)
        ]
        return cls(data, how, blocks, parts, binned, lgb.Booster(given, found), prior)

    def fits(self, tasks: Sequence[Task], progress: Progress) -> list[Boosted]:
        """The fits, one after the other, those that are grown so far grown on."""
        self._down = np.ones((2, self.parts.places[-1].stop), dtype=np.float32)
        with network(self.how.processes, self.alone, self.binned) as machines:
            return [self._fit(number, tasks, progress, machines) for number in range(len(tasks))]

    def _fit(self, number: int, tasks: Sequence[Task], progress: Progress, machines: Machines) -> Boosted:
        """One of the fits."""
        task, texts, how = tasks[number], progress.texts[number], self.how
        options, parts, every = task.options, self.parts, how.checkpoints.every if how.checkpoints else 0
        before, trees = (sum(one.n_trees for one in some) for some in (tasks[:number], tasks))
        scores, kept, rounded = self._scores(options, texts), len(texts), self._rounded
        stuck = bool(links.beyond(self.prior, options.link).any()) or (bool(texts) and not n_trees(texts[-1]))
        for stretch in range(len(texts), 0 if stuck else -(-task.n_trees // STRETCH)):
            seeds = np.random.SeedSequence(task.seed, spawn_key=(stretch,)).generate_state(STRETCH + 1) >> 1
            objective = objective_of(options, parts, 0, float(self.prior[0]))
            machines.begin(options.for_lightgbm(int(seeds[-1]), self.data.shape[1]))
            booster = machines.booster
            for done in range(stretch * STRETCH, min((stretch + 1) * STRETCH, task.n_trees)):
                check_time()
                if options.extra_trees:
                    machines.seed(int(seeds[done % STRETCH]))
                add_tree(booster, objective, scores, self._down, self._blocks, options, machines.grow, rounded=rounded)
                if how.tell is not None:
                    how.tell(before + done + 1, trees)
            texts.append(booster.model_to_string(num_iteration=-1))
            if booster.num_trees() == 0:
                break
            if (stretch + 1) * STRETCH >= task.n_trees or (len(texts) - kept) * STRETCH >= every:
                progress.save()
                kept = len(texts)
        whole = merged([self.alone.model_to_string(num_iteration=-1), *texts])
        model = Boosted(self.prior, [lgb.Booster(model_str=whole)], options.link)
        model.trained = scores[:, None]
        return model

    def _scores(self, options: TreeOptions, texts: Sequence[str]) -> Floats:
        """(n,) scores of the rows by the trees so far, added up in the same order as when these were grown."""
        scores = np.full(self.parts.places[-1].stop, float(links.score_of(self.prior, options.link)[0]))
        if self.data.offset is not None:
            scores += np.concatenate([bags.offset for bags in self.parts.bags if bags.offset is not None])
        booster = lgb.Booster(model_str=merged(texts)) if texts else self.alone
        values = [_leaf_values(booster, tree) for tree in range(booster.num_trees())]
        first = 0
        for block in self._blocks() if values else ():
            leaves = booster.predict(block, pred_leaf=True, num_threads=options.n_jobs).astype(np.intp)
            for value, leaf in zip(values, leaves.reshape(len(block), -1).T, strict=True):
                scores[first : first + len(block)] += value[leaf]
            first += len(block)
        return scores

    def _blocks(self) -> Iterator[Floats]:
        """Its rows."""
        return (self.data.block(number) for number in self.blocks)

    def _rounded(self, values: Floats) -> Floats:
        """Values on a grid that is coarse enough for sums to be exact, and much finer than their noise."""
        farthest = max(map(abs, self.parts.ends(values)))
        if farthest == 0:
            return values
        unit = 2.0 ** (math.ceil(math.log2(farthest)) - _DIGITS)
        return np.asarray(np.rint(values / unit) * unit)


def merged(texts: Sequence[str]) -> str:
    """LightGBM's text of the trees of several boosters, one after the other."""
    heads, trees = [], []
    for text in texts:
        head, *own = text[: text.index(_END)].split("Tree=")
        heads.append(head)
        trees += [one.partition("\n")[2] for one in own]
    # Without the line of sizes, by which it would jump to places in the text, LightGBM reads in order.
    head = "".join(line for line in heads[0].splitlines(keepends=True) if not line.startswith("tree_sizes="))
    return head + "".join(f"Tree={number}\n{tree}" for number, tree in enumerate(trees)) + _END


def n_trees(text: str) -> int:
    """How many trees a text of LightGBM has."""
    return text[: text.index(_END)].count("Tree=")


def _leaf_values(booster: lgb.Booster, tree: int) -> Floats:
    return np.array([booster.get_leaf_output(tree, leaf) for leaf in range(count_leaves(booster, tree))])


def without_rows(data: BagRows) -> Bags:
    """All bags, each as one row that stands for all of its people: reports, of whoever's rows."""
    n_bags = len(data.size)
    noise = None if data.noise_variance is None else np.array(data.noise_variance)
    reported: Any = {"interval": data.interval, "weight": np.array(data.size, dtype=float)}
    return bags_in_order(np.arange(n_bags), np.ones(n_bags, dtype=int), np.array(data.proportion), noise, **reported)


def _sample(data: BagRows, processes: Processes, blocks: Sequence[int]) -> Floats:
    """Some rows of all blocks, the same for any number of processes; each reads those of its own."""
    n_rows, n_columns = data.shape
    some = min(n_rows, _SAMPLE_ROWS, max(1, _SAMPLE_NUMBERS // n_columns))
    chosen = np.sort(np.random.default_rng(0).choice(n_rows, some, replace=False, shuffle=False))
    starts, sample = row_starts(data), np.zeros((some, n_columns))
    for number in blocks:
        first, last = np.searchsorted(chosen, starts[number : number + 2])
        if last > first:
            sample[first:last] = data.block(number)[chosen[first:last] - starts[number]]
    return processes.total(sample)
