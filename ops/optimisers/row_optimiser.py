"""Sparse row-wise optimisers: an update reads and writes the rows that have a gradient, and no
other.

The state of a row is stored with the row. A row without a gradient in a step keeps its value and
its state: moments do not decay, and weight decay does not apply.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from graphtheta.errors import ConfigError

from ..parallel.buffers import by_blocks

# by name: values of each state of a row, [m, ...]
State = dict[str, np.ndarray]


class RowOptimiser(ABC):
    """Updates rows that have a gradient.

    Args:
        lr: Step size, above 0.

    Raises:
        ConfigError: A number is out of range.
    """

    def __init__(self, lr: float):
        if not 0 < lr < np.inf:
            raise ConfigError(f"lr={lr!r} of an embedding; expected a finite number above 0")
        self.lr = float(lr)

    @abstractmethod
    def start(self, n: int, width: int, dtype: np.dtype) -> State:
        """The state of n rows before their first update; axis 0 of each array is the rows."""

    @abstractmethod
    def update(
        self,
        values: np.ndarray,
        state: State,
        rows: np.ndarray,
        g: np.ndarray,
        lr: float,
        scale: float,
    ) -> None:
        """Update some rows in place.

        Args:
            values: All rows, [n, width], C-contiguous; changed.
            state: Their state; changed.
            rows: The rows to update, [m] int64, none twice.
            g: Their gradients, [m, width] of the type of the values.
            lr: Step size.
            scale: Multiplied with the gradients.
        """


class RowSGD(RowOptimiser):
    """Stochastic gradient descent without momentum."""

    def start(self, n: int, width: int, dtype: np.dtype) -> State:
        return {}

    def update(
        self,
        values: np.ndarray,
        state: State,
        rows: np.ndarray,
        g: np.ndarray,
        lr: float,
        scale: float,
    ) -> None:
        values[rows] -= values.dtype.type(lr * scale) * g


class RowAdagrad(RowOptimiser):
    """Adagrad with a sum of squares for each number of a row, as ``torch.optim.Adagrad``.

    Args:
        lr: Step size.
        eps: Added to the root of the sum, above 0.

    Source: Duchi, Hazan, Singer, JMLR 12, 2011, https://jmlr.org/papers/v12/duchi11a.html
    """

    def __init__(self, lr: float, eps: float = 1e-10):
        super().__init__(lr)
        self.eps = _above_zero(eps)

    def start(self, n: int, width: int, dtype: np.dtype) -> State:
        return {"sum": np.zeros((n, width), dtype)}

    def update(
        self,
        values: np.ndarray,
        state: State,
        rows: np.ndarray,
        g: np.ndarray,
        lr: float,
        scale: float,
    ) -> None:
        # numba is imported when it is needed
        from .kernels import adagrad_rows

        numbers = tuple(map(values.dtype.type, (self.eps, lr, scale)))
        by_blocks(
            lambda _, begin, end: adagrad_rows(
                value=values,
                total=state["sum"],
                rows=rows,
                g=g,
                numbers=numbers,
                first=begin,
                last=end,
            ),
            len(rows),
            values.shape[1],
        )


class RowAdam(RowOptimiser):
    """Lazy Adam: moments of a row change only when the row has a gradient.

    The bias correction of a row counts the updates of this row. ``torch.optim.SparseAdam`` leaves
    moments alone in the same way, but corrects by the number of all steps, so that the first
    updates of a rare row are smaller there.

    Args:
        lr: Step size.
        betas: Decay of the running mean and mean square, in [0, 1).
        eps: Added to the root of the mean square, above 0.

    Source: Kingma and Ba, ICLR 2015, algorithm 1, https://arxiv.org/abs/1412.6980, applied to each
    row
    """

    def __init__(self, lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8):
        super().__init__(lr)
        if not all(0 <= b < 1 for b in betas):
            raise ConfigError(f"betas={betas!r} of an embedding; expected two numbers in [0, 1)")
        self.betas = betas
        self.eps = _above_zero(eps)

    def start(self, n: int, width: int, dtype: np.dtype) -> State:
        return {
            "mean": np.zeros((n, width), dtype),
            "square": np.zeros((n, width), dtype),
            "updates": np.zeros(n, np.int64),
        }

    def update(
        self,
        values: np.ndarray,
        state: State,
        rows: np.ndarray,
        g: np.ndarray,
        lr: float,
        scale: float,
    ) -> None:
        from .kernels import adam_rows

        b1, b2 = self.betas
        numbers = (
            float(b1),
            float(b2),
            *map(values.dtype.type, (b1, b2, 1 - b1, 1 - b2, self.eps, lr, scale)),
        )
        mean = state["mean"]
        square = state["square"]
        updates = state["updates"]
        by_blocks(
            lambda _, begin, end: adam_rows(
                value=values,
                mean=mean,
                square=square,
                updates=updates,
                rows=rows,
                g=g,
                numbers=numbers,
                first=begin,
                last=end,
            ),
            len(rows),
            values.shape[1],
        )


def _above_zero(eps: float) -> float:
    if not 0 < eps < np.inf:
        raise ConfigError(f"eps={eps!r} of an embedding; expected a finite number above 0")
    return float(eps)
