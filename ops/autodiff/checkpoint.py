"""Gradient checkpointing: segments of a forward pass that run again in backward.

A segment saves its outputs only. Gradients of the second run are added to those of the pass value
by value, in the order of an uninterrupted run, so gradients are equal to the bit with and without
checkpointing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphtheta.errors import TapeError

from ..parallel import buffers
from ..rows.bfloat16 import as_float
from ..rows.row_list import take_rows
from .fusion import waits
from .gradients import Gradients
from .space import RowSpace
from .stored import operand_of
from .tape import Parameter, Tape, Unrecorded, Var, current, needs_grad

Run = Callable[[], list[Var]]
# rows of an output that are compared with those of the first run
ROWS = 256
# how far their numbers may be apart, as a share of the largest: further than rounding to bfloat16
APART = 2.0**-6


class Segment:
    """A checkpointed segment as one step of a tape.

    Attributes:
        outputs: The values it returned, which later steps read.
        parameters: The parameters it reads.
    """

    def __init__(self, tape: Tape, run: Run, outputs: list[Var], parameters: list[Parameter]):
        self.outputs = outputs
        self.parameters = parameters
        self._tape = tape
        self._run = run

    def rerun(self) -> tuple[Tape, list[Var]]:
        """Run again and record everything; returns the tape and the outputs of this run."""
        with self._tape as tape:
            outputs = _computed(self._run())
        if len(outputs) != len(self.outputs) or not all(map(_agree, outputs, self.outputs)):
            raise TapeError(
                "gt.recompute: the function computed other values when it was run again in the"
                " backward pass; a function given to gt.recompute must be deterministic"
            )
        return tape, outputs

    def back(self, grads: Gradients) -> None:
        """Run again and backpropagate through this run."""
        incoming = [grads.take(y) for y in self.outputs]
        if all(g is None for g in incoming):
            return
        tape, outputs = self.rerun()
        self.outputs = []
        for y, g in zip(outputs, incoming, strict=True):
            if g is not None:
                grads.add(y, g)
        del outputs, incoming
        tape.backpropagate(grads)


def run_segment(first: Run, again: Run) -> None:
    """Run a segment without saving its intermediate values.

    Args:
        first: Runs it and returns its outputs.
        again: The same for the second run; it must restore all other state.
    """
    tape = current()
    unrecorded = Unrecorded()
    part = tape.part(unrecorded)
    later = tape.part(True)
    with part:
        outputs = _computed(first())
    tape.add_segment(Segment(later, again, outputs, list(part.read)), part)
    unrecorded.ended = True


class ReadRows:
    """A function of rows as one step of a tape: backward runs it again, on the rows into whose
    results a gradient flows.

    In the other rows the function may be infinite, and 0 times infinity is no number.

    Attributes:
        outputs: The result.
        parameters: The parameters that it reads.
    """

    def __init__(
        self,
        tape: Tape,
        run: Callable[[Sequence[Var]], Var],
        leaves: Sequence[Var],
        shared: Sequence[Any],
        output: Var,
    ):
        self.outputs = [output]
        self.parameters = [x for x in shared if isinstance(x, Parameter)]
        self._tape = tape
        self._run = run
        self._leaves = leaves
        self._shared = shared

    def back(self, grads: Gradients) -> None:
        """Run again and backpropagate through this run."""
        g = grads.take(self.outputs[0])
        if g is None:
            return
        n = len(g)
        rows = np.flatnonzero(g.reshape(n, g.size // max(n, 1)).any(axis=1))
        leaves = [_rows_of(x, rows) for x in self._leaves]
        own = Gradients()
        with self._tape as tape:
            (out,) = _computed([self._run(leaves)])
            own.add(out, g[rows])
            tape.backpropagate(own)
        for x, part in zip(self._leaves, leaves, strict=True):
            if needs_grad(x) and (of_part := own.of(part)) is not None:
                whole = buffers.full(x.shape, 0, x.dtype)
                whole[rows] = of_part
                grads.add(x, whole)
        for x in self._shared:
            if (of_shared := own.of(x)) is not None:
                grads.add(x, of_shared)


def _rows_of(x: Var, rows: np.ndarray) -> Var:
    """Some rows of a value, as an input of a pass."""
    assert x.space is not None
    space = RowSpace(x.space.gid[rows], x.space.kind)
    return Var(take_rows(x.value, rows), space, needs_grad=needs_grad(x))


def run_on_read_rows(
    run: Callable[[Sequence[Var]], Var], leaves: Sequence[Var], shared: Sequence[Any]
) -> Var:
    """A function of rows, each of which is computed by itself, whose gradient is that of the rows
    which are read.

    Args:
        run: The function of values of some rows, [n, ...] each; it draws nothing.
        leaves: The values.
        shared: Parameters and values without rows that it reads as well, into which gradients flow.

    Returns:
        [n, ...].
    """
    tape = current()
    unrecorded = Unrecorded()
    part = tape.part(unrecorded)
    later = tape.part(True)
    with part:
        (out,) = _computed([run(leaves)])
    tape.add_segment(ReadRows(later, run, leaves, shared, out), part)
    unrecorded.ended = True
    return out


def _agree(again: Var, first: Var) -> bool:
    """Whether values of two runs are equal but for rounding, as far as some of their rows tell."""
    if again is first or again.shape != first.shape:
        return again is first
    if again.sparse or not again.shape:
        return True
    rows = slice(None, None, 1 + again.shape[0] // ROWS)
    x, y = (as_float(operand_of(each)[rows]) for each in (again, first))
    with np.errstate(invalid="ignore"):
        return np.allclose(x, y, atol=APART * np.abs(y).max(initial=0), equal_nan=True)


def _computed(outputs: list[Var]) -> list[Var]:
    """The outputs of a segment, of which deferred ones are computed, and so recorded in it.

    Which gradients reach a segment decides whether it runs again, with its messages. On ranks whose
    rows are too few to defer anything it is those of its outputs, so it is on all.
    """
    for y in outputs:
        if waits(y):
            _ = y.value
    return outputs
