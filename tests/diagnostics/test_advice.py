import re
from dataclasses import replace

import numpy as np
import pytest

import bagwise as bw
from bagwise.cli import app
from bagwise.diagnostics import diagnose
from bagwise.diagnostics.advice import COMMANDS, PYTHON, advice
from bagwise.estimators import ESTIMATORS, MODELS
from bagwise.formation import FORMATIONS, Told


@pytest.fixture(scope="module")
def found():
    rng = np.random.default_rng(0)
    ids = np.repeat(np.arange(100), 8)
    y = (rng.random(800) < 0.3).astype(float)
    made = diagnose(rng.normal(size=(800, 2)), bw.aggregate(y, ids), bags=ids)
    return replace(made, evidence=replace(made.evidence, proportions=replace(made.proportions, p_value=1e-9)))


def every(found):
    """Diagnoses of every kind, some of which no tables would have."""
    values = replace(found.evidence, values=True)
    for name in FORMATIONS:
        of_values = replace(found, evidence=values, formation=Told(name, "as asked for"))
        yield of_values
        told = replace(found, formation=Told(name, "as asked for"))
        yield told
        yield replace(told, strata=("campaign", "day"))
        yield replace(told, drift=(replace(found.proportions, p_value=1e-9, drift=True),))
    yield replace(found, formation=Told("random", "too few bags"), n_bags=3)


def options_of(command):
    """What can be typed after a command."""
    from typer.main import get_command

    context = get_command(app).commands[command]
    return {option for parameter in context.params for option in parameter.opts}


def test_on_the_command_line_it_names_what_can_be_typed(found):
    told = {advice(one, COMMANDS) for one in every(found)}
    assert len(told) > 8
    known = options_of("fit") | options_of("evaluate")
    for text in told:
        assert not re.search(r"Bag[A-Z]|\w\(|=…|\bloss(es)?\b|count likelihood", text), text
        assert set(re.findall(r"--[\w-]+", text)) <= known, text
        for models in re.findall(r"--model ([\w, ]+?)(?:,? which| is)", text):
            assert set(re.findall(r"\w+", models)) - {"or"} <= set(MODELS), text
    assert any("--strata campaign,day" in text for text in told)


def test_in_python_it_names_estimators_that_there_are(found):
    for one in every(found):
        assert one.advice == advice(one, PYTHON)
        assert set(re.findall(r"Bag\w+", one.advice)) <= set(ESTIMATORS)
        assert "--" not in one.advice
