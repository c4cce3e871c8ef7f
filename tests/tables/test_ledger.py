"""What releases of the same labels spend adds up, and is said before it is spent; and files of different releases."""

import json
import os
import re
import stat
import subprocess
import sys
import threading

import duckdb
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from bagwise import tables
from bagwise.tables.ledger import LEDGER, BudgetError, users_ledger

pytest.importorskip("opendp", reason="noise needs OpenDP")


@pytest.fixture
def labelled():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"group": rng.integers(0, 8, 400).astype(str), "x": rng.normal(size=400)})
    return frame.assign(label=(rng.random(400) < 0.3).astype(int))


def bag(labelled, folder, **options):
    return tables.put_in_bags(labelled, folder, label="label", by=["group"], **options)


def test_a_release_is_written_down_beside_it_and_for_its_user(labelled, tmp_path):
    held = bag(labelled, tmp_path / "a", epsilon=0.5)
    told = json.loads((tmp_path / "a" / LEDGER).read_text())
    assert [(one["epsilon"], one["delta"]) for one in told["spent"]] == [(0.5, 0)]
    assert [one["release"] for one in told["releases"]] == [one.release for one in held.releases]
    assert pq.read_metadata(held.events).metadata[b"bagwise_release"].decode() == held.releases[0].release
    assert "label" not in pq.read_schema(held.events).names
    assert json.loads(users_ledger().read_text()) == told["releases"][0]
    assert stat.S_IMODE(os.stat(users_ledger()).st_mode) & 0o077 == 0 or os.name == "nt"


def test_ledgers_tell_nothing_of_labels(labelled, tmp_path):
    """The checksum of rows is the same whatever their labels are: nobody can try which ones fit."""
    for number, labels in enumerate((labelled["label"], 1 - labelled["label"])):
        bag(labelled.assign(label=labels), tmp_path / str(number), epsilon=1.0, force_budget=True)
    first, second = (json.loads((tmp_path / name / LEDGER).read_text())["releases"][-1] for name in "01")
    assert first["rows"] == second["rows"]


def test_the_same_labels_are_not_released_again_unasked(labelled, tmp_path):
    bag(labelled, tmp_path / "a", epsilon=0.5)
    shuffled = labelled.sample(frac=1, random_state=0)
    labelled.to_csv(tmp_path / "table.csv", index=False)
    for source, other in ((labelled, {}), (shuffled, {"delta": 1e-6})):
        with pytest.raises(
            BudgetError, match=r"with ε = 0.5; with this release it would be ε = 1.5.* in all"
        ) as raised:
            bag(source, tmp_path / "b", epsilon=1.0, **other)
        assert "--force-budget" in raised.value.shown(lambda name: f"--{name.replace('_', '-')}")
    assert not (tmp_path / "b").exists()
    held = bag(shuffled, tmp_path / "b", epsilon=1.0, force_budget=True)
    assert "With 1 earlier release it is ε = 1.5 in all." in str(held)
    assert json.loads((tmp_path / "b" / LEDGER).read_text())["spent"][0]["epsilon"] == 1.5
    with pytest.raises(BudgetError, match=r"released 2 times before, with ε = 1\.5"):
        bag(labelled, tmp_path / "c", epsilon=1.0)


def test_tables_of_counts_spend_the_same_budget(labelled, tmp_path):
    bag(labelled, tmp_path / "a", epsilon=0.5)
    with pytest.raises(BudgetError, match=r"ε = 0.5 between .* label of one row.* and ε = 2 between .* one row more"):
        tables.publish_aggregates(labelled, tmp_path / "b", label="label", bins=4, epsilon=2.0)
    given = {"label": "label", "bins": 4, "epsilon": 2.0, "force_budget": True}
    found = tables.publish_aggregates(labelled, tmp_path / "b", **given)
    assert re.search(r"With 1 earlier release it is .*ε = 2\b.* in all\.", str(found))
    assert len(json.loads((tmp_path / "b" / LEDGER).read_text())["releases"]) == 2


def test_other_labels_and_exact_counts_are_free(labelled, tmp_path):
    bag(labelled, tmp_path / "a", epsilon=0.5)
    bag(labelled.assign(x=-labelled["x"]), tmp_path / "b", epsilon=0.5)
    bag(labelled, tmp_path / "c")
    assert not (tmp_path / "c" / LEDGER).exists()


def test_a_folder_that_has_a_release_says_so_whatever_the_table_and_user(labelled, tmp_path, monkeypatch):
    bag(labelled, tmp_path / "a", epsilon=0.5)
    monkeypatch.setenv("BAGWISE_LEDGER", str(tmp_path / "of another"))
    with pytest.raises(BudgetError, match=r"a was released before, with ε = 0.5; .* ε = 1 in all"):
        bag(labelled.iloc[:300], tmp_path / "a", epsilon=0.5)
    bag(labelled, tmp_path / "b", epsilon=0.5)  # nobody here knows of it
    (tmp_path / "a" / LEDGER).write_text("{}")
    with pytest.raises(ValueError, match=r"ledger\.json is damaged"):
        bag(labelled, tmp_path / "a", epsilon=0.5, force_budget=True)


