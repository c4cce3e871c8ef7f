"""The paper's quick Adult grid on a Dask cluster: the runner takes any backend of joblib.

A cluster of this machine's processes stands for one of many machines: give `Client` the address of yours, a folder that
all of them see, and set BAGWISE_DATA there (or let each fetch the data). Every process stores its runs itself.

    pip install 'bagwise[dask,neural]'
    python examples/dask_sweep.py results
"""

import sys
from dataclasses import replace

import joblib
from dask.distributed import Client, LocalCluster

from bagwise.experiments import paper


def sweep(config: paper.PaperConfig, out: str, client: Client):
    """The rows of a config, computed by the workers of a cluster."""
    workers = len(client.scheduler_info()["workers"])
    with joblib.parallel_config(backend="dask", wait_for_workers_timeout=60):
        return paper.run(replace(config, n_jobs=workers), out)


if __name__ == "__main__":
    out = sys.argv[1] if len(sys.argv) > 1 else "bagwise-results"
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        frame = sweep(paper.PRESETS["quick"]["adult"], out, client)
    best = frame.assign(last=frame["accuracy"].str[-1]).groupby(["method", "size"])["last"].max().unstack()
    print(best.round(3))
