"""Lowering of dropout."""

from __future__ import annotations

from ...autodiff.expr import Expr
from ...functions.dropout import dropout_p
from ..source.register_buffer import RegisterBuffer
from .gradients import GradientCode
from .lowering import Lowering, register
from .registers import Registers, Text


class Dropout(Lowering):
    """A hash for each edge and a draw for each number; the factors are saved for the gradient."""

    saves_intermediates = True

    def forward(self, r: Registers, e: Expr, name: str) -> RegisterBuffer:
        s = r.source
        v = r.values
        x = e.args[0]
        n = v.number[id(e)]
        rate = e.static["rate"]
        factor = RegisterBuffer.best(s, f"f{n}", e.dims)
        buffer = RegisterBuffer.best(s, name, e.dims)
        s.put(
            f"h{n} = mix(np.uint64(entry({s.arg('edge_gid')}, se)) * GOLDEN + {s.arg(f'key{n}')})"
        )
        limit = f"np.uint64({min(int(rate * 2.0**64), 2**64 - 1)}), T({1 / (1 - rate)!r})"
        for cell in s.slices(e.dims):
            draw = s.function(f"draw{cell.active}", f"lane_tools.dropout_factors({cell.active})")
            factor.set(cell, f"{draw}(h{n}, {cell.run}, {limit})")
            buffer.set(cell, f"unless_dropped({factor.get(cell)}, {v.text(x, cell)})")
        v.intermediates[n] = factor
        return buffer

    def backward(self, to: GradientCode, e: Expr, g: Text) -> None:
        v = to.values
        n = to.values.number[id(e)]
        to.add(
            e.args[0],
            e.dims,
            (
                (lambda p: f"unless_dropped({v.intermediates[n].get(p)}, {g(p)})")
                if v.variant.training
                else g
            ),
        )


register(dropout_p, Dropout())
