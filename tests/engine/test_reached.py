"""What an object leads to, and how far that is followed."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

import graphtheta as gt
from graphtheta.engine.layer.reached import MOST_SEARCHED, reached


class Strict:
    """Runs code for attributes that it lacks, which raises another error than AttributeError."""

    def __init__(self, parameter):
        vars(self)["values"] = {"parameter": parameter}

    def __getattr__(self, name):
        return vars(self)["values"][name]


def test_parameters_are_reached_through_objects_methods_and_closures():
    parameter = gt.Parameter.ones(3)
    held = SimpleNamespace(inner=[SimpleNamespace(p=parameter)])
    cases = {
        "self.inner.0.p": held,
        "self.values.parameter": Strict(parameter),
        "self.parameter": lambda: parameter,
        "self.__call__.parameter": SimpleNamespace(__call__=lambda: parameter),
    }
    for path, root in cases.items():
        assert path in [where for where, x, _ in reached(root) if x is parameter]


def test_a_search_is_bounded_and_leaves_out_numbers_texts_and_arrays():
    large = {"numbers": list(range(10)), "texts": ["a"] * 10, "array": np.zeros(3)}
    assert [path for path, _, _ in reached(large)] == ["self", "self.numbers", "self.texts"]
    many = [[[] for _ in range(1000)] for _ in range(2 * MOST_SEARCHED // 1000)]
    assert sum(1 for _ in reached(many)) == MOST_SEARCHED + 1
