import pickle

import numpy as np
import pytest

from bagwise.utils import parameters
from bagwise.utils.parameters import (
    NONE,
    AdviceError,
    Parameter,
    ParameterError,
    check_parameters,
    number,
    one_of,
    whole,
)

TAKEN = {
    "whole": (whole(2), [2, np.int64(7)], [1, 2.0, True, "2", None, np.array(3.5)]),
    "number": (number(above=0, most=1), [1, 0.5, np.float32(0.25)], [0, 1.01, float("nan"), True, "1", None, 10**400]),
    "finite": (number(least=0), [0, 1e300], [-1, float("inf")]),
    "flag": (parameters.FLAG, [True, False, np.True_], [0, 1, "True", None]),
    "none, too": (whole(1) | NONE, [None, 1], [0]),
    "one of": (
        one_of("a", None),
        ["a", None, np.str_("a")],
        ["b", ["a"], {}, np.array([]), np.array(["a"]), np.array([1, 2])],
    ),
    "several": (
        parameters.several(whole(1), "sizes"),
        [3, [1, 2], (4,), np.array([5])],
        [[], [0], np.ones((2, 2)), "3", b"\3"],
    ),
    "columns": (
        parameters.COLUMNS,
        [None, [], (0, 2), {1}, np.array([1, 3])],
        [1, True, "1", b"1", [-1], [0.5], [True], len, np.array(1), np.array([[1]])],
    ),
}


@pytest.mark.parametrize("name", TAKEN)
def test_constraints_take_what_they_say(name):
    constraint, good, bad = TAKEN[name]
    assert [value for value in good if not constraint.holds(value)] == []
    assert [value for value in bad if constraint.holds(value)] == []
    for value in bad:
        with pytest.raises(ParameterError) as error:
            check_parameters({"size": value}, {"size": constraint})
        assert error.value.parameter == "size"
        assert constraint.words in str(error.value)


def test_values_may_be_attributes():
    class Holder:
        cv = 1

    with pytest.raises(ParameterError, match="cv"):
        check_parameters(Holder(), {"cv": whole(2)})


@pytest.mark.parametrize(
    ("error", "text", "shown"),
    [
        (ParameterError("size", "does not go with ", Parameter("by"), "."), "size does not go with by.", "-size -by"),
        (AdviceError("no size fits: lower ", Parameter("min_size"), "."), "no size fits: lower min_size.", "-min_size"),
    ],
)
def test_messages_call_parameters_as_asked(error, text, shown):
    """Words of the message that only look like a parameter stay as they are; processes hand errors over whole."""
    assert str(error) == text
    assert [word.strip(".") for word in error.shown("-{}".format).split() if word[0] == "-"] == shown.split()
    assert str(pickle.loads(pickle.dumps(error))) == text
