"""Counts of reads of histories."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphtheta.engine.partition.partition import Partition

# the number of the features, which the first layer reads
FEATURES = -1


class Reads:
    """For each layer whose values later layers read: rows asked for, rows found, and the sum of
    their ages in steps.

    Args:
        layers: Numbers of these layers, and ``FEATURES`` if these have a history too.
    """

    def __init__(self, layers: Sequence[int]):
        self._layers = list(layers)
        self._counts = np.zeros((len(self._layers), 3), np.int64)

    def add(self, number: int, asked: int, ages: np.ndarray) -> None:
        """Count a read of the values of a layer; ages [n] are those of the rows found."""
        self._counts[self._layers.index(number)] += (asked, len(ages), int(ages.sum()))

    def figures(self, partition: Partition) -> dict[str, float]:
        """Hit rate and mean age over all layers, and the hit rate of each, over all workers since
        the last call.

        Collective: all ranks of the partition.
        """
        counts = partition.halo_comm.all_sum(self._counts)
        self._counts = np.zeros_like(self._counts)
        asked, hits, ages = counts.sum(axis=0).tolist()
        rates = {
            f"hit_rate_{number + 1}": _rate(*row[:2])
            for number, row in zip(self._layers, counts.tolist(), strict=True)
        }
        return {"hit_rate": _rate(asked, hits), "age": ages / max(hits, 1), **rates}


def _rate(asked: int, hits: int) -> float:
    return hits / asked if asked else 1.0
