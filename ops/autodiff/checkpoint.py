"""Pieces of a forward pass that keep nothing of what they make: walking back runs them again.

Gradients of the second run join those of the pass value by value, in the order in which one run would have added them,
so that the bits of a gradient do not tell whether a piece was run again.
"""
from __future__ import annotations

from collections.abc import Callable

from graphtheta.errors import TapeError

from .fusion import hand_over
from .tape import Gradients, Parameter, Passing, Tape, Var, current

Run = Callable[[], list[Var]]


class Piece:
    """A piece as one step of a tape.

    Attributes:
        outputs: What it made, and what later steps read.
        parameters: Those it reads.
    """

    def __init__(self, tape: Tape, run: Run, outputs: list[Var], parameters: list[Parameter]):
        self.outputs, self.parameters, self._tape, self._run = outputs, parameters, tape, run

    def again(self) -> tuple[Tape, list[Var]]:
        """Run once more and record everything; returns the record and the outputs of this run."""
        with self._tape as tape:
            made = _settled(tape, tape, self._run())
        if [y.shape for y in made] != [y.shape for y in self.outputs]:
            raise TapeError("gt.recompute: the function computed other values when it was run again in the backward pass; a "
                            "function given to "
                            "gt.recompute must be deterministic")
        return tape, made

    def back(self, grads: Gradients) -> None:
        """Run again and walk that back."""
        incoming = [grads.take(y) for y in self.outputs]
        if all(g is None for g in incoming):
            return
        tape, made = self.again()
        self.outputs = []
        for y, g in zip(made, incoming, strict=True):
            if g is not None:
                grads.add(y, g)
        del made, incoming
        tape.walk(grads)


def run_piece(first: Run, again: Run) -> None:
    """Run a piece without keeping its inside.

    Args:
        first: Runs it and returns the values it made.
        again: Does the same for the second run, and leaves everything else as it found it.
    """
    tape, passing = current(), Passing()
    part, later = tape.part(passing), tape.part(True)
    with part:
        made = first()
    outputs = _settled(part, tape, made)
    tape.keep(Piece(later, again, outputs, list(part.read)), part)
    passing.over = True


def _settled(maker: Tape, heir: Tape, made: list[Var]) -> list[Var]:
    return [leaf for y in made for leaf in hand_over(y, maker, heir)]
