"""Pages: their structure, what is escaped, whether their numbers are right, and how they look in a real browser."""

import io
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import asdict, replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from markupsafe import Markup
from typer.testing import CliRunner

import bagwise as bw
from bagwise import saving, tables
from bagwise.bag_fit import bag_fit
from bagwise.cli import app
from bagwise.evaluation import Evaluation, measures
from bagwise.experiments import variance
from bagwise.experiments.harness import provenance
from bagwise.experiments.paper import PRESETS, plan
from bagwise.experiments.results import write_table
from bagwise.formation import Told
from bagwise.metrics import Estimate
from bagwise.pages import comparison_page, diagnosis_page, model_page, parts, reproduction_page, write
from bagwise.pages.comparison import _gain
from bagwise.pages.diagnosis import Funnel, expected_histogram
from bagwise.pages.page import GOOD, POOR, UNSURE, clean
from bagwise.pages.parts import one_panel, size_scale
from bagwise.plotting import draw_ratios
from bagwise.tables import metadata
from bagwise.tables.engines.duckdb import DuckDB
from bagwise.tables.evaluation import constant_guess
from bagwise.utils.records import as_data
from tests.browser import CHROMIUM, Browser

QUOTE = "'" if DuckDB.unsaid else '"'
TAG, QUOTES, MATH = "<script>alert(1)</script>", f"a{QUOTE}b&c", "$x_1$"
MOST = 3_000_000  # bytes of a page


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def sentence(result, code=1):
    assert result.exit_code == code, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    return line


# -- what pages are made of ---------------------------------------------------------------------------------------


def test_how_to_reproduce_is_commands_that_run(tmp_path, monkeypatch):
    """As they stand, where the tables are; the model that comes out is the one that was shown."""
    monkeypatch.chdir(tmp_path)
    events, reports, _ = table(rows=1600)
    events.drop(columns="<i>").assign(bag=events["<i>"]).to_parquet("events.parquet")
    reports.rename(columns={"<i>": "bag"}).to_parquet("reports.parquet")
    options = ("--model", "ridge", "--seed", "3", "--out", "a model")
    assert call("fit", "events.parquet", "reports.parquet", *options).exit_code == 0
    html = model_page("a model", command="bagwise page --model 'a model'").html
    blocks = re.findall(r"<pre[^>]*>(?:<code>)?(.*?)(?:</code>)?</pre>", html, re.DOTALL)
    lines = unescape("\n".join(blocks)).splitlines()
    assert [line.split()[1] for line in lines] == ["page", "inspect", "fit"]
    programs = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run("\n".join(["set -e", *lines]), shell=True, check=True, env=programs, capture_output=True)
    first, again = (bw.load(place).estimator for place in ("a model", "a model-again"))
    np.testing.assert_array_equal(first.coef_, again.coef_)
    assert (tmp_path / "page.html").exists()


