"""Aggregators: what Sum does with the messages of a destination.

An aggregator is a monoid. Its state starts neutral, accumulates messages chunk by chunk, is merged
with the state of other edges or other workers, and is finished into the total. Because merging is
associative, the work may be split anywhere. The backward state is a few columns per destination
from which each edge computes the gradient of its own message, so backward moves one row per
(master, mirror) pair.

A state is a dict of arrays with one row per destination. The caller fixes the order of merging
(chunks in edge order, workers in rank order). ``scale`` is the importance weight of a sampled
edge: the number of edges that it represents. An edge of weight k counts as k equal edges, in
``accumulate`` and in ``backward``; an aggregator that does not count it so, because it is a
statistic of the sample itself, says so by ``weighted``.

To add an aggregator, give an object of a subclass of ``Aggregator`` to ``AGGREGATORS.add``; then
``sum = "its name"`` works in any layer. It runs on the reference back end, because only built-in
aggregators have a compiled form.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from graphtheta.base.registry import Registry
from graphtheta.errors import ConfigError

from ..parallel import buffers
from ..parallel.buffers import rowwise
from ..rows.by_number import add_distinct

State = dict[str, np.ndarray]
Shape = tuple[int, ...]

NO_EDGE = np.iinfo(np.int64).max
# a softmax weight that differs from 1 by at most this many machine epsilons counts as 1
ONE_TOLERANCE = 16


@dataclass(slots=True)
class Segments:
    """Edges of one chunk grouped by destination.

    Attributes:
        row: Destination row of each group, [n_groups], no row twice.
        start: First edge of each group, [n_groups]; every group has at least one edge.
        of_edge: Destination row of each edge, [n_edges].
    """

    row: np.ndarray
    start: np.ndarray
    of_edge: np.ndarray

    def add(self, x: np.ndarray) -> np.ndarray:
        """The sum over the edges of each group, [n_groups, ...]."""
        return np.add.reduceat(x, self.start, axis=0)

    def broadcast(self, x: np.ndarray) -> np.ndarray:
        """The row of its group for each edge, [n_edges, ...]."""
        return np.repeat(x, np.diff(self.start, append=len(self.of_edge)), axis=0)


def expand(x: np.ndarray, like: int) -> np.ndarray:
    """x with trailing axes of length 1, up to ``like`` axes."""
    return x.reshape(x.shape + (1,) * (like - x.ndim))


class Accumulator:
    """What a layer may give as ``sum``: an ``Aggregator``, or what the engine makes of some.

    Attributes:
        name: Name of the total, where there are several.
    """

    name: str


class Aggregator(Accumulator, ABC):
    """One way to sum messages; without state of its own, so one object serves all layers.

    All arrays have one row per destination or per edge; their other axes are those of the message.
    The results must not depend on how edges are split into chunks, nor on the order in which states
    are merged, except for rounding.

    Attributes:
        name: What layers write as ``sum``.
        linear: Whether the total is linear in the message, so that a product with a matrix may be
            done to the total instead.
        partial: Columns of the state that other workers return to the master; None for all.
        shared: Columns of the state that they receive from it before a further pass.
        saved: Columns of the state that ``backward_state`` reads; None for all. They alone are kept
            for backward. A class with a ``backward_state`` of its own does not inherit them.
        reads_total: Whether ``backward_state`` reads the total, which may have been rounded to
            bfloat16 then; otherwise it is given None. Inherited as ``saved``.
        weighted: Whether importance weights count; False for a statistic of the sample itself, such
            as its largest message.
    """

    name: str
    linear = False
    partial: tuple[str, ...] | None = None
    shared: tuple[str, ...] = ()
    saved: tuple[str, ...] | None = None
    reads_total = True
    weighted = True

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        own = vars(cls)
        if "backward_state" in own:
            cls.saved = own.get("saved")
            cls.reads_total = own.get("reads_total", True)

    @abstractmethod
    def start(self, n: int, shapes: list[Shape], dtype: Any) -> State:
        """The neutral state of n destinations for message parts of these trailing shapes."""

    @abstractmethod
    def accumulate(
        self,
        state: State,
        seg: Segments,
        parts: list[np.ndarray],
        gid: np.ndarray,
        scale: np.ndarray | None,
    ) -> None:
        """Add the messages of one chunk to the state, in place.

        Args:
            state: State of all destinations.
            seg: The edges of the chunk, grouped by destination.
            parts: The message, [n_edges, ...]; one array, except for a softmax-weighted sum, which
                has score and value.
            gid: A number of each edge that is the same on any number of ranks, [n_edges] int64, to
                decide ties.
            scale: Importance weight of each edge, [n_edges], or None for weights of 1.
        """

    @abstractmethod
    def merge(self, state: State, rows: np.ndarray, other: State) -> None:
        """Merge another worker's state into these rows of the state, in place; no row is given
        twice.
        """

    def passes(self, dtype: Any) -> int:
        """How often the edges are traversed, for messages of a float type; before each further pass
        ``refine`` is called.
        """
        return 1

    def refine(self, state: State, number: int) -> None:
        """Prepare the state of all masters for pass ``number``, counted from 0, in place."""
        raise NotImplementedError(f"{self.name} has one pass")

    def saved_state(self, state: State) -> State:
        """The columns of a finished state that ``backward_state`` reads."""
        return state if self.saved is None else {name: state[name] for name in self.saved}

    def returned(self, state: State) -> State:
        """The columns of a partial state that are merged into that of the master."""
        return state if self.partial is None else {name: state[name] for name in self.partial}

    def beside(self, given: State, n: int, shapes: list[Shape], dtype: Any) -> State:
        """A neutral state for further edges of n rows, given the shared columns of these."""
        return self.start(n, shapes, dtype) | {name: given[name].copy() for name in self.shared}

    @abstractmethod
    def finish(self, state: State) -> np.ndarray:
        """The totals, [n, ...] of the type of the messages; zero where there are no edges.

        It is called once, after the last edge, and may change the state as far as
        ``backward_state`` does not read it.
        """

    @abstractmethod
    def backward_state(self, state: State, total: np.ndarray, g: np.ndarray) -> State:
        """The columns that edges need to compute the gradient of their message, by name, given the
        gradient g of the totals.
        """

    @abstractmethod
    def backward(
        self, columns: State, parts: list[np.ndarray], gid: np.ndarray, scale: np.ndarray | None
    ) -> list[np.ndarray]:
        """Gradients of the message parts, one array for each; ``columns`` is the backward state
        with one row per edge.
        """


class Sum(Aggregator):
    """Total of all messages, each times the importance weight of its edge."""

    name = "sum"
    linear = True
    saved: tuple[str, ...] | None = ()
    reads_total = False

    def start(self, n: int, shapes: list[Shape], dtype: Any) -> State:
        return {"sum": buffers.full((n, *shapes[0]), 0, dtype)}

    def accumulate(
        self,
        state: State,
        seg: Segments,
        parts: list[np.ndarray],
        gid: np.ndarray,
        scale: np.ndarray | None,
    ) -> None:
        x = (
            parts[0]
            if scale is None
            else parts[0] * expand(scale.astype(parts[0].dtype), parts[0].ndim)
        )
        state["sum"][seg.row] += seg.add(x)

    def merge(self, state: State, rows: np.ndarray, other: State) -> None:
        add_distinct(state["sum"], rows, other["sum"])

    def finish(self, state: State) -> np.ndarray:
        return state["sum"]

    def backward_state(self, state: State, total: np.ndarray, g: np.ndarray) -> State:
        return {"g": g}

    def backward(
        self, columns: State, parts: list[np.ndarray], gid: np.ndarray, scale: np.ndarray | None
    ) -> list[np.ndarray]:
        g = columns["g"]
        return [g if scale is None else g * expand(scale.astype(g.dtype), g.ndim)]


class Mean(Sum):
    """Mean of the messages, weighted by the importance weights of their edges."""

    name = "mean"
    saved = ("weight",)
    reads_total = False

    def start(self, n: int, shapes: list[Shape], dtype: Any) -> State:
        return {"sum": buffers.full((n, *shapes[0]), 0, dtype), "weight": np.zeros(n, dtype)}

    def accumulate(
        self,
        state: State,
        seg: Segments,
        parts: list[np.ndarray],
        gid: np.ndarray,
        scale: np.ndarray | None,
    ) -> None:
        super().accumulate(state, seg, parts, gid, scale)
        ones = (
            np.ones(len(gid), state["weight"].dtype)
            if scale is None
            else scale.astype(state["weight"].dtype)
        )
        state["weight"][seg.row] += seg.add(ones)

    def merge(self, state: State, rows: np.ndarray, other: State) -> None:
        super().merge(state, rows, other)
        add_distinct(state["weight"], rows, other["weight"])

    def finish(self, state: State) -> np.ndarray:
        return _divide(state["sum"], expand(self._weight(state), state["sum"].ndim))

    def backward_state(self, state: State, total: np.ndarray, g: np.ndarray) -> State:
        return {"g": _over(g, expand(self._weight(state), g.ndim))}

    @staticmethod
    def _weight(state: State) -> np.ndarray:
        return np.where(state["weight"] > 0, state["weight"], 1)


class Max(Aggregator):
    """Largest message per column, NaN if one is; of equal ones the edge with the lowest global id
    wins and gets the gradient.
    """

    name = "max"
    saved = ("edge",)
    reads_total = False
    weighted = False
    _sign = 1

    def start(self, n: int, shapes: list[Shape], dtype: Any) -> State:
        shape = (n, *shapes[0])
        return {"best": np.full(shape, -np.inf, dtype), "edge": np.full(shape, NO_EDGE, np.int64)}

    def accumulate(
        self,
        state: State,
        seg: Segments,
        parts: list[np.ndarray],
        gid: np.ndarray,
        scale: np.ndarray | None,
    ) -> None:
        x = parts[0] * self._sign
        best = np.maximum.reduceat(x, seg.start, axis=0)
        # where a message is NaN, the largest is
        largest = (x == seg.broadcast(best)) | np.isnan(x)
        candidate = np.where(largest, expand(gid, x.ndim), NO_EDGE)
        self.merge(
            state,
            seg.row,
            {"best": best, "edge": np.minimum.reduceat(candidate, seg.start, axis=0)},
        )

    def merge(self, state: State, rows: np.ndarray, other: State) -> None:
        best, edge = state["best"][rows], state["edge"][rows]
        wins = beats(other["best"], other["edge"], best, edge)
        state["best"][rows] = np.where(wins, other["best"], best)
        state["edge"][rows] = np.where(wins, other["edge"], edge)

    def finish(self, state: State) -> np.ndarray:
        return np.where(state["edge"] == NO_EDGE, 0, state["best"] * self._sign).astype(
            state["best"].dtype
        )

    def backward_state(self, state: State, total: np.ndarray, g: np.ndarray) -> State:
        return {"g": g, "edge": state["edge"]}

    def backward(
        self, columns: State, parts: list[np.ndarray], gid: np.ndarray, scale: np.ndarray | None
    ) -> list[np.ndarray]:
        g = columns["g"]
        return [np.where(columns["edge"] == expand(gid, g.ndim), g, 0).astype(g.dtype)]


class Min(Max):
    """Smallest message per column; ties as in Max."""

    name = "min"
    _sign = -1


def beats(x: np.ndarray, edge: np.ndarray, best: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Whether x comes before ``best``: NaN first, then larger numbers, then lower edge numbers."""
    nan = np.isnan(x)
    other = np.isnan(best)
    return np.asarray(np.where(nan == other, (x > best) | (((x == best) | nan) & (edge < at)), nan))