def test_a_ledger_that_cannot_be_written_stops_the_release(labelled, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BAGWISE_LEDGER", str(tmp_path / "file" / "ledger"))
    with pytest.raises(OSError, match="it is to say what was spent"):
        bag(labelled, tmp_path / "a", epsilon=0.5)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("same", [False, True])
def test_of_several_writers_at_once_one_releases_and_the_others_are_told(labelled, tmp_path, same):
    """The same labels into folders of their own, with noise; or into one folder, without."""
    said = []

    def write(number):
        try:
            bag(labelled, tmp_path / ("one" if same else str(number)), epsilon=None if same else 1.0, force=not same)
        except (BudgetError, FileExistsError) as error:
            said.append(type(error))

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    assert said == 3 * [FileExistsError if same else BudgetError]
    (folder,) = tmp_path.iterdir()
    assert tables.join(folder / "events.parquet", folder / "reports.parquet").summary.bags == 8


KILLED = """
import os, signal, sys
import pandas as pd
from bagwise.tables import publish, put_in_bags
class Killed:
    def __init__(self, *paths, **_): self.paths = paths
    def __enter__(self):
        self.held = whole(*self.paths)
        return self.held.__enter__()
    def __exit__(self, *_): os.kill(os.getpid(), signal.SIGKILL)
whole, publish.replacing = publish.replacing, Killed
put_in_bags(pd.read_parquet(sys.argv[1]), sys.argv[2], label="label", by=["group"], epsilon=0.5)
"""


def test_what_a_killed_release_was_to_spend_is_written_down(labelled, tmp_path):
    """Before anything of it appears: the ledger may say too much, never too little."""
    labelled.to_parquet(tmp_path / "table.parquet")
    command = [sys.executable, "-c", KILLED, tmp_path / "table.parquet", tmp_path / "a"]
    assert subprocess.run(command, check=False).returncode == -9
    assert [path.name for path in (tmp_path / "a").glob("[!.]*")] == [LEDGER]
    with pytest.raises(BudgetError, match=r"with ε = 0\.5"):
        bag(pd.read_parquet(tmp_path / "table.parquet"), tmp_path / "b", epsilon=0.5)


# -- pairs ------------------------------------------------------------------------------------------------------------


def test_events_and_reports_of_different_releases_are_refused(labelled, tmp_path):
    """Keys are the same in both, and sizes may be."""
    first, second = bag(labelled, tmp_path / "a"), bag(labelled.assign(label=1 - labelled["label"]), tmp_path / "b")
    told = "events and reports are of different releases"
    for events, reports in (
        (first.events, second.reports),
        (pq.read_table(first.events), pq.read_table(second.reports)),
    ):
        with pytest.raises(ValueError, match=told):
            tables.join(events, reports)
    model = tables.fit(tables.join(first.events, first.reports), "ridge")
    with pytest.raises(ValueError, match=told):
        tables.write_scores(model, first.events, tmp_path / "scores.parquet", reports=second.reports)
    with pytest.raises(ValueError, match=told):
        tables.join(first.events, [second.reports, second.reports])
    both = tables.join(first.events, [first.reports, second.reports])  # another table about the same rows
    assert len(both.others) == 1


def test_tables_that_do_not_say_of_which_release_they_are_join_as_before(labelled, tmp_path):
    held, other = bag(labelled, tmp_path / "a"), bag(labelled, tmp_path / "b")
    told = pd.read_parquet(other.reports)
    assert tables.join(held.events, told).summary.bags == 8
    other.reports.unlink()
    told.to_csv(tmp_path / "reports.csv", index=False)
    events = pd.read_parquet(held.events).astype({"group": int})
    assert tables.join(events, tmp_path / "reports.csv").summary.bags == 8


def test_many_files_of_many_releases_join_where_they_share_one(labelled, tmp_path):
    for number in range(2):
        held = tables.put_in_bags(labelled, tmp_path / "new", label="label", size=20, force=True)
        for path in (held.events, held.reports):
            place = tmp_path / path.stem / f"{number}.parquet"
            place.parent.mkdir(exist_ok=True)
            path.rename(place)
    assert tables.join(tmp_path / "events", tmp_path / "reports").summary.bags == 40
    with pytest.raises(ValueError, match="different releases"):
        tables.join(tmp_path / "events" / "0.parquet", tmp_path / "reports" / "1.parquet")


def test_other_readers_do_not_mind_the_release(labelled, tmp_path):
    held = bag(labelled, tmp_path / "a")
    assert set(pd.read_parquet(held.events).columns) == {"group", "x"}
    assert duckdb.sql(f"SELECT count(*) FROM '{held.events}'").fetchall() == [(400,)]
