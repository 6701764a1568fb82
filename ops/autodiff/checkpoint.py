"""Gradient checkpointing: segments of a forward pass that run again in backward.

A segment saves its outputs only. Gradients of the second run are added to those of the pass value
by value, in the order of an uninterrupted run, so gradients are equal to the bit with and without
checkpointing.
"""

from __future__ import annotations

from collections.abc import Callable

from graphtheta.errors import TapeError

from .fusion import is_open
from .gradients import Gradients
from .tape import Parameter, Tape, Unrecorded, Var, current

Run = Callable[[], list[Var]]


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
        if [y.shape for y in outputs] != [y.shape for y in self.outputs]:
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


def _computed(outputs: list[Var]) -> list[Var]:
    """The outputs of a segment, of which deferred ones are computed, and so recorded in it.

    Which gradients reach a segment decides whether it runs again, with its messages. On ranks whose
    rows are too few to defer anything it is those of its outputs, so it is on all.
    """
    for y in outputs:
        if is_open(y):
            _ = y.value
    return outputs
