"""Choices of a few of all combinations of values, for tables whose product is long."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any


def covering(*parameters: Sequence[Any], begin: int = 0) -> list[tuple[Any, ...]]:
    """Combinations with one value of each parameter, in which every pair of values of two
    parameters occurs; others for other numbers of ``begin``.

    Faults that take three particular values are rare; the product of all values has many times as
    many combinations.
    """
    sizes = [len(values) for values in parameters]
    open_pairs = {
        ((p, a), (q, b))
        for p, q in combinations(range(len(sizes)), 2)
        for a in range(sizes[p])
        for b in range(sizes[q])
    }
    found = []
    while open_pairs:
        chosen: dict[int, int] = dict(min(open_pairs))
        for p, size in enumerate(sizes):
            if p not in chosen:
                # in turns, so that no value is preferred where several are as good
                turn = [(begin + len(found) + k) % size for k in range(size)]
                chosen[p] = max(turn, key=lambda value: _new(open_pairs, chosen, p, value))
        open_pairs -= set(combinations(sorted(chosen.items()), 2))
        found.append(tuple(values[chosen[p]] for p, values in enumerate(parameters)))
    return found


def _new(open_pairs: set[Any], chosen: dict[int, int], parameter: int, value: int) -> int:
    """How many open pairs a value makes with those that are chosen."""
    own = (parameter, value)
    return sum(tuple(sorted((own, other))) in open_pairs for other in chosen.items())
