"""Writes docs/scaling.md: what was measured on two processes, a cost model fitted to it, and what that says on paper.

`python benchmarks/distributed.py --out docs/results/scaling.json` measures, and `python benchmarks/growth.py` how cost
grows; this computes.
"""

import json
from pathlib import Path

import numpy as np

import growth
from bagwise.utils.files import replacing

ROOT = Path(__file__).parent.parent
FIGURES, PAGE = ROOT / "docs/results/scaling.json", ROOT / "docs/scaling.md"

ROWS = 1_000_000_000
PER_MACHINE, PER_PROCESS = 16, 4096  # processes of a machine, and their rows of a batch
BANDWIDTH, LATENCY = 1.25e9, 50e-6  # of a network between machines: 10 Gbit/s
PER_BAG = 24 + 40  # bytes: size, proportion and noise; and the order of a pass while it is made
BLOCK = 2**21 * 4  # bytes of a block as gathered


def model(figures: dict) -> tuple[float, float, float]:
    """Seconds of a row, by what factor it is slower beside others, and seconds that a step takes apart from rows."""
    batches = {int(batch): rates for batch, rates in figures["batches"].items()}
    row = 1 / np.mean([rates["one"] for rates in batches.values()])
    steps = np.array([[batch / 2 * row, 1.0] for batch in batches])
    (slower, apart), *_ = np.linalg.lstsq(steps, np.array([b / r["two"] for b, r in batches.items()]), rcond=None)
    return float(row), float(slower), float(apart)