class LogSumExp(Aggregator):
    """The normaliser of an edge softmax: the log of the sum of exponentials of the messages, as two
    numbers to be added.

    The total [n, ..., 2] has the largest message, and the log of the sum of exponentials of what
    the messages are below it; zeros where there are no edges. In one number, a large message would
    round the log away. The first is a constant of the backward pass: what is subtracted from all
    scores has no effect on their softmax.
    """

    name = "logsumexp"
    reads_total = False

    def start(self, n: int, shapes: list[Shape], dtype: Any) -> State:
        return {
            "max": buffers.full((n, *shapes[0]), -np.inf, dtype),
            "sum": buffers.full((n, *shapes[0]), 0, dtype),
        }

    def accumulate(
        self,
        state: State,
        seg: Segments,
        parts: list[np.ndarray],
        gid: np.ndarray,
        scale: np.ndarray | None,
    ) -> None:
        top, e = _exponentials(seg, parts[0], scale)
        self.merge(state, seg.row, {"max": top, "sum": seg.add(e)})

    def merge(self, state: State, rows: np.ndarray, other: State) -> None:
        top, here, there = _rebase(state, rows, other)
        state["sum"][rows] = state["sum"][rows] * here + other["sum"] * there
        state["max"][rows] = top

    def finish(self, state: State) -> np.ndarray:
        return np.stack([*_normaliser(state).values()], axis=-1)

    def backward_state(self, state: State, total: np.ndarray, g: np.ndarray) -> State:
        return {"g": g[..., 1], **_normaliser(state)}

    def backward(
        self, columns: State, parts: list[np.ndarray], gid: np.ndarray, scale: np.ndarray | None
    ) -> list[np.ndarray]:
        return [columns["g"] * _share(parts[0], columns, scale)]


