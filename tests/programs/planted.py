"""Faults planted in the planner, the rules and the code generator, which the search must find.

Each is a change of the text of one function, made while programs run.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import textwrap
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import generator
from compare import Difference, differences, quiet

OPS = "graphtheta.ops"


@dataclass(frozen=True)
class Planted:
    """A fault.

    Attributes:
        name: What it is.
        place: Module below ``ops`` and function, separated by a colon.
        old, new: Text of the function that is replaced.
    """

    name: str
    place: str
    old: str
    new: str

    @contextmanager
    def present(self) -> Iterator[None]:
        """With the fault inside the block."""
        name, _, path = self.place.partition(":")
        module = importlib.import_module(f"{OPS}.{name}")
        *outer, last = path.split(".")
        owner: Any = module
        for part in outer:
            owner = getattr(owner, part)
        before = vars(owner)[last]
        text = textwrap.dedent(
            inspect.getsource(before.__func__ if isinstance(before, staticmethod) else before)
        )
        text = text.replace("super()", f"super({outer[-1]}, self)" if outer else "super()")
        if self.old not in text:
            raise LookupError(
                f"{self.place} no longer has the text {self.old!r}; plant the fault anew"
            )
        made: dict[str, Any] = {}
        exec(
            compile(text.replace(self.old, self.new), f"<{self.name}>", "exec"), vars(module), made
        )
        setattr(owner, last, made[last])
        # what holds the function itself: rules of rewriting and of gradients, and modules that
        # import it
        modules = [
            vars(m)
            for m in list(sys.modules.values())
            if getattr(m, "__name__", "").startswith(OPS)
        ]
        held = [
            (d, key)
            for d in (*_tables(), *modules)
            for key, f in d.items()
            if f is before and d is not vars(module)
        ]
        for d, key in held:
            d[key] = made[last]
        try:
            yield
        finally:
            setattr(owner, last, before)
            for d, key in held:
                d[key] = before


def _tables() -> list[dict[Any, Any]]:
    from graphtheta.ops.autodiff.primitive import PRIMITIVES
    from graphtheta.ops.edge import plan, rewrite

    return [
        rewrite.SIMPLIFY,
        rewrite.LINEAR,
        rewrite.SPLIT,
        plan.SIMPLIFY,
        *(p.rules for p in PRIMITIVES.values()),
    ]


PLANTED = (
    Planted(
        "a gradient with a wrong sign",
        "edge.codegen.gradients:GradientCode.pass_through",
        'return "(" + rule',
        'return "-(" + rule',
    ),
    Planted(
        "a gradient of the largest number at another position",
        "edge.codegen.axes:ExtremeOverAxes.forward",
        "= which",
        "= 0",
    ),
    Planted(
        "equal numbers: the last of the largest",
        "edge.codegen.axes:ExtremeOverAxes.forward",
        "{self.better} best or",
        "{self.better}= best or",
    ),
    Planted(
        "a product contracted over a wrong axis",
        "edge.rewrite:contract_sum",
        'w, e.static["axis"]',
        "w, (-len(w.dims) + 1,)",
    ),
    Planted(
        "a sum over heads contracted as one over features",
        "edge.rewrite:contract_sum",
        'if min(e.static["axis"]) < -inside or (factor is not None and len(factor.dims) >'
        " inside):\n        return None",
        "",
    ),
    Planted(
        "parts of a product that overlap",
        "edge.rewrite:split_concat",
        "at += p.dims[-1]",
        "at += p.dims[-1] - 1",
    ),
    Planted(
        "a deferred product that the sum reads elsewhere",
        "edge.plan:_deferred",
        "all(phase.aggregators[name].linear for name in names)",
        "True",
    ),
    Planted(
        "saved residuals cleared before they are stored",
        "edge.codegen.gradients:GradientCode.store_residuals",
        "self.buffer(e).fill_up()",
        'self.buffers[n] = self.registers.total(f"r{n}", e.dims); self.buffers[n].fill_up()',
    ),
    Planted(
        "a value that a gradient reads not evaluated",
        "edge.codegen.boundary:Boundary._rule",
        "self._value(b)",
        "pass",
    ),
    Planted(
        "equal messages: the last edge wins",
        "edge.aggregator:beats",
        "edge < at",
        "edge > at",
    ),
    Planted(
        "equal messages: the last edge wins in kernels",
        "edge.codegen.totals:ExtremeLowering.forward",
        "{best.get(cell)}, tie, {edge.get(cell)})",
        "{best.get(cell)}, 0, {edge.get(cell)})",
    ),
    Planted(
        "equal messages: the last edges first among the k largest",
        "edge.codegen.totals:TopKLowering.forward",
        "{best.get(cell)}, {at}, {edge.get(cell)})",
        "{best.get(cell)}, 0, {edge.get(cell)})",
    ),
    Planted(
        "equal messages: the last edge has the median",
        "edge.codegen.totals:MedianLowering.forward",
        "single(ONE), tie,",
        "single(ONE), 0,",
    ),
    Planted(
        "a softmax that does not rescale its total",
        "edge.codegen.softmax:_accumulate",
        'f"{totals.get(cell)} * {shrink.get(cell.through(heads))}"',
        'f"{totals.get(cell)}"',
    ),
    Planted(
        "a mean not divided in backward",
        "edge.aggregator:Mean.backward_state",
        "_over(g, expand(self._weight(state), g.ndim))",
        "g",
    ),
    Planted(
        "a mean that ignores importance weights",
        "edge.codegen.totals:MeanLowering.forward",
        'm.weighted("single(ONE)")',
        '"single(ONE)"',
    ),
    Planted(
        "a broadcast from wrong positions",
        "edge.codegen.values:Values.narrow",
        "broadcast(a.dims, e.dims)",
        "broadcast(a.dims, e.dims)[::-1]",
    ),
    Planted(
        "dropout without its mask in backward",
        "edge.codegen.dropout:Dropout.backward",
        "if v.variant.training\n",
        "if False\n",
    ),
    Planted(
        "a random draw hoisted to the nodes",
        "edge.rewrite:end_of",
        "if x.leaf is not None\n",
        'if x.leaf is not None and x.leaf[1] not in ("gid", "run")\n',
    ),
    Planted(
        "buffers that nothing was added to",
        "edge.source.register_buffer:RegisterBuffer.fill_up",
        "self.source.put(",
        "str(",
    ),
    Planted(
        "lanes beyond the end of a row",
        "edge.source.lane_slice:slices",
        "min(lanes, last - s))",
        "lanes)",
    ),
    Planted(
        "an offset of concat", "functions.shape:_concat_vjp", "xs[:position]", "xs[1:position]"
    ),
    Planted(
        "parts of concat in another order",
        "edge.codegen.axes:joined",
        ", cuts, axis)",
        ", cuts, axis)[::-1]",
    ),
    Planted(
        "a number of a list that is counted once",
        "functions.index:_getitem_vjp",
        "np.add.at(out, at, g)",
        "out[at] = g",
    ),
    Planted(
        "a softmax weight that is linear in one of two terms",
        "edge.program:_coefficient",
        "declared.additive and all(inside)",
        "declared.additive and any(inside)",
    ),
    Planted(
        "a gradient of a parameter that replaces another",
        "edge.backend.fused:_return_constants",
        "gradients[n] + g if",
        "g if",
    ),
    Planted(
        "the parts of a hub not merged",
        "edge.backend.fused:_sweep_back",
        "into[name][row] += x[i]",
        "pass",
    ),
    Planted(
        "a row of a table one further",
        "edge.codegen.embedding:OwnEmbedding._row",
        "{table.dims[0]} +",
        "{table.dims[0]} + 1 +",
    ),
    Planted(
        "a deferred function that reads a parameter after its update",
        "autodiff.fusion:_plain",
        "x.array)",
        "value_of(x.source))",
    ),
    Planted(
        "stored rows that are read in the order of the file",
        "edge.codegen.values:Values.row",
        "entry({rows}, {'se' if kind == 'edge' else kind[0] + 'r'})",
        "{'se' if kind == 'edge' else kind[0] + 'r'}",
    ),
    Planted(
        "a product whose rows are mixed up",
        "edge.codegen.product:Product._left",
        "{line * k} + k_{name}] = number",
        "k_{name}] = number",
    ),
)


def found_by(
    fault: Planted, most: int, seed: int, without: Collection[str]
) -> tuple[int, Difference | None]:
    """How many programs were run until one failed because of the fault, and how."""
    for number in range(most):
        case = generator.program(seed + number, without).case()
        kinds = ("reference", "emulator", "emulated sequence")
        kinds += ("ranks",) if number % 4 == 0 else ()
        with fault.present():
            failing = differences(case, kinds)
        # not because of a fault that is there anyway
        if failing and not {d.signature for d in failing} <= {
            d.signature for d in differences(case, kinds)
        }:
            return number + 1, failing[0]
    return most, None


@quiet()
def table(most: int, seed: int, without: Collection[str], part: str = "") -> int:
    """Print how many programs find each fault whose name has a part; 1 if one is not found."""
    missed = 0
    print(f"{'programs':>8}{'s':>6}  {'planted fault':<60} found as")
    for fault in (fault for fault in PLANTED if part in fault.name):
        begin = time.perf_counter()
        try:
            number, difference = found_by(fault, most, seed, without)
        except LookupError as error:
            number = 0
            difference = None
            print(error)
        missed += difference is None
        shown = (
            "not found"
            if difference is None
            else f"{difference.kind}: {difference.name}: {difference.text}"[:90]
        )
        print(
            f"{number:>8}{time.perf_counter() - begin:>6.1f}  {fault.name:<60} {shown}", flush=True
        )
    return 1 if missed else 0
