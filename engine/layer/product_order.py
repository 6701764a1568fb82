"""The order of a product and a linear sum, ``sum of (h W)`` or ``(sum of h) W``, by their cost.

Both are equal up to rounding. In a sampled view the sending rows outnumber the receiving ones by
the fan-out, so a sum before the product saves most of the product, even where it adds wider rows.
The cost in multiply-adds, over all workers and in all passes of a training step:

    product first   rows in x d_in x d_out x products    +  moves x d_out x sweeps
    sum first       rows out x d_in x d_out x products   +  moves x d_in x sweeps
    moves           GATHERED x edges  +  MOVED x mirror rows

A product runs forward, for the gradient of the weight, and for that of h if it needs one. A sum
runs forward, and backward if what it adds needs a gradient: not over constants. Where as many rows
send as receive, as in the whole graph or a cluster, the narrower side is summed, which sends least
between workers. All counts are sums over the workers, so every worker decides alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from graphtheta.base.costs import GATHERED, MOVED

from ...ops.autodiff.fusion import is_open
from ...ops.autodiff.stored import holds_sparse
from ...ops.autodiff.tape import needs_grad
from ..view.level import Counts


@dataclass(frozen=True)
class ProductOrder:
    """What the order of one product and one sum depends on, besides the size of a level.

    Attributes:
        d_in, d_out: Numbers per row before and after the product.
        sparse: Whether the rows are sparse; then the product comes first: sums read dense rows.
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
        rows = record and needs_grad(h)
        learned = record and needs_grad(weight)
        # reading a deferred value would compute it
        sparse = not is_open(h) and holds_sparse(h)
        return cls(
            weight.shape[0],
            prod(weight.shape[1:]),
            sparse,
            1 + rows + learned,
            (1 + (rows or learned), 1 + rows),
        )

    def one_of(self, k: int) -> ProductOrder:
        """The order for one of k products side by side, which each edge chooses."""
        return replace(self, d_out=self.d_out // k)

    @property
    def deferred_width(self) -> int:
        """Numbers per row by which a sum before the product is wider than one after it."""
        return 0 if self.sparse else max(0, self.d_in - self.d_out)

    def product_first(self, counts: Counts) -> bool:
        """Whether the product comes before the sum in a level of this size."""
        if self.sparse or counts.rows_in == counts.rows_out:
            return self.sparse or self.d_out < self.d_in
        each = GATHERED * counts.edges + MOVED * counts.moved
        row = self.d_in * self.d_out * self.products
        first = self.d_out * self.sweeps[0]
        last = self.d_in * self.sweeps[1]
        return counts.rows_in * row + each * first < counts.rows_out * row + each * last