def on_paper(figures: dict, machines: int) -> list[str]:
    """A line of the table: one pass over a billion rows."""
    row, slower, apart = model(figures)
    processes, weights = machines * PER_MACHINE, 4 * figures["weights"]
    batch = processes * PER_PROCESS
    sums = 4 * batch / figures["bag"]
    network = 0.0
    if machines > 1:  # a ring: every number goes around twice, in as many messages as there are machines
        network = 2 * (weights + sums) / BANDWIDTH + 4 * (machines - 1) * LATENCY
    step = PER_PROCESS * row * slower + apart + network
    memory = ROWS / figures["bag"] * PER_BAG + 2 * max(1, 8 // processes) * BLOCK + 3 * 4 * weights
    return [
        f"{machines:,}",
        f"{processes:,}",
        f"{batch:,}",
        f"{ROWS * figures['bytes_per_row'] / machines / 1e9:,.1f} GB",
        f"{2 * (weights + sums) / 1e6:.1f} MB",
        f"{memory / 1e9:.2f} GB",
        f"{ROWS / batch:,.0f}",
        f"{step * 1e3:.0f} ms",
        f"{ROWS / batch * step / 60:,.1f} min",
        f"{PER_PROCESS * row / step:.0%}",
    ]


def page(figures: dict) -> str:
    """The page as text."""
    row, slower, apart = model(figures)
    measured = "\n".join(
        f"| {int(batch):,} | {r['memory']:,.0f} | {r['one']:,.0f} ({r['one'] / r['memory']:.2f} ×) | {r['two']:,.0f} "
        f"({r['two'] / r['one']:.2f} ×) | {r['apart']:,.0f} ({r['apart'] / r['one']:.2f} ×) "
        f"| {r['sums_seconds'] * 1e3:.1f} ms | {r['weights_seconds'] * 1e3:.1f} ms |"
        for batch, r in figures["batches"].items()
    )
    table = "\n".join(f"| {' | '.join(on_paper(figures, machines))} |" for machines in (1, 8, 64))
    enough = apart / (0.25 * row * slower)
    return TEXT.format(
        measured=measured,
        table=table,
        row=row * 1e6,
        slower=slower,
        apart=apart * 1e3,
        enough=round(enough, -2),
        bag=figures["bag"],
        weights=figures["weights"],
        columns=figures["columns"],
        stored=figures["bytes_per_row"],
        per_bag=PER_BAG,
        bags=ROWS / figures["bag"] / 1e6,
        index=ROWS / figures["bag"] * PER_BAG / 1e9,
        per_machine=PER_MACHINE,
        per_process=PER_PROCESS,
    )


TEXT = """# Many processes, many rows

For a network, or boosted trees, on more rows than one process can read in the time there is. Ridge and boosting go far
on one machine ({{doc}}`tables`); look there first. Boosted trees have a section of their own, below.

## How it is done

    bagwise gather events.parquet reports.parquet --out shards
    torchrun --nproc-per-node 4 -m bagwise train shards --out model

`gather` sorts the rows by bag into Parquet shards of whole bags. `train` under torchrun is data-parallel
(`DistributedDataParallel`): blocks of bags belong to *streams* (8 by default, `--streams`), processes share the
streams, and a batch takes bags from all of them. So what is in a batch does not depend on the number of processes: 1, 2
and 4 processes take the same steps but for rounding. (Rounding grows in a long training: after 740 steps on 9,536 rows
the weights of one and two processes differed by 5e-15 in double precision, but by up to 0.24 in single precision, as
much as those of one process in single and in double.) `bagwise fit --model network --engine torchrun --processes 4`
does all of it on one machine, and so does `bagwise.distributed.launch` in Python.

On several machines, start the same command on each:

    torchrun --nnodes 2 --nproc-per-node 16 --max-restarts 3 --rdzv-id my-model \\
        --rdzv-backend c10d --rdzv-endpoint first-machine:29400 \\
        -m bagwise train shards --out model --streams 32

`first-machine` is any one of them, with a port that is free. There must be as many streams as processes, or more. All
machines read the shards, a process only the blocks of its own streams; checkpoints, which lie beside `--out` unless
`--checkpoints` names another place, must be where all machines can reach them, since any may lead after a restart.
The one that leads prints the result. To rehearse it on one machine, start it in two shells with `--nproc-per-node 1`
and `localhost:29400`: that gave the model of `--nproc-per-node 2` bit by bit, also when one of the two processes was
killed on the way.

Every 200 steps (`--every`) the leading process writes a checkpoint: weights, optimizer, place in the pass. A process
that dies is started again by torchrun (`--max-restarts`), and so are the others; they go on from the last sound
checkpoint with the result of an undisturbed run. The same command goes on after a stop of everything, too, with
another number of processes if need be. What is wrong with the input, one process says, in a line that begins with
`Error:` and once more where torchrun's report ends (`Root Cause`); torchrun knows no errors that are in vain to
repeat, so with `--max-restarts` it comes as often.

On a Dask cluster (`bagwise[dask]`), `bagwise.distributed.launch_on_dask(estimator, shards, client)` makes each worker
one of the processes, of networks and of boosted trees: the trees are those of torchrun bit by bit (tested on a cluster
of two). All workers must see the folder of the shards, and should have nothing else to do; one that dies ends the fit.

Sweeps of many small trainings need none of this: `bagwise reproduce` takes any backend of joblib
(examples/dask_sweep.py).

## Boosted trees

    torchrun --nproc-per-node 4 -m bagwise train shards --model boosting --out model

grows every tree in all processes, on labels 0 and 1. LightGBM's own data-parallel learner adds up histograms; the sums
that bags need beside (p, E[h], what leaf values are solved from) are computed by each process for its own streams,
told to all, and added up by all in the same order. Bins are found on a sample of 200,000 rows of all processes, and
gradients are rounded to 20 binary digits, so that sums of them are exact in any order. So trees, leaf values and
predictions are those of one process bit by bit (tested with 1, 2, 3 and 4), whatever way rows are divided. Settings
are chosen as the ordinary fit does on a table that does not fit into memory: on a sample of up to 500,000 rows in
whole bags, by folds of these bags; then each chosen kind of tree is fitted twice to all rows, and log odds are moved
so that E[h] = p over all of them. What is not the ordinary fit: also where the sample holds all bags, its fits are not
the model; cuts of random trees are drawn anew for each tree; and shift and tilts of bags start from nothing every ten
trees.

Every ten trees (`--every`) there is a checkpoint: the trees. A process that goes on from one finds the scores of its
rows by these, so that a fit that was killed ends as it would have. Several machines need an address at which they
reach each other and one free port per process; processes find both out by themselves. LightGBM counts rows in 32 bits:
2.1 billion rows at most. `fit --model boosting --engine torchrun` and `bagwise.distributed.launch` do all of it on one
machine. {{doc}}`costs` has how much faster two processes are than one (`distributed_boosting`): about 40 times in a
tree all wait for each other, which takes a millisecond on an idle machine, so a process should have a few hundred
thousand rows or more.

## Measured

`python benchmarks/distributed.py --out docs/results/scaling.json` measures, `python benchmarks/scaling.py` writes this
page from it.

Two cores, one thread per process, {columns} columns, 4 layers of 300 ({weights:,} weights), bags of {bag}. Rows per
second, beside those of two processes that train a network each at the same time, which is what the machine allows; and
seconds to add up the sums of a batch's bags, and the derivatives, over two idle processes:

| batch | memory, one process | shards, one process | shards, two processes | two apart | sums | derivatives |
| --- | --- | --- | --- | --- | --- | --- |
{measured}

The ratios vary by a tenth from run to run. What two processes lose is waiting: twice in a step all wait for the
slowest, and for messages. The smaller the batch, the more that is of its time.

## A model of the cost

    seconds of a step = rows of a process × {row:.1f} µs × {slower:.2f} + {apart:.1f} ms

fitted to the table: a row costs {row:.1f} µs on one core, {slower:.2f} × as much beside others, and a step costs
{apart:.1f} ms apart from its rows. With fewer than about {enough:,.0f} rows per process and step, a fifth of the time
or more goes into waiting.

Per row {stored:.0f} bytes are read from disk. A process exchanges one number per bag of the batch and one per weight,
whatever its rows are. It holds {per_bag} bytes per bag of *all* bags (their sizes, proportions and the order of the
pass), two blocks for each of its streams, and four numbers per weight; never more of the rows.

## A billion rows on paper

Bags of {bag}, {per_machine} processes to a machine, {per_process:,} rows to a process and step, 10 Gbit/s between
machines. One pass:

| machines | processes | batch | read by each | sent a step | memory of each | steps | a step | a pass | computing |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
{table}

Nobody has run this; it is the model above with the network's arithmetic added.

## Where it stops

- **Memory per process** comes first: {bags:.1f} million bags are {index:.1f} GB in every process, however many there
  are. Use fewer processes of more threads (`OMP_NUM_THREADS`), or report larger bags.
- **Batches** grow with the processes. At 64 machines a pass has a few hundred steps; more processes make no better
  model, only larger batches. Let the machines run the trainings of a sweep side by side instead.
- **Waiting** takes over when a process has fewer rows per step than the model asks for.
- Before any of that, try ridge inside the engine ({{doc}}`tables`): it reads the table about once, in any engine, and
  only d × d numbers come out. 11,000,000 rows of 28 columns take two to four seconds of computing, about twice as long
  as the plain column sums (`python benchmarks/ridge_in_engine.py`), so a billion about five minutes on one core. Where
  bags are small and numbers have all digits it is 2.6 times as long: DuckDB takes twice as long as for the sums to
  group them alone.
- Logistic regression reads shards twice in every step of Newton's, of which a fit takes about five; such a step takes
  five times as long as to add up the columns (`python benchmarks/logistic_from_shards.py`). 11,000,000 rows of 28
  columns in bags of 64 are gathered in 18 seconds of computing and fitted in 20. It keeps about 100 bytes per row and
  32 per bag and column, boosting from shards a byte per number and about 100 bytes per row.
"""


if __name__ == "__main__":
    with replacing(PAGE) as (temporary,):
        temporary.write_text(
            page(json.loads(FIGURES.read_text(encoding="utf-8"))) + "\n" + growth.section(growth.read()),
            encoding="utf-8",
        )
    print(f"Written: {PAGE}")
