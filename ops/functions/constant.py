"""Values as constants, through which no gradient flows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from ..autodiff.expr import tracing
from ..autodiff.primitive import primitive
from ..autodiff.scope import value_scope
from ..autodiff.traits import Traits
from ..compile.scalar import Scalar


@primitive(
    "stop_gradient",
    scalar=Scalar("unchanged({0})", (None,)),
    traits=Traits(work="none", free=True, integers=True),
)
def stop_gradient(x: Any) -> Any:
    """x as a constant: no gradient flows into it."""
    constants = _CONSTANTS.get()
    # shapes are inferred on arrays without edges, once for each structure
    return np.asarray(x) if constants is None or tracing() else constants.next(np.asarray(x))


class HeldConstants:
    """The constants of one pass, used again in others, so that finite differences see what the
    gradient rules see.

    The passes must call ``stop_gradient`` in the same order, as those of the reference back end do.
    """

    def __init__(self) -> None:
        self._values: list[np.ndarray] = []
        self._at: int | None = None

    def next(self, x: np.ndarray) -> np.ndarray:
        """The value of the next call: x, or what it was in the recorded pass."""
        if self._at is None:
            self._values.append(x.copy())
            return x
        self._at += 1
        return self._values[self._at - 1]

    def recording(self) -> AbstractContextManager[None]:
        """Record the constants inside the block."""
        return value_scope(_CONSTANTS, self)

    @contextmanager
    def again(self) -> Iterator[None]:
        """Use the recorded constants inside the block."""
        self._at = 0
        with value_scope(_CONSTANTS, self):
            yield


_CONSTANTS: ContextVar[HeldConstants | None] = ContextVar("graphtheta_held_constants", default=None)
