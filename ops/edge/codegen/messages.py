"""Messages of a kernel: added to totals and written as edge values, and their gradients."""

from __future__ import annotations

from functools import partial

from ..source.lane_slice import Shape
from ..source.register_buffer import RegisterBuffer
from .aggregate import compiled_form
from .gradients import GradientCode
from .registers import Registers, Text


class Messages:
    """The message parts and new edge values of a phase.

    Args:
        registers: Registers of the kernel, with its source and values.
        gradients: Where the gradients of the parts are added; used backward only.
    """

    def __init__(self, registers: Registers, gradients: GradientCode):
        self.registers = registers
        self.values = registers.values
        self.source = registers.source
        self.gradients = gradients

    def accumulate(self) -> None:
        """Add messages to totals and write new edge values."""
        phase = self.values.phase
        s = self.source
        for name, aggregator in phase.aggregators.items():
            compiled_form(aggregator).forward(self, name, phase.parts[name])
        for name, e in phase.outputs.items():
            for cell in s.slices(e.dims):
                s.write(s.arg(f"out_{name}"), "ce", cell, self.values.text(e, cell))

    def seed(self) -> None:
        """Add the gradients of message parts and of new edge values."""
        phase = self.values.phase
        s = self.source
        totals, outputs = self.values.variant.totals
        for name in totals:
            compiled_form(phase.aggregators[name]).backward(self, name, phase.parts[name])
        for name in outputs:
            e = phase.outputs[name]
            array = s.arg(f"gout_{name}")
            self.gradients.add(e, e.dims, partial(s.read, array, "ce"))

    # ---- for lowerings

    def state(self, name: str, column: str, shape: Shape, additive: bool = False) -> RegisterBuffer:
        """A column of the aggregator state of the current row; ``additive`` if edges only add to it
        and do not read it.
        """
        return self.registers.row_sum(self.source.arg(f"state_{name}_{column}"), shape, additive)

    def column(self, name: str, column: str) -> Text:
        """A column of the backward state of the edge's destination."""
        array = self.source.arg(f"spread_{name}_{column}")
        s = self.source
        fixed = self.values.fixed_end == "dst"
        return lambda p: s.once(s.read(array, "dr", p), "row" if fixed and p.start == "0" else "")

    def weighted(self, text: str) -> str:
        """A value times the importance weight of the edge."""
        return (
            f"{text} * as_float(entry({self.source.arg('scale')}, en))"
            if self.values.variant.weighted
            else text
        )
