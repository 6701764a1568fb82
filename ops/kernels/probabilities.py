"""Probabilities of rows of logits, in their type."""

from __future__ import annotations

from ..compile.jit import jit
from .decay import exp_down

# sums over a row may be split over the lanes of a vector
FAST = {"reassoc", "contract", "nsz"}


@jit(fastmath=FAST, error_model="numpy")
def softmax_rows(logits, begin, end, out):  # type: ignore[no-untyped-def]
    """out = exp(logits) / (sum over the row of exp(logits)), for rows of [begin, end)."""
    zero = logits.dtype.type(0)
    for i in range(begin, end):
        top = logits[i, 0]
        for j in range(logits.shape[1]):
            top = max(top, logits[i, j])
        for j in range(logits.shape[1]):
            x = logits[i, j]
            # infinity minus itself is no number
            out[i, j] = exp_down(zero if x == top else x - top)
        mass = zero
        for j in range(logits.shape[1]):
            mass += out[i, j]
        for j in range(logits.shape[1]):
            out[i, j] /= mass


@jit(fastmath=FAST, error_model="numpy")
def sigmoids(logits, begin, end, out):  # type: ignore[no-untyped-def]
    """out = 1 / (1 + exp(-logits)), for numbers of [begin, end)."""
    one = logits.dtype.type(1)
    for i in range(begin, end):
        x = logits[i]
        part = exp_down(-abs(x))
        out[i] = (part if x < 0 else one) / (one + part)
