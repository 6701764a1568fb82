"""Recurrences over rows: a function from a state and a message to the next state, step by step.

The rows that are in a step are a prefix of those of the step before (``ops.edge.turns``). Nothing
of a step is stored from the forward to the backward pass: the steps of a block of rows run again,
on a tape of their own, and are backpropagated through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple

import numpy as np

from graphtheta.errors import UserFunctionError

from ..autodiff.gradients import Gradients
from ..autodiff.naming import naming
from ..autodiff.space import RowSpace
from ..autodiff.tape import Parameter, Tape, Var, current, space_of, value_of
from ..parallel import buffers
from .long_rows import LongRows
from .rows import prefix

# turns of at most so many rows are run in compiled loops, if there are at least LONG of them; rows
# times the square of the numbers of a message are at most WORK, since BLAS is faster at products of
# many rows (both compute about 1 ms then)
FEW_ROWS = 64
WORK = 1 << 20
LONG = 512
# from the state, None at first, and a message to the next state
Step = Callable[[Any, Var], Any]
State = dict[str, Var]
Shape = tuple[int, ...]
Arrays = dict[str, np.ndarray]


class Turn(NamedTuple):
    """A step of some rows.

    Attributes:
        begin, end: Bounds of its messages; the first ``end - begin`` rows take one each.
        stays: Number of rows that take part in the next step, too.
    """

    begin: int
    end: int
    stays: int

    @property
    def leaving(self) -> slice:
        """The rows for which it is the last step."""
        return slice(self.stays, self.end - self.begin)

    @property
    def last_of_some(self) -> bool:
        """Whether it is the last step of any row."""
        return self.stays < self.end - self.begin


class Part(NamedTuple):
    """A part of what a row ends with: its trailing shape and its type."""

    dims: Shape
    dtype: np.dtype

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.dims)}"


class Called(NamedTuple):
    """An operation of a step: its name, and the trailing shapes of what it takes and gives; of
    values without rows, whole shapes.
    """

    name: str
    inputs: list[Shape]
    outputs: list[Shape]


@dataclass(frozen=True)
class FirstMessages:
    """The first k messages of each row, [n_rows, k, ...].

    Attributes:
        k: Number of messages; rows take no more turns.
        dims, dtype: Trailing shape and type of a message.
        parts, parameters, called: As of ``Recurrence``.
    """

    k: int
    dims: Shape
    dtype: np.dtype
    parameters: tuple[Parameter, ...] = ()
    called: tuple[Called, ...] = ()

    @property
    def parts(self) -> dict[str, Part]:
        return {"": Part((self.k, *self.dims), self.dtype)}

    def run(
        self, messages: np.ndarray, turns: Sequence[Turn], gid: np.ndarray, compiled: bool = False
    ) -> Arrays:
        """As ``Recurrence.run``."""
        ends = np.zeros((len(gid), self.k, *self.dims), self.dtype)
        for i, turn in enumerate(turns):
            ends[: turn.end - turn.begin, i] = messages[turn.begin : turn.end]
        return {"": ends}

    def backpropagate(
        self,
        messages: np.ndarray,
        turns: Sequence[Turn],
        gid: np.ndarray,
        gradients: Arrays,
        compiled: bool = False,
    ) -> tuple[np.ndarray, list[np.ndarray | None]]:
        """As ``Recurrence.backpropagate``."""
        g = gradients[""]
        each = [g[: turn.end - turn.begin, i] for i, turn in enumerate(turns)]
        return np.concatenate([messages[:0], *each]), []


@dataclass(frozen=True)
class Recurrence:
    """A step function as it is in one pass, and what two steps over no rows have shown of it.

    Attributes:
        step: The function; a state is a value of rows or a dict of them.
        owner: Its name, for messages.
        parts: The values of the state, by name; a single one has the name "".
        parameters: The parameters that it reads and into which gradients flow.
        dtype: The float type of the pass.
        draws: Whether the pass trains, the key of its random draws, and its step.
        called: The operations of a step.
    """

    step: Step
    owner: str
    parts: dict[str, Part]
    parameters: tuple[Parameter, ...]
    dtype: np.dtype
    draws: tuple[bool, int, int]
    called: tuple[Called, ...] = ()

    @classmethod
    def of(cls, step: Step, owner: str, dims: Shape, dtype: np.dtype, key: int) -> Recurrence:
        """A recurrence over messages [rows, *dims] in the current pass.

        Args:
            key: Of the random draws of the steps.

        Raises:
            UserFunctionError: The step returned no state, or one that is unlike the state before.
        """
        outside = current()
        empty = cls(
            step=step,
            owner=owner,
            parts={},
            parameters=(),
            dtype=dtype,
            draws=(outside.training, key, outside.step),
        )
        message = Var(np.zeros((0, *dims), dtype), RowSpace(np.zeros(0, np.int64)), needs_grad=True)
        with empty._tape(record=True) as tape:
            first = empty._next(None, message)
            n = len(tape.nodes)
            second = empty._next(first, message)
        parts, after = (
            {n: Part(x.shape[1:], x.dtype) for n, x in s.items()} for s in (first, second)
        )
        if parts != after:
            raise UserFunctionError(
                f"step of {owner} returned the state {_text(parts)} at first and {_text(after)}"
                " afterwards; a state has the same values, of the same types, in every step"
            )
        return replace(
            empty,
            parts=parts,
            parameters=tuple(_read(tape)),
            called=tuple(_called(node) for node in tape.nodes[n:]),
        )

    def run(
        self, messages: np.ndarray, turns: Sequence[Turn], gid: np.ndarray, compiled: bool = False
    ) -> Arrays:
        """What each row ends with.

        Args:
            messages: Those of the turns, one after another, [n_messages, ...].
            turns: The turns.
            gid: Global ids of the rows, by which random numbers are drawn, [n_rows].
            compiled: Whether long rows may run in compiled loops.

        Returns:
            By the names of ``parts``, [n_rows, ...].
        """
        ends = {n: np.zeros((len(gid), *dims), dtype) for n, (dims, dtype) in self.parts.items()}
        tail = self._tail(messages, turns) if compiled else None
        turns = turns if tail is None else turns[: tail.first]
        state: State = {}
        with self._tape(record=False):
            for turn, (_, state) in zip(turns, self._states(messages, turns, gid), strict=True):
                if turn.last_of_some:
                    for name, x in state.items():
                        ends[name][turn.leaving] = x.value[turn.leaving]
        if tail is not None:
            for row, begin in enumerate(tail.begin):
                last = self._flat(state, row)
                tail.rows.run(tail.messages, begin, row, last)
                for name, end in self._unflat(last).items():
                    ends[name][row] = end
        return ends

    def backpropagate(
        self,
        messages: np.ndarray,
        turns: Sequence[Turn],
        gid: np.ndarray,
        gradients: Arrays,
        compiled: bool = False,
    ) -> tuple[np.ndarray, list[np.ndarray | None]]:
        """Gradients of the messages, and of the parameters.

        Args:
            messages, turns, gid, compiled: As for ``run``.
            gradients: Of what rows end with, as far as there are any.

        Raises:
            UserFunctionError: The step reads a parameter that it did not read over no rows.
        """
        grads = Gradients()
        taken = []
        tail = self._tail(messages, turns) if compiled else None
        turns = turns if tail is None else turns[: tail.first]
        state: State = {}
        back = buffers.empty(messages.shape, self.dtype)
        with self._tape(record=True) as tape:
            for turn, (message, state) in zip(
                turns, self._states(messages, turns, gid), strict=True
            ):
                taken.append(message)
                # a state that no row ends with may be computed together with the next one
                for name, g in gradients.items() if turn.last_of_some else ():
                    padded = buffers.full(state[name].value.shape, 0, g.dtype)
                    padded[turn.leaving] = g[turn.leaving]
                    grads.add(state[name], padded)
        if not set(_read(tape)) <= set(self.parameters):
            raise UserFunctionError(
                f"step of {self.owner} reads a parameter in some of its later steps only, so that"
                " workers would disagree on what is trained; read it in every step but the first"
            )
        if tail is not None:
            of_states = {
                name: np.zeros((len(tail.begin), *part.dims), self.dtype)
                for name, part in self.parts.items()
            }
            of_messages = back.reshape(tail.messages.shape)
            for row, begin in enumerate(tail.begin):
                ends = {name: g[row] for name, g in gradients.items()}
                gradient = self._joined(ends)
                tail.rows.backpropagate(
                    messages=tail.messages,
                    begin=begin,
                    row=row,
                    state=self._flat(state, row),
                    gradient=gradient,
                    back=of_messages,
                )
                for name, x in self._unflat(gradient).items():
                    of_states[name][row] = x
            for name, g in of_states.items():
                padded = buffers.full(state[name].value.shape, 0, self.dtype)
                padded[: len(g)] = g
                grads.add(state[name], padded)
        tape.backpropagate(grads)
        for turn, message in zip(turns, taken, strict=True):
            g = grads.of(message)
            back[turn.begin : turn.end] = 0 if g is None else g
        return back, [
            _sum(grads.of(p), None if tail is None else tail.rows.gradient_of(p))
            for p in self.parameters
        ]

    def _tail(self, messages: np.ndarray, turns: Sequence[Turn]) -> _Tail | None:
        """The turns of few rows, if there are enough to compile them."""
        counts = np.array([turn.end - turn.begin for turn in turns])
        # the first step of a row is another function
        few = min(FEW_ROWS, max(1, WORK // max(1, prod(messages.shape[1:])) ** 2))
        first = max(1, int(np.count_nonzero(counts > few)))
        if len(turns) - first < LONG:
            return None
        rows = LongRows.of(self.step, messages.shape[1:], self.parts, self.dtype)
        if rows is None:
            return None
        begin = np.array([turn.begin for turn in turns[first:]])
        return _Tail(
            first=first,
            begin=[
                begin[: int(np.count_nonzero(counts > row)) - first] for row in range(counts[first])
            ],
            messages=np.ascontiguousarray(messages).reshape(len(messages), -1),
            rows=rows,
        )

    def _flat(self, state: State, row: int) -> np.ndarray:
        """The state of a row, its parts side by side."""
        return self._joined({name: x.value[row] for name, x in state.items()})

    def _joined(self, parts: Arrays) -> np.ndarray:
        """Parts side by side; 0 for those that are not given."""
        none = np.zeros(0, self.dtype)
        each = [
            np.reshape(parts[name], -1) if name in parts else np.zeros(prod(part.dims), self.dtype)
            for name, part in self.parts.items()
        ]
        return np.concatenate([none, *each])

    def _unflat(self, flat: np.ndarray) -> Arrays:
        """The parts of a state, in their shapes."""
        cuts = np.cumsum([prod(part.dims) for part in self.parts.values()])[:-1]
        return {
            name: x.reshape(part.dims)
            for (name, part), x in zip(self.parts.items(), np.split(flat, cuts), strict=True)
        }

    def _states(
        self, messages: np.ndarray, turns: Sequence[Turn], gid: np.ndarray
    ) -> Iterator[tuple[Var, State]]:
        """Message and new state of each step."""
        space = RowSpace(gid)
        state: State | None = None
        for turn in turns:
            n = turn.end - turn.begin
            message = Var(messages[turn.begin : turn.end], space.prefix(n), needs_grad=True)
            before = None if state is None else {name: prefix(x, n) for name, x in state.items()}
            state = self._next(before, message)
            yield message, state

    def _next(self, before: State | None, message: Var) -> State:
        """The state after a step."""
        state: Any = before if before is None or "" not in before else before[""]
        with naming(f"step of {self.owner}"):
            state = self.step(state, message)
        values: State = state if isinstance(state, dict) else {"": state}
        if not values or not all(isinstance(x, Var) and x.space for x in values.values()):
            kinds = ", ".join(type(x).__name__ for x in values.values()) or "nothing"
            raise UserFunctionError(
                f"step of {self.owner} returned {kinds}; expected the next state, one value for"
                " each row or a dict of such values, computed from the message"
            )
        return values

    def _tape(self, record: bool) -> Tape:
        """A tape for steps. Workers make other numbers of steps, so the steps draw from one draw of
        the pass.
        """
        training, key, step = self.draws
        tape = Tape(record=record, training=training, seed=key, step=step, all_sum=_refused)
        tape.dtype = self.dtype
        return tape


# how rows take their messages, one in each turn, in one pass
Turns = FirstMessages | Recurrence


@dataclass(frozen=True)
class _Tail:
    """The last turns of a block, in which few rows take part.

    Attributes:
        first: Number of the first of these turns.
        begin: For each row, the first messages of its turns.
        messages: Those of all turns, [n_messages, size].
        rows: Runs them.
    """

    first: int
    begin: list[np.ndarray]
    messages: np.ndarray
    rows: LongRows


def _sum(x: np.ndarray | None, y: np.ndarray | None) -> np.ndarray | None:
    return y if x is None else x if y is None else x + y


def _refused(x: np.ndarray) -> np.ndarray:
    raise UserFunctionError(
        "a step takes some rows at a time and cannot reduce over all of them, as batch norm and"
        " gt.graph_mean do; do so in transform or apply"
    )


def _called(node: Any) -> Called:
    inputs, outputs = ([_trailing(x) for x in xs] for xs in (node.inputs, node.outputs))
    return Called(node.name, inputs, outputs)


def _trailing(x: Any) -> Shape:
    shape = tuple(getattr(value_of(x), "shape", ()))
    return shape[1:] if space_of(x) is not None else shape


def _read(tape: Tape) -> dict[Parameter, None]:
    """The parameters that a tape has read, each once, in order."""
    return dict.fromkeys(p for node in tape.nodes for p in node.parameters)


def _text(parts: dict[str, Part]) -> str:
    return ", ".join(f"{name} {part}".strip() for name, part in parts.items())