class SoftmaxSum(Aggregator):
    """Messages weighted by the softmax of their scores: parts are (score [.., H], value [.., H,
    ...]).

    The state is (max, sum of exponentials, weighted sum), so a worker sends one message where a
    distributed softmax usually takes three. In backward the inner product of gradient and total is
    computed once at the master and replaces the sum over all edges.
    """

    name = "softmax-sum"
    linear = True
    saved = ("max", "sum")

    def start(self, n: int, shapes: list[Shape], dtype: Any) -> State:
        score, value = shapes
        top = buffers.full((n, *score), -np.inf, dtype)
        zeros = buffers.full((n, *score), 0, dtype)
        return {"max": top, "sum": zeros, "total": buffers.full((n, *value), 0, dtype)}

    def accumulate(
        self,
        state: State,
        seg: Segments,
        parts: list[np.ndarray],
        gid: np.ndarray,
        scale: np.ndarray | None,
    ) -> None:
        top, e = _exponentials(seg, parts[0], scale)
        x = parts[1]
        self.merge(
            state, seg.row, {"max": top, "sum": seg.add(e), "total": seg.add(expand(e, x.ndim) * x)}
        )

    def merge(self, state: State, rows: np.ndarray, other: State) -> None:
        top, here, there = _rebase(state, rows, other)
        ndim = state["total"].ndim
        state["sum"][rows] = state["sum"][rows] * here + other["sum"] * there
        state["total"][rows] = state["total"][rows] * expand(here, ndim) + other["total"] * expand(
            there, ndim
        )
        state["max"][rows] = top

    def finish(self, state: State) -> np.ndarray:
        return _divide(
            state["total"], expand(np.where(state["sum"] > 0, state["sum"], 1), state["total"].ndim)
        )

    def backward_state(self, state: State, total: np.ndarray, g: np.ndarray) -> State:
        return {"g": g, **_normaliser(state), "inner": _inner(g, total, lead=state["sum"].ndim)}

    def backward(
        self, columns: State, parts: list[np.ndarray], gid: np.ndarray, scale: np.ndarray | None
    ) -> list[np.ndarray]:
        z, x = parts
        weight = _share(z, columns, scale)
        g = columns["g"]
        inner = (g * x).sum(axis=tuple(range(z.ndim, g.ndim)))
        # where a weight is 1, two equal numbers are subtracted, and their rounding errors would be
        # the gradient
        return [
            np.where(weight == 1, 0, weight * (inner - columns["inner"])),
            expand(weight, g.ndim) * g,
        ]


