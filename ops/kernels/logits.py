"""Rows of logits: softmax cross entropy of those that count, without arrays of probabilities, and
probabilities, in their type.
"""

from __future__ import annotations

import math

import numpy as np

from ..compile.jit import jit
from .decay import exp_down

# sums over a row may be split over the lanes of a vector
FAST = {"reassoc", "contract", "nsz"}


@jit(fastmath=FAST)
def cross_entropy(logits, labels, rows):  # type: ignore[no-untyped-def]
    """Sum over ``rows`` of log(sum of exp(logits)) - logit of the label, in float64."""
    total = np.float64(0)
    for i in rows:
        top = logits[i, 0]
        for j in range(logits.shape[1]):
            top = max(top, logits[i, j])
        mass = logits.dtype.type(0)
        for j in range(logits.shape[1]):
            mass += exp_down(logits[i, j] - top)
        # beside large logits, the logarithm would be rounded away
        total += math.log(mass) + (np.float64(top) - np.float64(logits[i, labels[i]]))
    return total


@jit(fastmath=FAST)
def cross_entropy_slope(  # type: ignore[no-untyped-def]
    logits, labels, rows, begin, end, scale, out
):
    """(softmax - one at the label) * scale for ``rows``, 0 in the other rows of [begin, end)."""
    zero = logits.dtype.type(0)
    after = begin
    for i in rows:
        out[after:i] = zero
        after = i + 1
        top = logits[i, 0]
        for j in range(logits.shape[1]):
            top = max(top, logits[i, j])
        mass = zero
        for j in range(logits.shape[1]):
            out[i, j] = exp_down(logits[i, j] - top)
        # a sum in a loop that also stores would be added in another order where the arrays lie
        # close together
        for j in range(logits.shape[1]):
            mass += out[i, j]
        factor = scale / mass
        for j in range(logits.shape[1]):
            out[i, j] *= factor
        out[i, labels[i]] -= scale
    out[after:end] = zero


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
