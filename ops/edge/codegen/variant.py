"""Variants: what a kernel is specialised for."""

from __future__ import annotations

from dataclasses import dataclass

# ("value" | "weight" | "gradient", number of the expression) of what is saved for each edge; the
# weight is the softmax of a score
Residuals = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Variant:
    """What a kernel is specialised for, besides the phase.

    Attributes:
        mode: "forward", "receiver" or "sender".
        listed: Whether edges are given by a list of positions, or are in order from a start.
        training: Whether dropout drops.
        weighted: Whether edges have importance weights.
        carried: Edge values indexed in the level's own order.
        wanted: Leaves whose gradients this kernel computes, as (kind, name).
        totals: Totals with a gradient, and output values with one.
        dtype: Of the numbers.
        residuals: What the first of the two backward kernels saves for the second one.
        saves: Whether it is the first one.
        in_place: Columns that are read through a row list, as (kind, name).
        typed: Edge values that are stored as ``TypedRows``, as (kind, name).
        in_order: Whether edge values are in the order in which the kernel visits edges.
        fresh: Whether sums over the edges of a row begin with zeros, and not with what the row
            holds.
    """

    mode: str
    listed: bool
    training: bool
    weighted: bool
    carried: frozenset[str]
    wanted: frozenset[tuple[str, object]]
    totals: tuple[tuple[str, ...], tuple[str, ...]]
    dtype: str
    residuals: Residuals = ()
    saves: bool = False
    in_place: frozenset[tuple[str, str]] = frozenset()
    typed: frozenset[tuple[str, str]] = frozenset()
    in_order: bool = False
    fresh: bool = False
