"""The parts of the generator of kernels, each by itself, and the registries of lowerings."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from traced import trace

import graphtheta.ops as gt
from graphtheta.ops import PRIMITIVES
from graphtheta.ops.autodiff.expr import Tracer
from graphtheta.ops.autodiff.primitive import primitive
from graphtheta.ops.autodiff.traits import Traits
from graphtheta.ops.compile.elementary import FUNCTIONS
from graphtheta.ops.edge.aggregator import BUILT_IN, Sum
from graphtheta.ops.edge.codegen import kernel
from graphtheta.ops.edge.codegen.aggregate import aggregate_of
from graphtheta.ops.edge.codegen.gradients import GradientCode
from graphtheta.ops.edge.codegen.kernel import generate, unsupported, values_of
from graphtheta.ops.edge.codegen.lowering import LOWERINGS, Structural, lowering_of
from graphtheta.ops.edge.codegen.registers import Registers
from graphtheta.ops.edge.codegen.variant import Variant
from graphtheta.ops.edge.order_statistics import TopK
from graphtheta.ops.edge.plan import plan
from graphtheta.ops.edge.program import Phase
from graphtheta.ops.edge.source.lane_slice import LaneSlice, broadcast, slices
from graphtheta.ops.edge.source.register_buffer import RegisterBuffer
from graphtheta.ops.edge.source.source import KernelSource
from graphtheta.ops.edge.variance import DEVIATION, VARIANCE
from graphtheta.ops.kernels import number_header, vector_header

F = np.dtype("float64")
NODES = {"z": ((2, 3), F, True), "s": ((2,), F, True), "a": ((), F, True)}


def phase_of(gather, sums="sum"):
    return trace(gather, NODES, {}, sums, "Mine").phases[-1]


def variant(mode, wanted=(), **keys):
    return Variant(
        mode=mode,
        listed=False,
        training=keys.pop("training", True),
        weighted=False,
        carried=frozenset(),
        wanted=frozenset(wanted),
        totals=(("",), ()),
        dtype="float64",
        **keys,
    )


def whole(shape):
    (found,) = slices(shape, 8)
    return found


# ---- lane slices and source


def test_slices_cover_a_value_along_its_last_axis():
    assert [(c.at.tolist(), c.active) for c in slices((2, 3), 2)] == [
        ([0, 1], 2),
        ([2], 1),
        ([3, 4], 2),
        ([5], 1),
    ]
    assert [c.at.tolist() for c in slices((3, 1), 8)] == [[0, 1, 2]]


def test_a_slice_of_consecutive_or_equal_positions_is_known_as_such():
    assert (whole((3,)).run, whole((3,)).same) == ("0", None)
    repeated = whole((3,)).through(np.array([4, 4, 4]))
    assert (repeated.run, repeated.same) == (None, 4)
    assert LaneSlice(np.array([2, 3]), 2, "z").run == "z + 2"
    assert broadcast((2, 1), (2, 3)).tolist() == [0, 0, 0, 1, 1, 1]


def test_lines_go_to_their_section_with_its_depth():
    source = KernelSource("float64", False)
    source.put("one")
    with source.within("row"), source.block("if x:"):
        source.put("two")
    with source.block("for i in y:"):
        pass
    assert source.sections["edge"] == [
        " " * 12 + "one",
        " " * 12 + "for i in y:",
        " " * 16 + "pass",
    ]
    assert source.sections["row"] == [" " * 8 + "if x:", " " * 12 + "two"]


def test_a_text_becomes_one_variable_which_is_not_known_outside_of_its_block():
    source = KernelSource("float64", False)
    with source.block("if x:"):
        inside = source.once("f(1)")
        assert source.once("f(1)") == inside
    assert source.once("f(1)") != inside and len({source.name("v") for _ in range(3)}) == 3


def test_register_buffers_are_assigned_first_and_added_to_later():
    source = KernelSource("float64", False)
    made = RegisterBuffer.best(source, "t", (2, 3))
    first, second = slices((2, 3), 8)
    made.add(first, "x")
    made.add(first, "y")
    made.fill_up()
    assert [line.strip() for line in source.sections["edge"]] == [
        "t_0 = x",
        "t_0 = t_0 + y",
        "t_1 = single(ZERO)",
    ]
    assert (
        made.get(second) == "t_1" and made.get(first.through(np.array([4, 4, 4]))) == "lane(t_1, 1)"
    )


def test_register_buffers_of_wide_values_are_in_memory():
    source = KernelSource("float64", True)
    made = RegisterBuffer.best(source, "t", (200,))
    assert made.memory() == ("t", "0") and source.buffers == {"t": (200, "float64")}


# ---- values, registers, gradients


def test_values_read_structural_expressions_at_other_positions():
    phase = phase_of(lambda e: gt.tanh(e.src.s)[..., ::-1] * e.src.s)
    values = values_of(phase, variant("forward"))
    product = phase.message[0]
    text = values.text(product, whole((2,)))
    (line,) = [line for line in values.source.sections["edge"] if "pick2" in line]
    assert "tanh(" in text and values.source.maps["map0"].tolist() == [1, 0] and "map0" in line


def test_dropout_outside_of_training_is_its_argument():
    phase = phase_of(lambda e: gt.dropout(e.src.s, 0.5))
    values = values_of(phase, variant("forward", training=False))
    text = values.text(phase.message[0], whole((2,)))
    assert (
        values.is_alias(phase.message[0])
        and values.source.sections["edge"][0].strip() == f"{text} = load2(src0, sr, 0)"
    )


@pytest.mark.parametrize(
    "gather, mode, saved",
    [
        (lambda e: e.src.s * e.dst.s, "forward", []),
        (lambda e: gt.exp(e.src.s + e.dst.s), "forward", []),
        (lambda e: gt.exp(e.src.s + e.dst.s), "receiver", ["exp"]),
        (lambda e: gt.square(e.src.s + e.dst.s) + (e.src.s + e.dst.s), "forward", ["add"]),
        (lambda e: (e.src.z * e.dst.z).sum(-1), "forward", ["sum"]),
        (lambda e: gt.reshape(e.src.z, 6), "forward", []),
    ],
)
def test_what_is_saved(gather, mode, saved):
    """What is costly to have again, used twice, or has no text of its own."""
    phase = phase_of(gather)
    values = values_of(phase, variant(mode))
    Registers(values.source, values).save(phase.message)
    assert [phase.order[n].prim.name for n in sorted(values.saved)] == saved


def test_gradients_go_where_they_are_wanted_only():
    phase = phase_of(lambda e: e.src.s * e.dst.s)
    values = values_of(phase, variant("sender", {("src", "s")}))
    gradients = GradientCode(Registers(values.source, values))
    gradients.add(phase.message[0], (2,), lambda p: "G")
    gradients.backpropagate()
    assert [line.strip() for line in values.source.sections["edge"] if "sum_gsrc" in line] == [
        "sum_gsrc0_0 = sum_gsrc0_0 + (G * v_1)"
    ]
    assert "gdst1" not in values.source.arguments


def test_a_kernel_is_the_same_text_every_time():
    gather = lambda e: gt.softmax(e.src.s + e.dst.s) * e.src.z
    wanted = {("src", "s"), ("src", "z")}
    texts = [generate(phase_of(gather), variant("sender", wanted)).source for _ in range(2)]
    assert texts[0] == texts[1]


# ---- registries


def test_every_operation_of_gather_has_a_form_or_a_lowering():
    ours = [
        p
        for p in PRIMITIVES.values()
        if p.rowwise and p.forward.__module__.startswith("graphtheta.")
    ]
    missing = {
        p.name for p in ours if p.scalar is None and p not in LOWERINGS and not p.traits.structural
    }
    # the planner replaces it before a kernel is generated
    assert missing == {"edge_softmax"}
    assert not {
        p.name for p in ours if p.scalar is not None and (p in LOWERINGS or p.traits.structural)
    }


def test_an_operation_is_known_by_what_it_declares_and_not_by_its_name():
    def use(**declared):
        made = primitive("test_declared", **declared)(lambda x: x[..., ::-1])
        gt.defvjp(made, x=lambda g, y, x: g[..., ::-1])
        return phase_of(lambda e: made(e.src.s) * e.dst.s)

    try:
        assert "test_declared, which has no compiled form" in unsupported(use())
        phase = use(traits=Traits(structural=True))
        assert not unsupported(phase)
        assert isinstance(
            lowering_of(next(e for e in phase.order if e.traits.structural)), Structural
        )
    finally:
        del PRIMITIVES["test_declared"]


def test_every_aggregator_has_a_lowering_that_reads_and_writes_its_columns():
    for aggregator in (*BUILT_IN, VARIANCE, DEVIATION):
        assert aggregate_of(aggregator) is not None
        with Tracer() as tracer:
            score = tracer.leaf("src", "s", (2,), F)
            parts = (
                [score, tracer.leaf("src", "z", (2, 3), F)]
                if aggregator.name == "softmax-sum"
                else [score]
            )
        phase = Phase({"": parts}, {"": aggregator}, {})
        state = aggregator.start(1, [e.dims for e in parts], F)
        total = aggregator.finish(state)
        forward = generate(phase, variant("forward"))
        assert {
            name.removeprefix("state__") for name in forward.arguments if name.startswith("state_")
        } == state.keys()
        sender = generate(phase, variant("sender", {("src", "s"), ("src", "z")}))
        read = {
            name.removeprefix("spread__") for name in sender.arguments if name.startswith("spread_")
        }
        assert read == aggregator.backward_state(state, total, total).keys()


@pytest.mark.parametrize("built_in, arguments", [(Sum, ()), (TopK, (2,))])
def test_an_aggregator_derived_from_a_built_in_one_does_not_inherit_its_lowering(
    built_in, arguments
):
    class Mine(built_in):
        pass

    mine = Mine(*arguments)
    mine.name = "mine"
    with Tracer() as tracer:
        phase = Phase({"": [tracer.leaf("src", "s", (2,), F)]}, {"": mine}, {})
    assert (
        unsupported(phase)
        == "its sum is mine, which has no compiled form; sum, mean, max, min, var, std, median and"
        " TopK have one"
    )


def test_kernels_have_the_functions_that_scalar_forms_may_call():
    assert FUNCTIONS.keys() <= vector_header.names("float64").keys()
    of_numbers = {name for name, function in FUNCTIONS.items() if function.of_numbers}
    assert FUNCTIONS.keys() & number_header.names("float64").keys() == of_numbers
    assert all(function.of_numbers for function in FUNCTIONS.values() if function.lazy)


def test_the_example_in_the_docstring_of_the_generator_is_what_it_generates():
    nodes = {"h": ((2,), np.float32, True)}
    edges = {"weight": ((), np.float32, False)}
    program = trace(lambda edge: edge.src.h * edge.weight, nodes, edges, "sum", "Example")
    source = generate(program.phases[0], replace(variant("forward"), dtype="float32")).source
    generated = [line.strip() for line in source.splitlines()]
    shown = re.findall(r"^    +(.*\S)$", kernel.__doc__.split("Names in kernels")[0], re.MULTILINE)
    lines = [re.sub(r" +# \w+$", "", line) for line in shown]
    assert len(lines) == 15 and lines == [line for line in generated if line in lines]


def test_attention_saves_the_weight_and_the_gradient_of_the_score():
    nodes = {name: (dims, np.float32, True) for name, dims in (("s", (4,)), ("z", (4, 8)))}
    nodes["t"] = nodes["s"]

    def gather(edge):
        return gt.softmax(gt.leaky_relu(edge.src.s + edge.dst.t, 0.2)) * edge.src.z

    phase = plan(trace(gather, nodes, {}, "sum", "Example")).phases[-1]
    sender = variant("sender", [("src", "s"), ("src", "z")])
    saved = [(kind, str(phase.order[n])) for kind, n in kernel.residuals_of(phase, sender)]
    assert saved == [("gradient", "src.s"), ("weight", "leaky_relu(add(src.s, dst.t))")]
