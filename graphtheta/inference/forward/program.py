"""What a model computes, as text: its operations, found by a pass over an empty graph.

Two models with equal weights and equal texts compute the same values. Names of variables and
layers, comments and the place of the code do not count; operations, their order, keywords and
constants do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import unwrap
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from graphtheta.engine.layer.context import ActiveGraph, Superstep
from graphtheta.engine.layer.layer import Model
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.view.hop import Layers
from graphtheta.inference.forward.empty import empty_view
from graphtheta.ops.autodiff.tape import Called, Parameter, Tape, Var, Vjp
from graphtheta.ops.edge.symbolic import SymbolicTrace
from graphtheta.run.checkpoints.tensors import checksum

OWN = __name__.partition(".")[0]
PLAIN = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    slice,
    type(Ellipsis),
    np.dtype,
    np.generic,
)


class _Listing(Tape):
    """A tape for inference that lists its operations."""

    def __init__(self, names: Mapping[Parameter, str]):
        super().__init__(record=False, training=False)
        self.lines: list[Any] = []
        self._names = names
        # values are held, so that no other one gets the id of an earlier one
        self._seen: dict[int, tuple[int, Var]] = {}

    def add(
        self,
        name: str,
        inputs: Sequence[Any],
        outputs: Sequence[Var],
        vjp: Vjp,
        call: Called = None,
    ) -> None:
        made_by = [] if call is None else [self.code(unwrap(call[0].forward)), self.text(call[1])]
        self.lines.append([name, made_by, self.text(inputs), self.text(outputs)])
        super().add(name, inputs, outputs, vjp, call)

    def text(self, x: Any) -> Any:
        """A value: a parameter by its path, a column by its name, a computed one by its number, a
        constant by its content.
        """
        if isinstance(x, Parameter):
            return f"parameter {self._names.get(x)}"
        if isinstance(x, Var):
            return x.name or f"value {self._seen.setdefault(id(x), (len(self._seen), x))[0]}"
        if isinstance(x, PLAIN):
            return repr(x)
        if isinstance(x, np.ndarray):
            return f"array {checksum(x)}"
        if isinstance(x, (tuple, list)):
            return [self.text(y) for y in x]
        if isinstance(x, Mapping):
            return {str(key): self.text(y) for key, y in x.items()}
        return _code(x.__code__) if isinstance(x, FunctionType) else type(x).__qualname__

    def gather(self, step: Superstep) -> list[Any]:
        """The messages of a layer, and how they are summed."""
        traced = step.traced
        assert traced is not None
        order = traced.order
        number = {id(e): i for i, e in enumerate(order)}
        nodes = [
            (
                self._leaf(traced, e)
                if e.prim is None
                else [
                    e.prim.name,
                    self.code(unwrap(e.prim.forward)),
                    self.text(e.static),
                    [number[id(a)] for a in e.args],
                ]
            )
            for e in order
        ]
        roots = [
            {name: number[id(e)] for name, e in named.items()}
            for named in (traced.messages, traced.outputs)
        ]
        sums = {
            name: [type(a).__qualname__, self.methods(type(a)), self.text(vars(a))]
            for name, a in {**traced.sums, **step.ordered}.items()
        }
        return [step.direction, step.along, nodes, roots, sums]

    def code(self, function: Any) -> Any:
        """What a function of the user runs, with the constants that it was defined with; that of
        this package belongs to its version.
        """
        if (
            not isinstance(function, FunctionType)
            or (function.__module__ or "").split(".")[0] == OWN
        ):
            return ""
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        return [
            _code(function.__code__),
            self.text([function.__defaults__, function.__kwdefaults__, cells]),
        ]

    def methods(self, kind: type) -> dict[str, Any]:
        """The code of the methods of a class of the user."""
        functions = {
            name: x
            for base in reversed(kind.__mro__)
            for name, x in vars(base).items()
            if isinstance(x, FunctionType)
        }
        return {name: self.code(x) for name, x in sorted(functions.items())}

    def _leaf(self, traced: SymbolicTrace, e: Any) -> Any:
        kind, name = e.leaf
        return [kind, self.text(traced.operands[name]) if kind == "operand" else name]


def program(model: Model, partition: Partition, layers: Layers) -> list[Any]:
    """The operations of a model in inference, as nested lists of texts and numbers.

    Args:
        model: The model.
        partition: Has the columns that it reads.
        layers: The supersteps of the model.
    """
    graph = ActiveGraph(empty_view(partition, layers))
    tape = _Listing({p: name for name, p in model.named_parameters()})
    with tape:
        out = model.run(graph)
    return [tape.lines, [tape.gather(step) for step in graph.supersteps], tape.text(out)]


def _code(code: CodeType) -> list[Any]:
    """What a function runs, without the file and the lines where it is."""
    return [code.co_code.hex(), list(code.co_names), [_constant(x) for x in code.co_consts]]


def _constant(x: Any) -> Any:
    if isinstance(x, CodeType):
        return _code(x)
    # the order of a set differs between processes
    return sorted(map(repr, x)) if isinstance(x, frozenset) else repr(x)
