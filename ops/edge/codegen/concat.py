"""Lowering of concatenation."""

from __future__ import annotations

import numpy as np

from ...autodiff.expr import Expr
from ...functions.shape import concat_p
from ..source.register_buffer import RegisterBuffer
from .gradients import Gradients
from .lowering import Lowering, register
from .registers import Registers, Text


class Concat(Lowering):
    """Parts written side by side into scratch space."""

    repeats = True

    def forward(self, r: Registers, e: Expr, name: str) -> RegisterBuffer:
        s = r.source
        v = r.values
        buffer = RegisterBuffer.scratch(s, name, e.dims)
        array, row = buffer.memory()
        for a, where in zip(e.args, joined(e), strict=True):
            for cell in s.slices(a.dims):
                q = cell.through(where)
                if q.run is not None:
                    buffer.set(q, v.text(a, cell))
                    continue
                x = s.scratch(v.text(a, cell), cell.active)
                i = s.name("i")
                with s.block(f"for {i} in range({cell.active}):"):
                    s.put(f"{array}[{row}, {s.map(q.at)}[0, {cell.start} + {i}]] = {x}[0, {i}]")
        return buffer

    def backward(self, to: Gradients, e: Expr, g: Text) -> None:
        for part, where in zip(e.args, joined(e), strict=True):
            to.add(part, part.dims, lambda p, at=where: g(p.through(at)))  # type: ignore[misc]


def joined(e: Expr) -> list[np.ndarray]:
    """Position in a joined value of each number of its parts."""
    axis = len(e.dims) + e.static["axis"]
    cuts = np.cumsum([a.dims[axis] for a in e.args])[:-1]
    return [
        part.ravel()
        for part in np.split(np.arange(int(np.prod(e.dims))).reshape(e.dims), cuts, axis)
    ]


register(concat_p, Concat())
