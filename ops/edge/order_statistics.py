"""Order statistics of messages, as aggregators: the k largest, and the median.

The k largest are a monoid: the k largest of two sets are those of their k largest each.

The median is none of a bounded size, so it takes several passes over the edges. The first counts
messages. Each further one counts those below a pivot, and so decides one bit of the median, in the
order of the numbers as integers; the last finds its edge. All counts are integers, so the result is
exact and the same on any number of workers, at the cost of 34 passes in float32 and 66 in float64.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from graphtheta.base.arguments import checked
from graphtheta.errors import ConfigError

from .aggregator import AGGREGATORS, NO_EDGE, Aggregator, Segments, Shape, State, beats, expand

# most messages that TopK keeps: each is a column of the state
MOST = 32
# added to a count for a message that is NaN
NAN = 1 << 40


class TopK(Aggregator):
    """The k largest messages per column, largest first, [n, k, ...]; 0 where there are fewer.

    Of equal messages those of edges with lower global ids come first. Importance weights do not
    count: of sampled edges it is the k largest of the sample.

    Args:
        k: From 1 to 32. The name of the total is ``topK``, such as ``top3``.

    Raises:
        ConfigError: k is out of range.
    """

    weighted = False

    @checked
    def __init__(self, k: int):
        if not 1 <= k <= MOST:
            raise ConfigError(
                f"TopK({k!r}): expected an integer from 1 to {MOST}, because each message is a"
                " column of the state; 'median' has no such limit"
            )
        self.k = int(k)
        self.name = f"top{self.k}"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.k == self.k

    def __hash__(self) -> int:
        return hash((type(self), self.k))

    def start(self, n: int, shapes: list[Shape], dtype: Any) -> State:
        shape = (n, *shapes[0])
        best = {f"best{i}": np.full(shape, -np.inf, dtype) for i in range(self.k)}
        return best | {f"edge{i}": np.full(shape, NO_EDGE, np.int64) for i in range(self.k)}

    def accumulate(
        self,
        state: State,
        seg: Segments,
        parts: list[np.ndarray],
        gid: np.ndarray,
        scale: np.ndarray | None,
    ) -> None:
        x = parts[0]
        tie = np.broadcast_to(expand(gid, parts[0].ndim), parts[0].shape)
        left = np.ones(x.shape, bool)
        largest = dict[str, np.ndarray]()
        for i in range(self.k):
            # the first NaN, or else the largest, of those that are left
            candidates = np.where(left, np.where(np.isnan(x), np.inf, x), -np.inf)
            best = np.maximum.reduceat(candidates, seg.start, axis=0)
            nan = np.logical_or.reduceat(left & np.isnan(x), seg.start, axis=0)
            wins = left & np.where(
                seg.broadcast(nan), np.isnan(x), candidates == seg.broadcast(best)
            )
            edge = np.minimum.reduceat(np.where(wins, tie, NO_EDGE), seg.start, axis=0)
            largest |= {f"best{i}": np.where(nan, np.nan, best).astype(x.dtype), f"edge{i}": edge}
            left &= tie != seg.broadcast(edge)
        self.merge(state, seg.row, largest)

    def merge(self, state: State, rows: np.ndarray, other: State) -> None:
        mine = [(state[f"best{i}"][rows], state[f"edge{i}"][rows]) for i in range(self.k)]
        for i in range(self.k):
            x, edge = other[f"best{i}"], other[f"edge{i}"]
            for j, (best, at) in enumerate(mine):
                # a message that wins a place moves the one that had it on
                wins = beats(x, edge, best, at)
                mine[j] = np.where(wins, x, best), np.where(wins, edge, at)
                x = np.where(wins, best, x)
                edge = np.where(wins, at, edge)
        for i, (best, at) in enumerate(mine):
            state[f"best{i}"][rows], state[f"edge{i}"][rows] = best, at

    def finish(self, state: State) -> np.ndarray:
        return np.stack(
            [np.where(state[f"edge{i}"] == NO_EDGE, 0, state[f"best{i}"]) for i in range(self.k)],
            axis=1,
        )

    def backward_state(self, state: State, total: np.ndarray, g: np.ndarray) -> State:
        return {f"g{i}": g[:, i] for i in range(self.k)} | {
            f"edge{i}": state[f"edge{i}"] for i in range(self.k)
        }

    def backward(
        self, columns: State, parts: list[np.ndarray], gid: np.ndarray, scale: np.ndarray | None
    ) -> list[np.ndarray]:
        tie = expand(gid, parts[0].ndim)
        each = [np.where(columns[f"edge{i}"] == tie, columns[f"g{i}"], 0) for i in range(self.k)]
        return [reduce(np.add, each).astype(parts[0].dtype)]


class Median(Aggregator):
    """The median of the messages per column, of an even number the lower one; 0 without messages,
    NaN if one is NaN.

    The edge of the lowest global id that has it gets the gradient. Importance weights do not count:
    of sampled edges it is the median of the sample.
    """

    name = "median"
    weighted = False
    partial = ("count", "below", "edge")
    shared = ("pivot",)

    def passes(self, dtype: Any) -> int:
        return 8 * int(np.dtype(dtype).itemsize) + 2

    def start(self, n: int, shapes: list[Shape], dtype: Any) -> State:
        shape = (n, *shapes[0])
        # number of messages, of those below the pivot, and the first edge whose message is the
        # pivot
        state = {
            "count": np.zeros(shape, np.int64),
            "below": np.zeros(shape, np.int64),
            "edge": np.full(shape, NO_EDGE, np.int64),
        }
        # what is known of the median: its place, its upper bits; and whether a message is NaN
        state |= {
            "rank": np.zeros(shape, np.int64),
            "bits": np.zeros(shape, _unsigned(dtype)),
            "nan": np.zeros(shape, bool),
        }
        return state | {"pivot": np.zeros(shape, dtype)}

    def accumulate(
        self,
        state: State,
        seg: Segments,
        parts: list[np.ndarray],
        gid: np.ndarray,
        scale: np.ndarray | None,
    ) -> None:
        x = parts[0]
        pivot = seg.broadcast(state["pivot"][seg.row])
        edge = np.where(x == pivot, expand(gid, x.ndim), NO_EDGE)
        self.merge(
            state,
            seg.row,
            {
                "count": seg.add(np.where(np.isnan(x), 1 + NAN, 1)),
                "below": seg.add((x < pivot).astype(np.int64)),
                "edge": np.minimum.reduceat(edge, seg.start, axis=0),
            },
        )

    def merge(self, state: State, rows: np.ndarray, other: State) -> None:
        for name in ("count", "below"):
            state[name][rows] += other[name]
        state["edge"][rows] = np.minimum(state["edge"][rows], other["edge"])

    def refine(self, state: State, number: int) -> None:
        width = 8 * state["pivot"].itemsize
        dtype = state["pivot"].dtype
        one = state["bits"].dtype.type(1)
        if number == 1:
            state["nan"][...] = state["count"] >= NAN
            state["rank"][...] = (state["count"] % NAN - 1) // 2
        else:
            tried = state["bits"] | one << state["bits"].dtype.type(width + 1 - number)
            np.copyto(
                state["bits"],
                tried,
                where=(state["below"] <= state["rank"])
                & (tried <= ordered_bits(np.array(np.inf, dtype))),
            )
        if number <= width:
            state["pivot"][...] = number_of(
                state["bits"] | one << state["bits"].dtype.type(width - number)
            )
        else:
            state["pivot"][...] = number_of(state["bits"])
        state["below"][...] = 0
        state["edge"][...] = NO_EDGE

    def finish(self, state: State) -> np.ndarray:
        medians = np.where(state["nan"], np.nan, state["pivot"])
        return np.where(state["count"] > 0, medians, 0).astype(state["pivot"].dtype)

    def backward_state(self, state: State, total: np.ndarray, g: np.ndarray) -> State:
        return {"g": g, "edge": state["edge"]}

    def backward(
        self, columns: State, parts: list[np.ndarray], gid: np.ndarray, scale: np.ndarray | None
    ) -> list[np.ndarray]:
        g = columns["g"]
        return [np.where(columns["edge"] == expand(gid, g.ndim), g, 0).astype(g.dtype)]


def _unsigned(dtype: Any) -> Any:
    return np.dtype(f"u{np.dtype(dtype).itemsize}")


def ordered_bits(x: np.ndarray) -> np.ndarray:
    """Unsigned integers in the order of the floats x, of their width."""
    bits = x.view(_unsigned(x.dtype))
    sign = bits.dtype.type(1) << bits.dtype.type(8 * bits.itemsize - 1)
    return np.asarray(np.where(bits & sign, ~bits, bits | sign))


def number_of(bits: np.ndarray) -> np.ndarray:
    """The floats of :func:`ordered_bits`."""
    sign = bits.dtype.type(1) << bits.dtype.type(8 * bits.itemsize - 1)
    return np.asarray(np.where(bits & sign, bits ^ sign, ~bits)).view(f"f{bits.itemsize}")


MEDIAN = Median()
AGGREGATORS.include(MEDIAN)