_over = rowwise(np.true_divide)


def _divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x / y in place of x, which saves an array as large as the totals."""
    buffers.by_blocks(
        lambda b, begin, end: np.true_divide(x[begin:end], y[begin:end], out=x[begin:end]),
        len(x),
        prod(x.shape[1:]),
    )
    return x


@rowwise
def _inner(x: np.ndarray, y: np.ndarray, lead: int) -> Any:
    """Inner products over all axes but the first ``lead``."""
    shape = (*x.shape[:lead], prod(x.shape[lead:]))
    return np.einsum("...i,...i->...", x.reshape(shape), y.reshape(shape))


def _exponentials(
    seg: Segments, z: np.ndarray, scale: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """The largest score of each destination of a chunk, and of each edge exp(score - largest),
    times its importance weight.
    """
    top = np.maximum.reduceat(z, seg.start, axis=0)
    e = np.exp(z - seg.broadcast(_finite(top)))
    return top, e if scale is None else e * expand(scale.astype(z.dtype), z.ndim)


def _share(z: np.ndarray, normaliser: State, scale: np.ndarray | None) -> np.ndarray:
    """The softmax of a score, times the importance weight of its edge; exactly 1 where it is 1 up
    to rounding, as for a single edge.
    """
    weight = np.exp(z - normaliser["top"] - normaliser["mass"])
    weight = weight if scale is None else weight * expand(scale.astype(z.dtype), z.ndim)
    return np.where(np.abs(weight - 1) <= ONE_TOLERANCE * np.finfo(z.dtype).eps, 1, weight).astype(
        z.dtype
    )


def _rebase(
    state: State, rows: np.ndarray, other: State
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The common maximum of two states and the factors that bring each to it."""
    old = state["max"][rows]
    new = other["max"]
    top = np.maximum(old, new)
    safe = _finite(top)
    return top, np.exp(old - safe), np.exp(new - safe)


