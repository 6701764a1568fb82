"""How kernels compute operations that are not elementwise: one object for each, registered by
operation.

A lowering gives the forward text and the gradient text of an operation. Operations without one, and
without a scalar form, run on the reference back end.
"""

from __future__ import annotations

from typing import Any

from ...autodiff.expr import Expr
from ...autodiff.operation import Operation
from ..source.register_buffer import RegisterBuffer


class Lowering:
    """How one operation is compiled; without state, so that one object serves all kernels.

    Attributes:
        reads_again: Whether it reads its arguments several times, so that they are saved.
        repeats: Whether its gradient rule reads the gradient of the result several times, or at
            other positions, so that it is saved in a buffer.
        saves_intermediates: Whether its gradient reads values that ``forward`` left in
            ``Values.intermediates``.
        gradient_reads: Positions of the arguments whose values the gradients of others read.
    """

    reads_again = False
    repeats = False
    saves_intermediates = False
    gradient_reads: tuple[int, ...] = ()

    def forward(self, r: Any, e: Expr, name: str) -> RegisterBuffer:
        """Write the value of e.

        Args:
            r: ``Registers`` of the kernel, with its ``KernelSource`` and ``Values``.
            e: The expression.
            name: Name of the register buffer.
        """
        raise NotImplementedError

    def backward(self, to: Any, e: Expr, g: Any) -> None:
        """Write the gradients of the arguments of e.

        Args:
            to: ``GradientCode`` of the kernel, to which they are added.
            e: The expression.
            g: The text of its gradient by lane slice.
        """
        raise NotImplementedError

    def check(self, e: Expr, constants: Any, column: Any) -> None:
        """Raise an error that names index and array, after a kernel met an index out of range.

        Args:
            e: The expression.
            constants: The value of an expression without rows.
            column: All rows of a column.
        """


class Structural(Lowering):
    """The numbers of the first argument at other positions: nothing is computed, neither forward
    nor backward.
    """

    def __init__(self, repeats: bool = True):
        self.repeats = repeats

    def backward(self, to: Any, e: Expr, g: Any) -> None:
        to.add(e.args[0], e.dims, g, to.values.where(e))


LOWERINGS: dict[Operation, Lowering] = {}
_STRUCTURAL = Structural()


def register(operation: Operation, lowering: Lowering) -> None:
    """Register the lowering of an operation."""
    LOWERINGS[operation] = lowering


def lowering_of(e: Expr) -> Lowering | None:
    """The lowering of an expression's operation; None for leaves, elementwise operations and those
    that have none.
    """
    if e.prim is None:
        return None
    return LOWERINGS.get(e.prim) or (_STRUCTURAL if e.traits.structural else None)
