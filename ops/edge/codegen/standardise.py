"""Lowering of standardisation over the last axis."""

from __future__ import annotations

import numpy as np

from ...autodiff.expr import Expr
from ...functions.norm import standardise_p
from ..source.lane_slice import LaneSlice
from ..source.register_buffer import RegisterBuffer
from .gradients import GradientCode
from .lowering import Lowering, register
from .registers import Registers, Text


class Standardise(Lowering):
    """Mean and deviation first; the inverse of the deviation is saved for the gradient."""

    reads_again = True
    repeats = True
    saves_intermediates = True

    def forward(self, r: Registers, e: Expr, name: str) -> RegisterBuffer:
        s = r.source
        v = r.values
        x = e.args[0]
        d = e.dims[-1]
        lead = np.repeat(np.arange(int(np.prod(e.dims[:-1]))), d)
        mean = r.fold(
            lead,
            e.dims,
            lambda p: f"{v.text(x, p)} * T({1 / d!r})",
            r.total(f"a{name}", e.dims[:-1]),
        )
        centred = RegisterBuffer.best(s, f"b{name}", e.dims)
        for cell in s.slices(e.dims):
            centred.set(cell, f"{v.text(x, cell)} - {mean.get(cell.through(lead))}")
        square = lambda p: f"square({centred.get(p)}) * T({1 / d!r})"
        variance = r.fold(lead, e.dims, square, r.total(f"v{name}", e.dims[:-1]))
        inverse = RegisterBuffer.best(s, f"d{name}", e.dims[:-1])
        buffer = RegisterBuffer.best(s, name, e.dims)
        for cell in s.slices(e.dims[:-1]):
            inverse.set(cell, f"T(1) / sqrt({variance.get(cell)} + T({e.static['eps']!r}))")
        for cell in s.slices(e.dims):
            buffer.set(cell, f"{centred.get(cell)} * {inverse.get(cell.through(lead))}")
        v.intermediates[v.number[id(e)]] = inverse
        return buffer

    def backward(self, to: GradientCode, e: Expr, g: Text) -> None:
        """(g - mean(g) - y mean(g y)) / deviation, over the last axis."""
        v = to.values
        r = to.registers
        n = v.number[id(e)]
        d = e.dims[-1]
        lead = np.repeat(np.arange(int(np.prod(e.dims[:-1]))), d)
        mean = r.fold(
            lead, e.dims, lambda p: f"{g(p)} * T({1 / d!r})", r.total(f"ga{n}", e.dims[:-1])
        )
        slope = r.fold(
            lead,
            e.dims,
            lambda p: f"{g(p)} * {v.text(e, p)} * T({1 / d!r})",
            r.total(f"gb{n}", e.dims[:-1]),
        )

        def text(p: LaneSlice) -> str:
            q = p.through(lead)
            return (
                f"(({g(p)} - {mean.get(q)} - {v.text(e, p)} * {slope.get(q)}) *"
                f" {v.intermediates[n].get(q)})"
            )

        to.add(e.args[0], e.dims, text)


register(standardise_p, Standardise())
