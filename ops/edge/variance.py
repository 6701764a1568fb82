"""Variance and standard deviation of messages, as an aggregator.

The state is (sum of weights, mean, sum of squared deviations). Two states are merged exactly, so
that a large mean does not cancel the variance.

Source: T. F. Chan, G. H. Golub, R. J. LeVeque, Updating Formulae and a Pairwise Algorithm for
Computing Sample Variances, 1979.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .aggregator import AGGREGATORS, ONE_TOLERANCE, Aggregator, Segments, Shape, State, expand


class Variance(Aggregator):
    """Variance of the messages, weighted by the importance weights of their edges; 0 without
    messages.

    It is the mean of squared deviations, as for the biased estimator: a single message has variance
    0.
    """

    name = "var"

    def start(self, n: int, shapes: list[Shape], dtype: Any) -> State:
        return {
            "weight": np.zeros(n, dtype),
            "mean": np.zeros((n, *shapes[0]), dtype),
            "squares": np.zeros((n, *shapes[0]), dtype),
        }

    def accumulate(
        self,
        state: State,
        seg: Segments,
        parts: list[np.ndarray],
        gid: np.ndarray,
        scale: np.ndarray | None,
    ) -> None:
        x = parts[0]
        w = _weights(scale, x)
        weight = seg.add(w)
        # edges of weight 0 count as none
        mean = seg.add(expand(w, x.ndim) * x) / expand(np.where(weight > 0, weight, 1), x.ndim)
        squares = seg.add(expand(w, x.ndim) * np.square(x - seg.broadcast(mean)))
        self.merge(state, seg.row, {"weight": weight, "mean": mean, "squares": squares})

    def merge(self, state: State, rows: np.ndarray, other: State) -> None:
        here = state["weight"][rows]
        there = other["weight"]
        both = here + there
        ndim = other["mean"].ndim
        share = expand(np.divide(there, both, out=np.zeros_like(both), where=both > 0), ndim)
        gap = other["mean"] - state["mean"][rows]
        state["squares"][rows] += other["squares"] + np.square(gap) * share * expand(here, ndim)
        state["mean"][rows] += gap * share
        state["weight"][rows] = both

    def finish(self, state: State) -> np.ndarray:
        return state["squares"] / _divisor(state)

    def backward_state(self, state: State, total: np.ndarray, g: np.ndarray) -> State:
        return {"g": 2 * g / _divisor(state), "mean": state["mean"]}

    def backward(
        self, columns: State, parts: list[np.ndarray], gid: np.ndarray, scale: np.ndarray | None
    ) -> list[np.ndarray]:
        x = parts[0]
        return [columns["g"] * (x - columns["mean"]) * expand(_weights(scale, x), x.ndim)]


class Deviation(Variance):
    """Square root of the variance: 0, with gradient 0, where messages are equal up to rounding."""

    name = "std"

    def finish(self, state: State) -> np.ndarray:
        root: np.ndarray = np.sqrt(super().finish(state))
        rounding = ONE_TOLERANCE * np.finfo(root.dtype).eps * np.abs(state["mean"])
        # as a difference of equal numbers it is noise, and so would its gradient be
        return np.where(root <= rounding, 0, root)

    def backward_state(self, state: State, total: np.ndarray, g: np.ndarray) -> State:
        differ = total > 0
        return {
            "g": np.where(differ, g, 0) / (np.where(differ, total, 1) * _divisor(state)),
            "mean": state["mean"],
        }


def _weights(scale: np.ndarray | None, x: np.ndarray) -> np.ndarray:
    return np.ones(len(x), x.dtype) if scale is None else scale.astype(x.dtype)


def _divisor(state: State) -> np.ndarray:
    """The sum of weights, or 1 where there is none."""
    return expand(np.where(state["weight"] > 0, state["weight"], 1), state["mean"].ndim)


VARIANCE, DEVIATION = Variance(), Deviation()
AGGREGATORS.include(VARIANCE, DEVIATION)
