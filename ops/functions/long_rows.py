"""Steps of a recurrence for the few rows that have most messages, in compiled loops.

A step of many rows is a few calls of NumPy and BLAS. The hubs of a graph take most of their
messages after all other rows have ended; their steps would take a thousand times longer to call
than to compute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from ..autodiff.expr import Expr, Tracer
from ..autodiff.tape import Parameter, value_of
from .step_code import StepCode, StepWriter, Unwritten

# steps of which backward stores what they compute, at a time
SEGMENT = 1024


class LongRows:
    """Runs the steps of single rows.

    Args:
        code: The loops of a step.
        operands: What the step reads besides messages and states.
        dtype: The float type.
    """

    def __init__(self, code: StepCode, operands: Sequence[Any], dtype: np.dtype):
        self._code = code
        self._dtype = dtype
        self._first = dict(code.operands)
        self._operands = operands
        self._values = np.zeros(code.n_operands, dtype)
        for number, first in code.operands:
            x = np.asarray(value_of(operands[number]), dtype).reshape(-1)
            self._values[first : first + len(x)] = x
        self._sums = np.zeros(code.n_operands)

    @classmethod
    def of(
        cls,
        step: Callable[[Any, Any], Any],
        dims: tuple[int, ...],
        parts: Mapping[str, Any],
        dtype: np.dtype,
    ) -> LongRows | None:
        """The loops of a step function; None if it has an operation that is not written as loops.

        Args:
            step: From a state and a message to the next state.
            dims: Trailing shape of messages.
            parts: Trailing shape and type of each part of the state.
            dtype: The float type of the pass.
        """
        if any(part.dtype != dtype for part in parts.values()):
            return None
        with Tracer() as scope:
            message = scope.leaf("message", "", dims, dtype)
            before = {n: scope.leaf("state", n, part.dims, dtype) for n, part in parts.items()}
            try:
                after = step(before.get("", before), message)
            except Exception:
                # it has run with values before, so it does what cannot be done with symbols
                return None
            after = after if isinstance(after, dict) else {"": after}
        learned = [x for x in scope.operands if getattr(x, "needs_grad", False)]
        # gradients go to parameters alone, and every part is computed for each row
        if not all(isinstance(x, Parameter) for x in learned) or not all(
            isinstance(e, Expr) and e.rows for e in after.values()
        ):
            return None
        try:
            code = StepWriter(message, before, after, dtype).code
        except Unwritten:
            return None
        return cls(code, scope.operands, dtype)

    def run(self, messages: np.ndarray, begin: np.ndarray, row: int, state: np.ndarray) -> None:
        """Run the steps of a row.

        Args:
            messages: All messages, [n_messages, size].
            begin: First message of each of its steps, [n_steps] int64.
            row: The row.
            state: Its state, which is changed, [size].
        """
        self._forward(messages, begin, row, state, np.zeros((1, self._code.width), self._dtype))

    def backpropagate(
        self,
        messages: np.ndarray,
        begin: np.ndarray,
        row: int,
        state: np.ndarray,
        gradient: np.ndarray,
        back: np.ndarray,
    ) -> None:
        """Backpropagate through the steps of a row.

        Args:
            messages, begin, row: As for ``run``.
            state: The state before the first step, [size].
            gradient: That of the last state; changed to that of the first, [size].
            back: Gradients of messages, those of the steps are written, [n_messages, size].
        """
        cuts = [*range(0, len(begin), SEGMENT), len(begin)]
        states = [state.copy()]
        for first, last in pairwise(cuts[:-1]):
            following = states[-1].copy()
            self.run(messages, begin[first:last], row, following)
            states.append(following)
        values = np.zeros((min(SEGMENT, len(begin)), self._code.width), self._dtype)
        slopes = np.zeros(self._code.width, self._dtype)
        kernel = self._kernel(self._code.backward)
        for (first, last), before in zip(
            reversed(list(pairwise(cuts))), reversed(states), strict=True
        ):
            self._forward(messages, begin[first:last], row, before, values)
            kernel(
                begin=begin[first:last],
                row=row,
                steps=last - first,
                at=self._code.at,
                P=self._values,
                V=values,
                D=slopes,
                G=self._sums,
                gradient=gradient,
                back=back,
            )

    def gradient_of(self, parameter: Parameter) -> np.ndarray | None:
        """The gradient of a parameter over all rows so far; None if no step reads it."""
        for number, x in enumerate(self._operands):
            if x is parameter and number in self._first:
                first = self._first[number]
                shape = parameter.shape
                return self._sums[first : first + prod(shape)].reshape(shape)
        return None

    def _forward(
        self,
        messages: np.ndarray,
        begin: np.ndarray,
        row: int,
        state: np.ndarray,
        values: np.ndarray,
    ) -> None:
        self._kernel(self._code.forward)(
            messages=messages,
            begin=begin,
            row=row,
            steps=len(begin),
            keep=int(len(values) > 1),
            at=self._code.at,
            P=self._values,
            V=values,
            state=state,
        )

    def _kernel(self, source: str) -> Callable[..., None]:
        # numba takes longer to import than many programs to run
        from ..compile.generated import compiled
        from ..kernels import number_header

        return compiled(source, self._dtype.name, number_header)