def table(rows=6400, size=8, seed=0, grouped=False):
    """Events and reports with names that a careless page would run; labels depend on two columns."""
    rng = np.random.default_rng(seed)
    events = pd.DataFrame({TAG: rng.normal(size=rows), QUOTES: rng.choice(["<b>", "&amp;", "x"], rows)})
    events[MATH] = rng.integers(0, 9, rows)
    p = 0.15 + 0.5 * (events[TAG] > 0.5) + 0.2 * (events[QUOTES] == "<b>")
    y = rng.random(rows) < p
    place = np.argsort(np.argsort(events[TAG])) if grouped else rng.permutation(rows)
    ids = place // size
    return (
        events.assign(**{"<i>": [f"<u>{number}" for number in ids]}),
        pd.DataFrame({"<i>": [f"<u>{number}" for number in range(rows // size)], "count": np.bincount(ids, weights=y)}),
        y,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def frames():
    return table()[:2]


@pytest.fixture(scope="module")
def joined(frames):
    return tables.join(*frames)


@pytest.fixture(scope="module")
def files(folder, frames):
    """The two tables as files."""
    paths = folder / "events.parquet", folder / "reports.parquet"
    for frame, path in zip(frames, paths, strict=True):
        frame.to_parquet(path)
    return paths


@pytest.fixture(scope="module")
def fitted(joined):
    """A ridge, the bags held out from it, and its label-free evaluation there."""
    train, held_out = tables.split(joined, 0.2)
    ridge = tables.fit(train, "ridge", random_state=0)
    return ridge, train, held_out, tables.measure(ridge, held_out)


def store(model, place, train, measured, seen, **changes):
    saving.save(model, place, about=as_data(metadata.about(model, train, measured, seen=seen.summary)) | changes)
    return place


def keep(fitted, joined, place, **changes):
    ridge, train, _, measured = fitted
    return store(ridge, place, train, measured, joined, **changes)


@pytest.fixture(scope="module")
def ridge(folder, fitted, joined):
    return keep(fitted, joined, folder / "<script>alert(2)&'\"")


@pytest.fixture(scope="module")
def other(folder, fitted, joined):
    """Another model of the same tables, which knows one column only."""
    train = fitted[1]
    poor = tables.fit(train, "ridge", roles={TAG: "ignored"}, random_state=0)
    return store(poor, folder / "other", train, tables.measure(poor, fitted[2]), joined)


@pytest.fixture(scope="module")
def results(folder):
    """What a quick reproduction, made smaller, would store, with invented accuracies."""
    small = replace(PRESETS["quick"]["adult"], sizes=(1, 64), learning_rates=(1e-3, 1e-2), epochs=(2, 5))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PRESETS["quick"], "adult", small)
        for scale in ("machine", "paper"):
            patch.setitem(PRESETS[scale], "adult", replace(small, sizes=(1, 32, 64), repetitions=3))
        yield _results(folder / "results", small)


def _results(place, config):
    rng, records = np.random.default_rng(0), []
    for run in plan(config):
        stages = list(run.measured) or [0]
        level = 0.85 - 0.01 * np.log2(run.size) * (1.0 if run.method == "ours" else 1.4)
        records.append(
            {"key": run.key, **asdict(run), "measured": list(run.measured), "seconds": 1.0, "epoch": stages}
            | {"accuracy": [level - 0.05 / (epoch + 1) + 0.001 * rng.normal() for epoch in stages]}
            | {"brier": [0.1] * len(stages), "risk": [rng.random() if run.held_out else None] * len(stages)}
            | {"diverged": False, **provenance(run)}
        )
    write_table(pd.DataFrame(records), place / "adult.parquet")
    small = variance.VarianceConfig(rows=2048, sizes=(2, 256), repetitions=2, n_jobs=1)
    write_table(variance.run(small), place / "variance-quick.parquet")
    return place


@pytest.fixture(scope="module")
def commands(files, ridge, other, results):
    """Arguments of `bagwise page` for one page of each kind."""
    given = {
        "diagnosis": [*files, "--ignore", "$x_1$"],
        "model": [*files, "--model", ridge],
        "stored": ["--model", ridge],
        "comparison": [*files, "--model", ridge, "--model", other],
        "reproduction": ["--results", results],
    }
    return {kind: [str(argument) for argument in arguments] for kind, arguments in given.items()}


@pytest.fixture(scope="module")
def pages(frames, joined, ridge, other, results, commands):
    """One page of each kind."""
    command = {kind: shlex.join(["bagwise", "page", *arguments]) for kind, arguments in commands.items()}
    some = tables.join(*frames, ignore=["$x_1$"])
    return {
        "diagnosis": diagnosis_page(some, command=command["diagnosis"]).html,
        "model": model_page(ridge, joined, command=command["model"]).html,
        "stored": model_page(ridge, command=command["stored"]).html,
        "comparison": comparison_page([ridge, other], joined, command=command["comparison"]).html,
        "reproduction": reproduction_page(results, command=command["reproduction"]).html,
    }


@pytest.fixture
def undrawn(monkeypatch):
    """Figures left out, to save time where words are looked at."""
    monkeypatch.setattr(parts, "inline", lambda *_, **__: Markup("<svg></svg>"))


KINDS = ("diagnosis", "model", "stored", "comparison", "reproduction")
MAIN_KINDS = [kind if kind in ("model", "comparison") else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]


# -- structure ----------------------------------------------------------------------------------------------------


class Outline(HTMLParser):
    """Tags in order with their attributes, and the text, of a page whose tags must be balanced."""

    VOID = ("meta", "link", "br", "img")

    def __init__(self, html):
        super().__init__()
        self.tags, self.text, self._open, self._style = [], "", [], ""
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if "style" not in self._open:
            self.text += data

    def all(self, *names):
        return [attributes for tag, attributes in self.tags if tag in names]


@pytest.mark.parametrize("kind", KINDS)
def test_pages_are_sound_stand_alone_and_run_nothing(pages, kind):
    html = pages[kind]
    page = Outline(html)
    assert html.startswith("<!DOCTYPE html>")
    assert page.all("html") == [{"lang": "en"}]
    headings = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert headings[0] == 1
    assert headings.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(headings))
    assert not page.all("script", "iframe", "object", "embed", "form", "img", "base", "foreignobject")
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on")], tag
        for name in {"src", "href", "xlink:href", "action", "srcset"} & attributes.keys():
            assert re.match(r"#|data:,$", attributes[name]), attributes[name]
        assert "http" not in "".join(str(value) for value in attributes.values() if value), attributes
    assert "@import" not in html
    assert not re.findall(r"url\((?!#)", html)
    assert "http-equiv" in html
    assert "default-src 'none'" in html
    assert len(html.encode()) < MOST


@pytest.mark.parametrize("kind", KINDS)
def test_figures_are_told_in_words_and_ids_are_their_own(pages, kind):
    page = Outline(pages[kind])
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    pictures = page.all("svg")
    assert len(pictures) == len(page.all("figure")) == len(page.all("figcaption"))
    assert len(pictures) == {"diagnosis": 2, "model": 9, "stored": 3, "comparison": 4, "reproduction": 6}[kind]
    for picture in pictures:
        assert picture["role"] == "img"
        for name in picture["aria-labelledby"].split():
            assert re.search(rf'id="{name}">[^<]{{5,}}<', pages[kind]), name
    for name in re.findall(r'(?:aria-labelledby="|url\(#|href="#)([^)"\s]+)', pages[kind]):
        assert name in ids
    # Colours are the page's own, so that figures follow light and dark.
    assert not [a["style"] for _, a in page.tags if re.search("#[0-9a-f]{3}", a.get("style") or "")]
    assert not [a for _, a in page.tags if re.search("#[0-9a-f]{3}", (a.get("fill") or "") + (a.get("stroke") or ""))]


def test_the_verdict_comes_first(pages):
    for html in pages.values():
        page = Outline(html)
        sections = page.all("section")
        assert sections[0]["id"] == "verdict"
        assert 'class="headline">' in html


@pytest.mark.parametrize("kind", ["diagnosis", "model", "stored", "comparison"])
def test_names_are_shown_not_run(pages, kind):
    text = Outline(pages[kind]).text
    assert TAG in text
    assert QUOTES in text
    assert MATH in text
    if kind != "diagnosis":
        assert "<script>alert(2)&'\"" in text
    if kind in ("model", "stored"):
        assert "<i>" in text


@pytest.mark.parametrize("kind", MAIN_KINDS)
def test_the_command_writes_the_same_bytes_again(pages, commands, kind, tmp_path):
    result = call("page", *commands[kind], "--out", tmp_path / "new" / "page.html", "--json")
    assert result.exit_code == 0, result.output
    html = (tmp_path / "new" / "page.html").read_bytes()
    assert html == pages[kind].encode()
    facts = json.loads(result.stdout)
    assert facts["bytes"] == len(html)
    text = Outline(html.decode()).text
    assert facts["verdict"] in text
    assert shlex.join(["bagwise", "page", *commands[kind]]) in text
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["page.html"]


def test_letters_that_no_page_can_hold_are_replaced(undrawn, joined):
    html = diagnosis_page(joined, command="\x00\x1b[31m\ud800\ufffe").html
    html.encode()
    assert "�" in html
    assert "\x00" not in html
    assert clean("tab\tnew\nline") == "tab new line"


def colours(mode):
    css = (Path(parts.__file__).parent / "page.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    return dict(re.findall(r"--(\w+): (#\w{6});", blocks[("light", "dark", "print").index(mode)]))


def luminance(colour):
    parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]


@pytest.mark.parametrize("mode", ["light", "dark", "print"])
@pytest.mark.parametrize("behind", ["paper", "card"])
@pytest.mark.parametrize("text", ["ink", "muted", "link", "good", "unsure", "poor"])
def test_text_can_be_read(mode, behind, text):
    found = colours(mode)
    dark, bright = sorted([luminance(found[behind]), luminance(found[text])])
    assert (bright + 0.05) / (dark + 0.05) >= 4.5


# -- numbers ------------------------------------------------------------------------------------------------------


def test_numbers_are_those_of_the_bags_held_out(pages, fitted, ridge):
    measured = fitted[3].evaluation
    for kind in ("model", "stored", "comparison"):
        text = Outline(pages[kind]).text
        for name in ("accuracy", "brier", "log_loss", "auc"):
            assert parts.interval(getattr(measured, name), 4) in text
    assert "the numbers are those of its file" in Outline(pages["model"]).text
    assert f"judged by {measured.n_bags} bags" in Outline(pages["model"]).text


@pytest.mark.slow
def test_what_was_measured_is_not_measured_again(undrawn, monkeypatch, ridge, other, joined, frames, folder, files):
    """Rows are read once per model, and measures of bags that the folder tells of are not taken again."""
    calls = []

    def count(where, name):
        real = getattr(where, name)
        monkeypatch.setattr(where, name, lambda *given, **options: calls.append(name) or real(*given, **options))

    count(measures, "measure")
    count(tables.Table, "batches")
    model_page(ridge, joined)
    assert calls == ["batches"]
    calls.clear()
    comparison_page([ridge, other], joined)
    assert calls == ["batches"] * 2
    calls.clear()
    model_page(ridge, tables.join(*table(rows=3200, seed=7)[:2]))
    assert calls == ["batches", "measure"]
    calls.clear()
    count(tables, "join")
    fit = call("fit", *files, "--model", "ridge", "--out", folder / "counted")
    assert fit.exit_code == 0, fit.output
    assert [calls.count(name) for name in ("join", "measure")] == [1, 1]
    calls.clear()
    assert call("page", *files, "--model", folder / "counted", "--out", folder / "counted.html").exit_code == 0
    assert calls == ["join", "batches"]


@pytest.mark.parametrize("page", ["diagnosis", "model"])
def test_what_bags_reported_is_fetched_once(undrawn, monkeypatch, fitted, folder, frames, page):
    data, fetched, real = tables.join(*frames), [], tables.BagTable.reports
    blind = store(fitted[0], folder / f"unjudged-{page}", fitted[1], None, data)
    monkeypatch.setattr(tables.BagTable, "reports", lambda data: fetched.append(data) or real(data))
    _ = diagnosis_page(data) if page == "diagnosis" else model_page(blind, data)
    assert fetched == [data]


@pytest.mark.slow
def test_a_file_that_tells_other_numbers_is_not_believed(undrawn, folder, fitted, joined):
    """The tables have other bags held out, or the model is another: then it is measured."""
    told = as_data(fitted[3].evaluation)
    told["auc"]["value"] = 0.99
    place = keep(fitted, joined, folder / "boast", evaluation=told, held_out="of other bags")
    found = model_page(place, joined)
    assert "0.99" not in found.headline
    assert "its file tells other numbers, or none" in found.html


def test_a_model_is_judged_by_all_bags_of_tables_it_has_not_seen(undrawn, ridge):
    events, reports, _ = table(rows=3200, seed=7)
    fresh = tables.join(events, reports)
    measured = tables.evaluate(saving.load(ridge), fresh)
    text = Outline(model_page(ridge, fresh).html).text
    assert parts.interval(measured.auc, 4) in text
    assert "all bags of the tables given" in text
    assert "judged by 400 bags, 3,200 rows" in text


@pytest.mark.slow
def test_models_that_took_all_bags_in_are_not_judged_by_them(undrawn, folder, fitted, joined):
    again = keep(fitted, joined, folder / "refitted", refitted=True)
    text = Outline(model_page(again, joined).html).text
    assert "there are none left in these tables to judge it by" in text
    assert "Predicted against reported" not in text
    blind = store(fitted[0], folder / "blind", fitted[1], None, joined)
    text = Outline(model_page(blind, joined).html).text
    assert "Nobody knows yet how good this model is" in text
    with pytest.raises(ValueError, match="was fitted to all bags of these tables"):
        comparison_page([again, blind], joined)


def test_grouped_bags_are_not_taken_for_proof(undrawn, ridge):
    grouped = tables.join(*table(grouped=True)[:2])
    found = model_page(ridge, grouped)
    assert found.standing == UNSURE
    assert "cannot be told from these bags" in found.headline
    assert not any(section.name == "roc" for section in found.sections)
    assert "Calibration. " not in found.html
    assert any("explain" in remark for remark in found.remarks)
    assert "Known of bags only" in found.html
    assert "accuracy on single rows if the model is right" in found.html
    assert "Calibration by bags" in found.html
    told = diagnosis_page(grouped)
    assert told.headline.startswith("The bags are not random: ")
    assert "all together features: bags differ in" in told.headline
    assert "A quick model on bags that it was not fitted to" in told.html
    assert "candidates are compared by" in told.html


def test_models_are_not_ranked_by_grouped_bags(undrawn, ridge, other):
    grouped = tables.join(*table(grouped=True)[:2])
    found = comparison_page([ridge, other], grouped)
    assert found.standing == UNSURE
    assert "makes the reports of held-out bags likeliest" in found.headline
    assert "how good it is for single rows, these bags do not tell" in found.headline
    assert "intervals" not in {section.name for section in found.sections}
    likelihood = [float(line[1].split()[0].replace("−", "-")) for line in found.sections[0].parts[1].rows]
    assert likelihood == sorted(likelihood, reverse=True)
    assert "the likeliest first" in found.html


def test_the_better_model_is_named_first(undrawn, pages, ridge, other):
    text = Outline(pages["comparison"]).text
    assert "is best: its square error is clearly the smallest" in text
    stored = comparison_page([ridge, other])
    assert stored.standing == UNSURE
    assert "only the tables can tell" in stored.headline


def test_several_classes_have_no_curves_but_everything_else(folder):
    rng = np.random.default_rng(1)
    x = rng.normal(size=3000)
    label = np.digitize(x + 0.5 * rng.normal(size=3000), [-0.5, 0.5])
    ids = rng.permutation(3000) // 10
    counts = pd.DataFrame(
        {name: np.bincount(ids, weights=label == c) for c, name in enumerate(["<b>lo", "mid", f"{QUOTE}hi"])}
    )
    data = tables.join({"x": x, "bag": ids}, counts.assign(bag=range(300)), count=["<b>lo", "mid", f"{QUOTE}hi"])
    train, held_out = tables.split(data, 0.3)
    fitted = tables.fit(train, "ridge", random_state=0)
    store(fitted, folder / "classes", train, tables.measure(fitted, held_out), data)
    page = Outline(model_page(folder / "classes", data).html)
    assert "<b>lo" in page.text
    assert f"{QUOTE}hi" in page.text
    assert "AUC" in page.text  # the mean of classes against the rest
    assert "This model is right on a share of" in page.text
    assert "class <b>lo" in Outline(diagnosis_page(data).html).text or "of class" in page.text


def test_hidden_counts_are_told_and_drawn_apart(undrawn, frames):
    events, reports = frames
    count = reports["count"].to_numpy().astype(int)
    few = int(np.median(count))
    shown = reports.assign(count=np.where(count < few, "*", count.astype(str)))
    data = tables.join(events, shown, hidden=f"0-{few - 1}")
    funnel = Funnel.of_reports(data.reported)
    assert funnel.hidden.sum() == (count < few).sum()
    html = diagnosis_page(data).html
    assert f"({(count < few).sum():,} bags), what is likely for them is drawn" in html
    assert "are hidden, rounded or clamped, which is no differential privacy either" in html
    assert "noise" not in html.lower()


def test_several_tables_say_whose_bags_are_shown(undrawn, frames):
    events, reports = frames
    other = events.assign(other=np.arange(len(events)) % 50)
    further = other.groupby("other", as_index=False).size().assign(count=3).drop(columns="size")
    html = diagnosis_page(tables.join(other, [reports, further.assign(noise_variance=4.0)])).html
    assert "Bags are those of the first table of reports" in html
    assert "of the first table of reports" not in diagnosis_page(tables.join(events, reports)).html


def test_noise_that_makes_a_class_rarer_than_never_has_a_page(undrawn, folder):
    """A rare class may have a sum of noised counts below 0."""
    rng = np.random.default_rng(0)
    x, ids = rng.normal(size=2400), np.arange(2400) // 20
    label = (x + rng.normal(size=2400) > 0).astype(int)
    noise = rng.laplace(scale=2.0, size=(3, 120))
    noise[2] -= noise[2].mean() + 0.5
    counts = {f"n{c}": np.bincount(ids, weights=label == c) + noise[c] for c in range(3)}
    reports = pd.DataFrame({**counts, "bag": range(120), "noise_variance": 8.0})
    data = tables.join({"x": x, "bag": ids}, reports, count=["n0", "n1", "n2"])
    assert data.summary.prior[2] < 0
    fitted = tables.fit(data, "ridge", random_state=0)
    store(fitted, folder / "rare", data, None, data)
    again = tables.join({"x": x[:2300], "bag": ids[:2300]}, reports[:115], count=["n0", "n1", "n2"])
    assert "Brier score" in Outline(model_page(folder / "rare", again).html).text


def test_differences_of_classes_may_be_as_large_as_they_are():
    """The square error of several classes goes up to 2."""
    rng = np.random.default_rng(0)
    ids, y = np.arange(1000) // 10, np.eye(3)[rng.integers(0, 2, 1000)]
    bags = bw.Bags.from_rows(bw.aggregate(y, ids), ids)
    said = [SimpleNamespace(h=h, bags=bags) for h in (y[:, [1, 0, 2]], y)]
    assert _gain(*said, "random", 0.95)["brier"].value > 1.5


@pytest.mark.slow
def test_large_tables_make_small_pages(ridge):
    rng = np.random.default_rng(2)
    events, _, y = table(rows=20_000, seed=3)
    ids = rng.integers(0, 10_000, 20_000)
    reports = pd.DataFrame({"<i>": range(10_000), "count": np.bincount(ids, weights=y, minlength=10_000)})
    reports = reports.assign(count=reports["count"] + 3 * rng.normal(size=10_000), noise_variance=9.0)
    data = tables.join(events.assign(**{"<i>": ids}), reports, on_mismatch="drop")
    assert data.summary.bags > 7500
    html = model_page(ridge, data).html
    assert len(html.encode()) < 1_000_000
    assert "2,000 of " in html
    assert "Declared noise widens them" in html
    assert len(diagnosis_page(data).html.encode()) < 1_000_000


# -- the funnel, and words ----------------------------------------------------------------------------------------


def bags_of(size, rng, noise=0.0):
    count = rng.binomial(size, 0.3) + noise * rng.normal(size=len(size))
    return Funnel(size, np.full(len(size), 0.3), count / size, np.full(len(size), noise**2), 0.3 * 0.7)


@pytest.mark.parametrize("noise", [0.0, 4.0])
def test_random_bags_stay_in_the_funnel(noise):
    rng = np.random.default_rng(0)
    found = bags_of(rng.integers(100, 1000, 4000), rng, noise)
    assert abs(found.outside("95%").sum() - 200) < 5 * np.sqrt(4000 * 0.05 * 0.95)
    assert not found.too_many_outside
    assert not found.is_rough
    assert replace(found, variance=found.variance / 3, noise=found.noise / 3).too_many_outside
    edges, expected = expected_histogram(found)
    counts = np.histogram(found.reported, bins=edges)[0]
    assert counts.sum() == 4000
    big = expected > 50
    assert (np.abs(counts - expected)[big] < 5 * np.sqrt(expected[big])).all()


def test_noise_widens_the_funnel_and_small_bags_make_it_rough():
    rng = np.random.default_rng(0)
    plain, noised = (bags_of(np.full(50, 40), rng, noise) for noise in (0.0, 5.0))
    assert noised.limits(np.array([40]))["95%"] > plain.limits(np.array([40]))["95%"]
    assert plain.usual_size == 40
    assert bags_of(np.full(50, 3), rng).is_rough


@pytest.mark.parametrize("largest", [300, 3_000, 200_000])
def test_sizes_that_differ_much_have_more_ticks_than_one(largest):
    with one_panel() as (figure, panel):
        panel.plot([30, largest], [0, 1])
        size_scale(panel, np.array([30, largest]))
        figure.canvas.draw()
        low, high = panel.get_xlim()
        told = [one.get_text() for one in panel.get_xticklabels() if low <= one.get_position()[0] <= high]
    assert 3 <= len(told) <= 8
    assert all(told)


def test_figures_call_columns_by_their_names():
    with one_panel() as (_, panel):
        names = ["feature 'age' × feature 'day: days'", "feature 'age' squared", "proportions"]
        draw_ratios(panel, names, np.ones(3), np.zeros(3, dtype=bool))
        assert [one.get_text() for one in panel.get_yticklabels()] == ["age × day: days", "age squared", "proportions"]


def test_bags_of_one_size_fill_bins_evenly():
    rng = np.random.default_rng(0)
    size = np.full(3000, 64)
    size[-1] = 20
    edges, expected = expected_histogram(bags_of(size, rng))
    assert np.allclose(np.diff(edges) * 64, round(float(np.diff(edges)[0]) * 64))
    assert expected.sum() == pytest.approx(3000, abs=3)


@pytest.mark.parametrize(
    ("auc", "standing", "said"),
    [
        ((0.95, 0.94, 0.96), GOOD, "very well (AUC 0.95 [0.94, 0.96])"),
        ((0.78, 0.76, 0.80), GOOD, "This model ranks rows well (AUC 0.78 [0.76, 0.80])"),
        ((0.68, 0.65, 0.71), GOOD, "fairly well"),
        ((0.55, 0.53, 0.57), UNSURE, "a little better than chance"),
        ((0.78, 0.60, 0.96), UNSURE, "how well, 40 bags are too few to tell"),
        ((0.60, 0.45, 0.75), UNSURE, "Whether this model ranks rows better than chance, 40 bags are too few to tell"),
        ((0.30, 0.20, 0.40), POOR, "worse than chance"),
    ],
)
def test_verdicts_follow_the_interval(auc, standing, said):
    gain = {"accuracy": between(0.1, 0.08, 0.12), "brier": between(-0.08, -0.09, -0.07)}
    found = parts.standing(told(40, between(*auc), between(0.8, 0.78, 0.82)), gain)
    assert found[0] == standing
    assert said in found[1]


def between(value, low, high):
    return Estimate(value, 0.01, low, high)


def told(bags, auc=None, accuracy=None, **changes):
    fit = bag_fit(np.full(30, 0.5), bw.Bags.from_rows(np.repeat([0.4, 0.5, 0.6], 10), np.arange(30) // 10))
    figures = {"formation": Told("random", "as asked for"), "n_rows": 8 * bags, "level": 0.95, "bags": fit}
    return Evaluation(**figures, accuracy=accuracy, auc=auc, n_bags=bags, **changes)


@pytest.mark.parametrize(
    ("accuracy", "brier", "standing"),
    [
        ((0.8, 0.78, 0.82), (0.2, 0.19, 0.22), GOOD),  # right more often than the constant guess
        ((0.7, 0.68, 0.72), (0.18, 0.17, 0.19), GOOD),  # its square error is smaller
        ((0.71, 0.68, 0.74), (0.2, 0.19, 0.22), UNSURE),  # ranks well, and is worth no more than the constant
        ((0.6, 0.58, 0.62), (0.25, 0.24, 0.26), UNSURE),
    ],
)
def test_the_badge_is_green_only_where_the_model_beats_the_constant(accuracy, brier, standing):
    gain = {
        "accuracy": between(*(one - 0.7 for one in accuracy)),
        "brier": between(*(one - 0.21 for one in brier)),
    }
    measured = told(40, between(0.78, 0.76, 0.80), between(*accuracy))
    found, sentence = parts.standing(measured, gain)
    assert found == standing
    assert ("not clearly better than one guess for all rows" in sentence) is (standing != GOOD)
    without = replace(measured, auc=None)
    assert parts.standing(without, gain)[0] == (POOR if accuracy[2] < 0.7 else standing)
    few = parts.standing(replace(without, n_bags=12), gain)[0]
    assert few in (POOR, UNSURE)  # rough intervals prove little


def test_a_comparison_of_models_worse_than_the_constant_is_not_green(undrawn, folder, joined, monkeypatch):
    """One is clearly better than the other, and neither is worth anything."""
    said = {"bad": 0.9, "worse": 0.99}

    def guessing(self, codes, offset=None):
        return np.full(len(codes), said[self.kind])

    for name in said:
        made = replace(tables.fit(joined, "ridge", random_state=0), kind="bad")
        store(replace(made, kind=name), folder / name, joined, None, joined)
    monkeypatch.setattr(tables.TableModel, "predict_codes", guessing)
    events, reports, _ = table(rows=6400, seed=7)
    found = comparison_page([folder / name for name in said], tables.join(events, reports))
    assert found.headline.startswith("Model bad has the smallest square error of these")
    assert "not clearly better than one guess for all rows" in found.headline
    assert found.standing == UNSURE


def test_the_badge_is_not_green_where_bags_do_not_prefer_the_model_or_are_not_random(
    undrawn, folder, fitted, joined, monkeypatch
):
    monkeypatch.setattr(parts, "standing", lambda evaluation, gain: (GOOD, "This model ranks rows well."))
    told = {"name": "rates", "reason": "bags differ in their proportions", "others": []}
    gain = {"value": 0.5, "error": 0.1}
    cases = {
        "clear": ({"formation": {**told, "name": "random"}, "bag_gain": gain}, GOOD, ""),
        "doubtful": ({"bag_gain": {"value": 0.1, "error": 0.2}}, UNSURE, "Held-out bags do not clearly prefer this"),
        "rates": ({"formation": told, "bag_gain": gain}, GOOD, ""),
    }
    pages = {}
    for name, (facts, standing, said) in cases.items():
        place = keep(fitted, joined, folder / f"gain-{name}", **facts)
        pages[name] = model_page(place)
        assert pages[name].standing == standing
        assert said in Outline(pages[name].html).text
    text = Outline(pages["rates"].html).text
    assert "Formation of bags: rates (bags differ in their proportions)." in text
    assert "log-likelihood of a bag +0.50 ± 0.10" in text
    both = comparison_page([folder / "gain-doubtful", folder / "gain-clear"])
    assert both.standing == UNSURE


def test_few_bags_are_called_few():
    known = Estimate(0.8, 0.01, 0.78, 0.82)
    assert "rough" in parts.cautions(told(12, accuracy=known))[0]
    assert parts.cautions(told(40, accuracy=known)) == []
    assert parts.cautions(told(12)) == []  # there are no intervals


def test_the_constant_guess_is_what_evaluate_says_of_it(fitted):
    y = np.repeat([0.0, 1.0], [70, 30])
    found = bw.evaluate(np.full(100, 0.3), None, y)
    guess = constant_guess([0.3])
    assert guess == pytest.approx({name: getattr(found, name).value for name in guess})
    assert constant_guess([0.2, 0.3, 0.5])["brier"] == pytest.approx(1 - 0.04 - 0.09 - 0.25)
    ids, rng = np.arange(300) // 10, np.random.default_rng(0)
    labels = rng.integers(0, 3, 300)
    for p, y in (([0.6], labels > 0), ([0.2, 0.3, 0.5], np.eye(3)[labels])):  # a guess that is not the mean label
        h = np.full(300, p[0]) if len(p) == 1 else np.tile(p, (300, 1))
        found = bw.evaluate(h, None, bw.aggregate(y, ids), bags=ids, formation="random")
        guess = constant_guess(p, y.mean(axis=0))
        assert guess == pytest.approx({name: getattr(found, name).value for name in guess})
        assert set(guess) >= {"accuracy", "brier", "log_loss"}


# -- the command --------------------------------------------------------------------------------------------------


def test_files_are_replaced_only_by_force(undrawn, folder, ridge):
    out = folder / "there.html"
    out.write_text("mine")
    assert "exists already" in sentence(call("page", "--model", ridge, "--out", out))
    assert out.read_text() == "mine"
    assert call("page", "--model", ridge, "--out", out, "--force").exit_code == 0
    assert out.read_text().startswith("<!DOCTYPE html>")


def test_errors_are_one_sentence(folder, ridge, files, results):
    out = folder / "never.html"
    assert "nothing to make a page of" in sentence(call("page", "--out", out), 2)
    assert "stands alone" in sentence(call("page", *files, "--results", results, "--out", out), 2)
    assert "named twice" in sentence(call("page", "--model", ridge, "--model", ridge, "--out", out))
    assert "holds no results" in sentence(call("page", "--results", folder / "nothing", "--out", out))
    plain = bw.BagRidgeClassifier().fit(np.arange(40.0)[:, None], np.arange(40) % 2)
    saving.save(plain, folder / "plain")
    assert "saved from Python" in sentence(call("page", "--model", folder / "plain", "--out", out))
    assert not out.exists()
    with pytest.raises(IsADirectoryError, match="is a folder"):
        write(model_page(ridge), folder, force=True)


@pytest.mark.parametrize(
    "changes",
    [
        {"sensitivity": "<script>"},
        {"columns": [3]},
        {"evaluation": {"n_bags": 3}},
        {"summary": {"prior": ["x"]}},
        {"trials": None},
        {"gain": {}},
        {"guess": {"wealth": 1.0}},
        {"classes": ["a", "b"]},
        {"more": 1},
    ],
)
def test_facts_that_bagwise_did_not_write_are_refused(undrawn, folder, fitted, joined, changes):
    place = keep(fitted, joined, folder / f"odd-{next(iter(changes))}", **changes)
    with pytest.raises(ValueError, match="facts that bagwise did not write"):
        model_page(place)


def test_trials_are_shown_as_a_table(undrawn, folder, fitted, joined):
    gain = {"value": 12.345, "error": 0.567}
    trials = [
        {"candidate": "ridge <b>", "risk": 0.1234, "low": 0.12, "high": 0.13, "gain": gain, "note": ""},
        {"candidate": "network", **dict.fromkeys(("risk", "low", "high", "gain")), "note": "not tried: out of time"},
    ]
    place = keep(fitted, joined, folder / "auto", trials=trials)
    text = Outline(model_page(place).html).text
    assert "What was tried" in text
    assert "ridge <b>" in text
    assert "[0.1200, 0.1300]" in text
    assert "+12.35" not in text
    assert "not tried: out of time" in text
    told = call("inspect", place).stdout
    assert "label-free risk, lower is better" in told
    assert "ridge <b>             0.1234 [0.1200, 0.1300]" in told


def test_trials_are_shown_by_what_they_were_compared_by(undrawn, folder, fitted, joined):
    """Where bags are not random, a risk says nothing, and held-out bags chose by their likelihood."""
    nothing = dict.fromkeys(("risk", "low", "high"))
    trials = [
        {"candidate": "ridge", **nothing, "gain": {"value": 12.345, "error": 0.567}, "note": ""},
        {"candidate": "network", **nothing, "gain": None, "note": "not tried: out of time"},
    ]
    formation = {"name": "rates", "reason": "bags differ in their proportions", "others": []}
    place = keep(fitted, joined, folder / "by-likelihood", trials=trials, formation=formation)
    outline = Outline(model_page(place).html)
    assert "Candidates are compared by the log-likelihood of what bags held out while fitting report" in outline.text
    assert "+12.35 ± 0.57" in outline.text
    assert "label-free risk of bags" not in outline.text
    assert "No candidate was tried" not in outline.text
    untried = keep(fitted, joined, folder / "untried", trials=trials[1:], formation=formation)
    assert "No candidate was tried on bags held out." in Outline(model_page(untried).html).text
    told = call("inspect", place).stdout
    assert "(log-likelihood of a bag over that of the mean label of all rows, ± standard error; higher is bet" in told
    assert "ridge                 +12.35 ± 0.57" in told
    assert "network               not tried: out of time" in told
    assert "risk" not in told


def test_risks_that_are_impossible_are_in_no_file(fitted):
    """Machines read the file, too: what bags cannot tell is not in it."""
    lines = [(0.17, -0.01, 0.35), (3.62, 2.9, 4.2), (-0.1, -0.2, 0.1), (None, None, None)]
    gain = {"gain": 1.0, "gain_error": 0.1, "note": ""}
    trials = [{"candidate": "c", "risk": risk, "low": low, "high": high, **gain} for risk, low, high in lines]
    found = fitted[3].evaluation
    tried = SimpleNamespace(estimator=SimpleNamespace(trials_=trials), classes=None)

    def risks(evaluation):
        told = metadata._trials(tried, evaluation)
        assert {trial.gain for trial in told} == {metadata.BagGain(1.0, 0.1)}  # which bags can tell in any formation
        return [(trial.risk, trial.low, trial.high) for trial in told]

    nothing = (None, None, None)
    assert risks(found) == risks(None) == [(0.17, 0.0, 0.35), nothing, nothing, nothing]
    assert risks(replace(found, accuracy=None)) == [nothing] * 4


def test_unfinished_reproductions_say_so(undrawn, folder, results):
    frame = pd.read_parquet(results / "adult.parquet")
    write_table(frame.iloc[:40], folder / "half" / "adult.parquet")
    text = Outline(reproduction_page(folder / "half").html).text
    assert "None of the paper's claims can be judged yet" in text
    assert "40 trainings, " in text


# -- a real browser -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    try:
        tab = Browser(tmp_path_factory.mktemp("chromium"))
    except (AssertionError, OSError) as error:
        pytest.skip(f"Chromium does not start here: {error}")
    yield tab
    tab.close()


VIEWS = {
    "light": {"scheme": "light"},
    "dark": {"scheme": "dark"},
    "narrow": {"width": 360},
    "print": {"media": "print", "width": 794},
}


@pytest.mark.parametrize("kind", MAIN_KINDS)
def test_pages_in_a_browser(pages, kind, browser, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(pages[kind], encoding="utf-8")
    brightness = {}
    for name, view in VIEWS.items():
        browser.open(file, **view)
        box = "e => {const b = e.getBoundingClientRect(); return [b.width, b.height]}"
        sizes = browser.ask(f"[...document.querySelectorAll('figure svg')].map({box})")
        assert len(sizes) == pages[kind].count("<svg")
        assert min(min(size) for size in sizes) > 100
        assert browser.ask("document.documentElement.scrollWidth") <= view.get("width", 1200)
        assert browser.ask("document.querySelectorAll('script').length") == 0
        assert browser.ask("getComputedStyle(document.querySelector('figure svg text')).fontFamily") != ""
        told = browser.told("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        assert told == []
        asked = [event["request"]["url"] for event in browser.told("Network.requestWillBeSent")]
        assert asked == [file.resolve().as_uri()]
        pixels = matplotlib.image.imread(io.BytesIO(browser.picture()))[..., :3]
        assert pixels.std() > 0.05  # not blank
        brightness[name] = float(np.median(pixels))
    assert brightness["dark"] < 0.2
    assert min(brightness[name] for name in ("light", "narrow", "print")) > 0.9


def test_the_skip_link_is_the_first_stop_of_the_keyboard(pages, browser, tmp_path):
    file = tmp_path / "page.html"
    file.write_text(pages["model"], encoding="utf-8")
    browser.open(file)
    for kind in ("rawKeyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
    assert browser.ask("document.activeElement.className") == "skip"
    browser.ask("document.querySelector('summary').focus()")
    for kind in ("keyDown", "keyUp"):
        key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
        browser.call("Input.dispatchKeyEvent", type=kind, **key)
    assert browser.ask("document.querySelector('details').open") is True


def test_a_mean_prediction_that_is_off_is_told():
    rng = np.random.default_rng(0)
    h = rng.uniform(0.1, 0.4, size=6400)
    ids = np.arange(6400) // 8
    bags = bw.Bags.from_rows(bw.aggregate(rng.random(6400) < h, ids), ids)

    def level(h):
        return Funnel.of_predictions(h, bags).level

    predicted, reported, error = level(h)
    assert (predicted, reported) == pytest.approx((h.mean(), bags.proportion.mean()))
    by_hand = np.std([8 * a - h[8 * j : 8 * j + 8].sum() for j, a in enumerate(bags.proportion)]) * 800**0.5 / 6400
    assert error == pytest.approx(by_hand)
    assert parts.off_level(predicted, reported, error) is None
    assert "too high on average: 0.299" in parts.off_level(*level(h + 0.05))
    assert "too low on average" in parts.off_level(*level(h - 0.05))
