"""Drawn programs and those found earlier give the numbers of an independent evaluation; planted
faults are found.
"""

from __future__ import annotations

import compare
import emulator
import generator
import numpy as np
import planted
import pytest
import search
import shrink
from found import FOUND, layer
from program import Case

from graphtheta.ops.kernels import vector_header

SHARES, EACH = 5, 20


def said(outcome):
    """What a search found, as text."""
    return "\n".join(
        f"{signature}: seeds {seeds[:5]}: {text}"
        for signature, (seeds, _, text) in outcome.found.items()
    )


@pytest.mark.second
@pytest.mark.parametrize("share", range(SHARES))
def test_drawn_programs(share):
    outcome = search.search(range(share * EACH, (share + 1) * EACH))
    assert not outcome.found, said(outcome)
    assert outcome.comparisons["emulator"] == EACH


@pytest.mark.second
def test_drawn_programs_with_nan_and_infinities():
    outcome = search.search(range(20), special=True)
    assert not outcome.found, said(outcome)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", FOUND)
def test_programs_that_were_wrong(name):
    kinds = (
        "reference",
        "emulator",
        "arrays",
        "differences",
        "emulated ranks",
        "emulated sequence",
    )
    assert compare.differences(FOUND[name], kinds) == []


@pytest.mark.second
def test_compiled_kernels_give_the_numbers_of_the_emulator():
    case = FOUND["a product with a vector, and then with a matrix"]
    assert compare.differences(case, ("compiled", "threads", "emulator")) == []


def test_a_seed_gives_the_same_program():
    first, second = (generator.program(7).case() for _ in range(2))
    assert first == second
    scope = {"Case": Case, "Drawn": compare.Case.__init__.__globals__["Drawn"]}
    assert eval(first.printed(), scope) == Case(**{**vars(first), "text": "\n" + first.text})


# ---- the tool itself


def test_a_failing_program_becomes_small(monkeypatch):
    fault = next(f for f in planted.PLANTED if f.name == "an offset of concat")
    with fault.present():
        program, difference = next(
            (program, d)
            for program in map(generator.program, range(30))
            for d in compare.differences(program.case(), ("reference",))
        )
        small = shrink.shrunk(program, difference.kind, difference.signature, most=150)
        assert small.size() < program.size() and "concat" in small.case().text
        assert shrink.fails(small, difference.kind, difference.signature)
    assert compare.differences(small.case(), ("reference",)) == []


EASY = (
    "a gradient with a wrong sign",
    "a mean not divided in backward",
    "lanes beyond the end of a row",
    "parts of concat in another order",
    "a deferred function that reads a parameter after its update",
)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", EASY)
def test_planted_faults_are_found(name):
    fault = next(f for f in planted.PLANTED if f.name == name)
    assert planted.found_by(fault, 60, 0, ())[1] is not None


@pytest.mark.parametrize("fault", planted.PLANTED, ids=lambda fault: fault.name)
def test_faults_are_planted_where_the_text_says(fault):
    with fault.present():
        pass


def vector(*numbers, dtype=np.float64):
    return emulator.V(np.array(numbers, dtype))


def test_the_emulator_is_as_strict_as_the_compiler():
    row = np.arange(6.0).reshape(2, 3)
    assert emulator.loader(3)(row, 1, 0).x.tolist() == [3, 4, 5, 0]
    assert (vector(7, -7, dtype=np.int32) / vector(2, 2, dtype=np.int32)).x.tolist() == [3, -3]
    with pytest.raises(emulator.Fault, match="row 1, columns 1 to 4"):
        emulator.loader(3)(row, 1, 1)
    with pytest.raises(emulator.Fault, match="int32 is combined with one of float64"):
        vector(1, 2, dtype=np.int32) + vector(1.0, 2.0)
    with pytest.raises(emulator.Fault, match="2 lanes is combined with one of 4"):
        vector(1, 2) * vector(1, 2, 3, 4)
    with pytest.raises(emulator.Fault, match="the name nothing is not known"):
        emulator.compiled(
            "def kernel(x):\n    if x:\n        nothing(x)\n", "float64", vector_header
        )
    with pytest.raises(emulator.Fault, match=r"name of a function: .'exp'"):
        emulator.compiled("def kernel(exp):\n    exp(1)\n", "float64", vector_header)


def test_ties_and_kinks_are_left_out():
    near = layer("gt.relu(edge.src.x - edge.src.x + edge.attr[..., :1] * 1e-9)")
    with pytest.raises(compare.Unfit, match="a kink"):
        compare.checked(near)
