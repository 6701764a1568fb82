"""The order of a product and a linear sum: ``sum of (h W)`` or ``(sum of h) W``, whichever is cheaper.

Both are equal up to rounding. In a sampled view the sending rows outnumber the receiving ones by
the fan-out, so a sum before the product saves most of the product, even where it adds wider rows.
The cost in multiply-adds, over all workers and in all passes of a training step:

    product first   rows in x d_in x d_out x products    +  GATHERED x edges x d_out x sweeps
    sum first       rows out x d_in x d_out x products   +  GATHERED x edges x d_in x sweeps

A product runs forward, for the gradient of the weight, and for that of h if it needs one. A sum
runs forward, and backward if what it adds needs a gradient: not over constants. Where as many rows
send as receive, as in the whole graph or a cluster, the narrower side is summed, which sends least
between workers. The counts do not depend on the number of workers, and neither does the choice.
"""
from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from scipy.sparse import issparse

from ...ops.autodiff.fusion import is_open
from ...ops.autodiff.tape import needs_grad, value_of
from ..view.level import Counts

# Multiply-adds in the time in which a sum reads and adds one number of another row. Two cores with
# AVX-512 make 70 to 90 of 10^9 multiply-adds a second, and add 7 to 10 of 10^9 gathered numbers.
GATHERED = 10


@dataclass(frozen=True)
class ProductOrder:
    """What the order of one product and one sum depends on, besides the size of a level.

    Attributes:
        d_in, d_out: Numbers per row before and after the product.
        sparse: Whether the rows are sparse; then the product comes first, since sums read dense rows.
        products: Passes over the product: forward and, in training, one for each gradient.
        sweeps: Passes over the edges, if the product is first and if the sum is first.
    """

    d_in: int
    d_out: int
    sparse: bool
    products: int
    sweeps: tuple[int, int]

    @classmethod
    def of(cls, h: Any, weight: Any, record: bool) -> ProductOrder:
        """The order of h @ weight and a sum; ``record`` says whether a backward pass follows."""
        rows, learned = record and needs_grad(h), record and needs_grad(weight)
        # reading a deferred value would compute it
        sparse = not is_open(h) and issparse(value_of(h))
        return cls(weight.shape[0], prod(weight.shape[1:]), sparse, 1 + rows + learned, (1 + (rows or learned), 1 + rows))

    @property
    def deferred_width(self) -> int:
        """Numbers per row by which a sum before the product is wider than one after it."""
        return 0 if self.sparse else max(0, self.d_in - self.d_out)

    def product_first(self, counts: Counts) -> bool:
        """Whether the product comes before the sum in a level of this size."""
        if self.sparse or counts.rows_in == counts.rows_out:
            return self.sparse or self.d_out < self.d_in
        return self._cost(counts.rows_in, counts.edges, self.d_out, self.sweeps[0]) < \
            self._cost(counts.rows_out, counts.edges, self.d_in, self.sweeps[1])

    def _cost(self, rows: int, edges: int, width: int, sweeps: int) -> int:
        return rows * self.d_in * self.d_out * self.products + GATHERED * edges * width * sweeps
