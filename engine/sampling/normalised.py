"""Self-normalised importance weights: those of a row sum to the number of its edges."""

from __future__ import annotations

import numpy as np

from ...ops.kernels.sampling import rate
from ..partition.partition import MASTER, MIRROR
from .candidates import IN_ORDER, Chosen, Frontier, Sample


def normalised(frontier: Frontier, sample: Sample) -> Sample:
    """A sample with importance weights that sum to the number of candidates of each row.

    Sums are no longer unbiased, but vary less. A row without chosen edges is left as it is.

    Args:
        frontier: What the edges were chosen from.
        sample: The chosen edges.

    Collective: all ranks of the frontier's partition.
    """
    plan = frontier.receivers.plan
    weights = [np.ones(len(s.edges)) if s.weight is None else s.weight for s in sample.chosen]
    sums = {
        kind: {"degree": np.zeros(n), "weight": np.zeros(n)}
        for kind, n in ((MASTER, plan.n_rows), (MIRROR, plan.n_halo))
    }
    for c, s, weight in zip(frontier.candidates, sample.chosen, weights, strict=True):
        sums[c.kinds[1]]["degree"] += c.end - c.begin
        sums[c.kinds[1]]["weight"] += rate.sums(s.begin, s.end, IN_ORDER, weight)
    frontier.receivers.to_masters_add(sums[MIRROR], sums[MASTER])
    degree, total = sums[MASTER].values()
    factor = {MASTER: degree / np.where(total > 0, total, 1)}
    factor[MIRROR] = frontier.receivers.to_mirrors({"factor": factor[MASTER]})["factor"]

    def rescaled(s: Chosen, weight: np.ndarray) -> Chosen:
        return s.weighted(weight * np.repeat(factor[s.kinds[1]], np.diff(s.ptr)))

    return Sample(
        [rescaled(s, weight) for s, weight in zip(sample.chosen, weights, strict=True)],
        sample.move_rows,
    )
