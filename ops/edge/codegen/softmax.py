"""Lowerings of softmax-weighted sums and of the normaliser of an edge softmax."""

from __future__ import annotations

import numpy as np

from ...autodiff.expr import Expr
from ..aggregator import LOG_SUM_EXP, ONE_TOLERANCE, SOFTMAX_SUM
from ..source.register_buffer import RegisterBuffer
from .aggregate import AggregateLowering, register_aggregate
from .messages import Messages


class LogSumExpLowering(AggregateLowering):
    """Running maximum and sum of exponentials."""

    softmax = True

    def forward(self, m: Messages, name: str, parts: list[Expr]) -> None:
        _accumulate(m, name, parts[0], None)

    def backward(self, m: Messages, name: str, parts: list[Expr]) -> None:
        to = m.gradients
        if not to.needs_gradient(parts[0]):
            return
        weights = _attention(m, name, parts[0])
        g = m.column(name, "g")
        to.add(parts[0], parts[0].dims, lambda p: f"({g(p)} * {weights.get(p)})")


class SoftmaxSumLowering(AggregateLowering):
    """Running maximum, sum of exponentials, and weighted sum of values."""

    softmax = True

    def forward(self, m: Messages, name: str, parts: list[Expr]) -> None:
        _accumulate(m, name, parts[0], parts[1])

    def backward(self, m: Messages, name: str, parts: list[Expr]) -> None:
        s = m.source
        v = m.values
        r = m.registers
        to = m.gradients
        z, x = parts
        if not (
            to.needs_gradient(z)
            or to.needs_gradient(x)
            or ("weight", v.number[id(z)]) in v.variant.residuals
        ):
            return
        weights = _attention(m, name, z)
        g = m.column(name, "g")
        heads = np.repeat(np.arange(int(np.prod(z.dims))), int(np.prod(x.dims[len(z.dims) :])))
        if to.needs_gradient(z):
            inner = m.column(name, "inner")
            products = r.total(s.name("q"), z.dims)
            r.fold(heads, x.dims, lambda p: f"{g(p)} * {v.text(x, p)}", products)
            score_grad = RegisterBuffer.best(s, s.name("q"), z.dims)
            for cell in s.slices(z.dims):
                weight = weights.get(cell)
                score_grad.set(
                    cell, f"unless_one({weight}, {weight} * ({products.get(cell)} - {inner(cell)}))"
                )
            to.add(z, z.dims, score_grad.get)
        to.add(x, x.dims, lambda p: f"({weights.get(p.through(heads))} * {g(p)})")


def _accumulate(m: Messages, name: str, z: Expr, x: Expr | None) -> None:
    """Add an edge with a running maximum; a new maximum rescales the sums so far."""
    s = m.source
    v = m.values
    scores = _score(m, z)
    top = m.state(name, "max", z.dims)
    sums = m.state(name, "sum", z.dims)
    totals = None if x is None else m.state(name, "total", x.dims)
    weights = RegisterBuffer.best(s, s.name("e"), z.dims)
    shrink = RegisterBuffer.scratch(s, s.name("f"), z.dims)
    heads = (
        None
        if x is None
        else np.repeat(np.arange(int(np.prod(z.dims))), int(np.prod(x.dims[len(z.dims) :])))
    )
    new = s.name("new")
    s.put(f"{new} = False")
    for cell in s.slices(z.dims):
        s.put(f"{new} = {new} or some({scores.get(cell)}, {top.get(cell)})")
    with s.block(f"if {new}:"):
        for cell in s.slices(z.dims):
            higher = s.name("m")
            factor = s.name("f")
            s.put(f"{higher} = raised({top.get(cell)}, {scores.get(cell)})")
            s.put(f"{factor} = softmax_weight({top.get(cell)}, {higher})")
            sums.set(cell, f"{sums.get(cell)} * {factor}")
            top.set(cell, higher)
            if totals is not None:
                shrink.set(cell, factor)
        for cell in s.slices(x.dims) if x is not None else ():
            assert totals is not None and heads is not None
            totals.set(cell, f"{totals.get(cell)} * {shrink.get(cell.through(heads))}")
    for cell in s.slices(z.dims):
        weights.set(cell, m.weighted(f"softmax_weight({scores.get(cell)}, {top.get(cell)})"))
        sums.add(cell, weights.get(cell))
    for cell in s.slices(x.dims) if x is not None else ():
        assert totals is not None and heads is not None and x is not None
        totals.add(cell, f"{weights.get(cell.through(heads))} * {v.text(x, cell)}")


def _score(m: Messages, z: Expr) -> RegisterBuffer:
    """The scores, rounded: contracted with a subtraction, a score would differ from the largest
    one, which may be itself.
    """
    s = m.source
    v = m.values
    buffer = RegisterBuffer.best(s, s.name("z"), z.dims)
    for cell in s.slices(z.dims):
        buffer.set(cell, f"rounded({v.text(z, cell)})")
    return buffer


def _attention(m: Messages, name: str, z: Expr) -> RegisterBuffer:
    """The softmax weights, computed again in backward."""
    s = m.source
    v = m.values
    to = m.gradients
    n = v.number[id(z)]
    if n in to.weights:
        return to.weights[n]
    scores = _score(m, z)
    top = m.column(name, "top")
    mass = m.column(name, "mass")
    buffer = RegisterBuffer.best(s, s.name("p"), z.dims)
    tolerance = ONE_TOLERANCE * float(np.finfo(v.variant.dtype).eps)
    for cell in s.slices(z.dims):
        # n exp(z) = exp(z + log n)
        scale = f" - log(as_float(entry({s.arg('scale')}, en)))" if v.variant.weighted else ""
        buffer.set(
            cell,
            f"softmax_share({scores.get(cell)}, {top(cell)}, {mass(cell)}{scale},"
            f" T({tolerance!r}))",
        )
    to.weights[n] = buffer
    return buffer


register_aggregate(LOG_SUM_EXP, LogSumExpLowering())
register_aggregate(SOFTMAX_SUM, SoftmaxSumLowering())