def _finite(top: np.ndarray) -> np.ndarray:
    """A maximum to subtract from scores: 0 in place of -inf, the maximum of no edges or of masked
    ones only.
    """
    return np.where(np.isneginf(top), 0, top).astype(top.dtype)


def _normaliser(state: State) -> State:
    """The two columns with which edges compute their softmax: the largest score, and the log of the
    sum of exponentials below it.
    """
    return {"top": _finite(state["max"]), "mass": _log_of_mass(state["sum"])}


@rowwise
def _log_of_mass(mass: np.ndarray) -> Any:
    # a sum of NaN is a sum, too
    return np.log(np.where(mass <= 0, 1, mass)).astype(mass.dtype)


SUM, MEAN, MAX, MIN = Sum(), Mean(), Max(), Min()
LOG_SUM_EXP, SOFTMAX_SUM = LogSumExp(), SoftmaxSum()
BUILT_IN = (SUM, MEAN, MAX, MIN, LOG_SUM_EXP, SOFTMAX_SUM)
# those that a layer may name
AGGREGATORS: Registry[Aggregator] = Registry(
    "aggregator",
    lambda x: isinstance(x, Aggregator),
    (a.name for a in BUILT_IN),
    (SUM, MEAN, MAX, MIN),
)


def aggregators(sums: Any) -> dict[str, Accumulator]:
    """The accumulators of a layer by name of the total; a single one has the name "".

    Args:
        sums: What the user gives as ``sum``: an accumulator or the name of an aggregator, several,
            or a dict of them.

    Raises:
        ConfigError: Unknown name, or neither of these.
    """
    if sums is None:
        return {}
    if isinstance(sums, str) or not isinstance(sums, Iterable):
        return {"": aggregator(sums)}
    named = (
        sums
        if isinstance(sums, dict)
        else {x.name if isinstance(x, Accumulator) else x: x for x in sums}
    )
    if not named or not all(isinstance(name, str) and name.isidentifier() for name in named):
        raise ConfigError(
            f"sum = {sums!r}: several aggregators need names that are Python identifiers, as in sum"
            " = {'near': 'mean'}"
        )
    return {name: aggregator(x) for name, x in named.items()}


def aggregator(name: Any) -> Accumulator:
    """The accumulator that a user gives or names in ``sum``.

    Raises:
        ConfigError: Unknown name.
    """
    if isinstance(name, Accumulator):
        return name
    if not isinstance(name, str) or name not in AGGREGATORS:
        raise ConfigError(
            f"sum = {name!r} is not an aggregator; choose from {', '.join(AGGREGATORS)}, weight"
            " messages with gt.softmax(score) inside gather, register one with"
            " gt.AGGREGATORS.add, or give an object, such as sum = gt.LSTM(d_in, d_out)"
        )
    return AGGREGATORS[name]
