"""Steps of a recurrence as the source of two loops over the messages of one row, forward and
backward.

Products and elementwise functions of a step, on arrays of a few numbers, take less time than to
call them from Python. Everything that a step computes has its place in a row of V: the message,
the state before, and the values of its operations. Parameters and constants lie in P, side by
side. What only rearranges numbers, such as an index, a reshape or concat, is no operation here: its
result is where the numbers are.

``s * sigmoid(p) + m`` for states s and messages m of 2 numbers becomes

    @kernel_form
    def kernel(messages, begin, row, steps, keep, at, P, V, state):
        for t in range(steps):
            k = t * keep
            for j in range(2):
                V[k, 0 + j] = messages[begin[t] + row, j]
            for j in range(2):
                V[k, 2 + j] = state[j]
            for j in range(2):
                V[k, 4 + j] = sigmoid(P[0 + j])
            for j in range(2):
                V[k, 6 + j] = (V[k, 2 + j] * V[k, 4 + j])
            for j in range(2):
                V[k, 8 + j] = (V[k, 6 + j] + V[k, 0 + j])
            for j in range(2):
                state[j] = V[k, 8 + j]

With ``keep`` every step has a row of V, which backward reads. There D has the gradients of V, and G
those of P, in float64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod

import numpy as np

from ..autodiff.expr import Expr, ordered
from ..compile.elementary import FUNCTIONS

# operations that give their numbers other places
REARRANGING = ("getitem", "reshape", "expand_last", "broadcast_to", "concat")
FORWARD = "messages, begin, row, steps, keep, at, P, V, state"
BACKWARD = "begin, row, steps, at, P, V, D, G, gradient, back"


class Unwritten(Exception):
    """A step has an operation that is not written as loops."""


@dataclass(frozen=True)
class Place:
    """Where the numbers of a value are.

    Attributes:
        array: "V" or "P".
        at: Their positions, in the shape of the value.
    """

    array: str
    at: np.ndarray


@dataclass
class StepCode:
    """The loops of a step.

    Attributes:
        forward, backward: Source of the two functions.
        at: The positions that they look up, [n] int64.
        width: Numbers of a row of V.
        operands: Number of each operand that they read, and its first position in P.
        n_operands: Numbers of P.
    """

    forward: str
    backward: str
    at: np.ndarray
    width: int
    operands: list[tuple[int, int]]
    n_operands: int


class StepWriter:
    """Writes the loops of a step.

    Args:
        message: The leaf of messages.
        before: The leaves of the state before.
        after: The next state, by the same names.
        dtype: The float type.

    Raises:
        Unwritten: An operation cannot be written.
    """

    def __init__(
        self,
        message: Expr,
        before: Mapping[str, Expr],
        after: Mapping[str, Expr],
        dtype: np.dtype,
    ):
        self._dtype = dtype
        self._places: dict[Expr, Place] = {}
        self._tables: list[np.ndarray] = []
        self._n_looked_up = 0
        self._width = 0
        self._operands: list[tuple[int, int]] = []
        self._n_operands = 0
        self._forth: list[str] = []
        # of each operation, those of later ones first
        self._back: list[list[str]] = []
        self._state = [before[name] for name in after]
        for leaf in (message, *before.values()):
            self._reserve(leaf)
        for e in ordered(after.values()):
            if e not in self._places:
                self._write(e)
        self._put_state(list(after.values()), message)

    @property
    def code(self) -> StepCode:
        """The result."""
        return StepCode(
            forward=_function(FORWARD, ["for t in range(steps):", *_in(self._forth)]),
            backward=_function(
                BACKWARD,
                [
                    "for q in range(steps):",
                    *_in(
                        [
                            "k = steps - 1 - q",
                            *self._begun,
                            *chain.from_iterable(reversed(self._back)),
                        ]
                    ),
                    *_in(self._ended),
                ],
            ),
            at=np.concatenate([np.zeros(0, np.int64), *self._tables]),
            width=self._width,
            operands=self._operands,
            n_operands=self._n_operands,
        )

    # ---- places

    def _reserve(self, e: Expr) -> Place:
        """New places in a row of V."""
        n = prod(e.dims)
        place = Place("V", self._width + np.arange(n).reshape(e.dims))
        self._width += n
        self._places[e] = place
        return place

    def _operand(self, e: Expr, number: int) -> None:
        n = prod(e.dims)
        self._places[e] = Place("P", self._n_operands + np.arange(n).reshape(e.dims))
        self._operands.append((number, self._n_operands))
        self._n_operands += n

    def _index(self, at: np.ndarray, j: str) -> str:
        """The position of number j of some positions."""
        flat = at.reshape(-1)
        if len(flat) and np.array_equal(flat, flat[0] + np.arange(len(flat))):
            return f"{flat[0]} + {j}"
        if len(flat) and (flat == flat[0]).all():
            return f"{flat[0]}"
        self._tables.append(flat.astype(np.int64))
        self._n_looked_up += len(flat)
        return f"at[{self._n_looked_up - len(flat)} + {j}]"

    @staticmethod
    def _value(place: Place, index: str) -> str:
        return f"V[k, {index}]" if place.array == "V" else f"P[{index}]"

    @staticmethod
    def _gradient(place: Place, index: str) -> str:
        return f"D[{index}]" if place.array == "V" else f"G[{index}]"

    # ---- operations

    def _write(self, e: Expr) -> None:
        if e.leaf is not None:
            if e.leaf[0] != "operand" or (e.requires_grad and e.dtype != self._dtype):
                raise Unwritten
            self._operand(e, e.leaf[1])
            return
        assert e.prim is not None
        if e.dtype != self._dtype or e.traits.random:
            raise Unwritten
        places = [self._places[a] for a in e.args]
        if e.prim.name in REARRANGING:
            self._rearrange(e, places)
        elif e.prim.name == "matmul":
            self._product(e, *places)
        else:
            self._elementwise(e, places)

    def _rearrange(self, e: Expr, places: list[Place]) -> None:
        assert e.prim is not None
        arrays = {place.array for place in places}
        if len(arrays) > 1 or len({a.rows for a in e.args}) > 1:
            raise Unwritten
        at = [p.at[None] if a.rows else p.at for a, p in zip(e.args, places, strict=True)]
        positions = np.asarray(e.prim.forward(*at, **e.static))
        self._places[e] = Place(arrays.pop(), positions.reshape(e.dims))

    def _elementwise(self, e: Expr, places: list[Place]) -> None:
        assert e.prim is not None
        form = e.prim.form(e.static)
        if form is None or not all(FUNCTIONS[name].of_numbers for name in form.functions):
            raise Unwritten
        indices = [self._index(np.broadcast_to(p.at, e.dims), "j") for p in places]
        out = self._reserve(e)
        to = self._index(out.at, "j")
        values = [self._value(p, i) for p, i in zip(places, indices, strict=True)]
        loop = f"for j in range({out.at.size}):"
        self._forth += [loop, f"    {self._value(out, to)} = {form.value.format(*values)}"]
        back = []
        for a, place, index, rule in zip(e.args, places, indices, form.grads, strict=True):
            if a.requires_grad and rule is not None:
                slope = rule.format(*values, g=self._gradient(out, to), y=self._value(out, to))
                back.append(f"    {self._gradient(place, index)} += {slope}")
        self._back.append([loop, *back] if back else [])

    def _product(self, e: Expr, x: Place, w: Place) -> None:
        d = w.at.shape[0]
        n = prod(w.at.shape[1:])
        if not np.array_equal(w.at.reshape(-1), w.at.flat[0] + np.arange(d * n)):
            raise Unwritten
        out = self._reserve(e)
        to = f"{out.at.flat[0]} + l * {n} + c" if out.at.size else "0"
        of_x = self._index(x.at, f"l * {d} + i")
        of_w = f"{w.at.flat[0]} + i * {n} + c"
        rows = f"for l in range({x.at.size // d}):"
        terms = [f"for i in range({d}):", f"    a = {self._value(x, of_x)}"]
        columns = f"for c in range({n}):"
        self._forth += [
            rows,
            *_in([columns, f"    V[k, {to}] = T(0)", *terms]),
            *_in(_in([columns, f"    V[k, {to}] += a * {self._value(w, of_w)}"])),
        ]
        back = list(terms)
        if e.args[0].requires_grad:
            back += _in(["s = T(0)", columns, f"    s += D[{to}] * {self._value(w, of_w)}"])
            back += _in([f"{self._gradient(x, of_x)} += s"])
        if e.args[1].requires_grad:
            back += _in([columns, f"    {self._gradient(w, of_w)} += a * D[{to}]"])
        self._back.append([rows, *_in(back)])

    # ---- messages and states

    def _put_state(self, after: Sequence[Expr], message: Expr) -> None:
        """Read the message and the state before each step, and take the state after it."""
        begun: list[str] = []
        taken: list[str] = []
        added = ["for j in range(len(D)):", "    D[j] = T(0)"]
        given: list[str] = []
        of_message = self._index(self._places[message].at, "j")
        m = prod(message.dims)
        begun += [
            "k = t * keep",
            f"for j in range({m}):",
            f"    V[k, {of_message}] = messages[begin[t] + row, j]",
        ]
        given += [f"for j in range({m}):", f"    back[begin[k] + row, j] = D[{of_message}]"]
        first = 0
        for old, new in zip(self._state, after, strict=True):
            n = prod(old.dims)
            if new.dims != old.dims or self._places[new].array != "V":
                raise Unwritten
            loop = f"for j in range({n}):"
            of_old, of_new = (self._index(self._places[e].at, "j") for e in (old, new))
            begun += [loop, f"    V[k, {of_old}] = state[{first} + j]"]
            taken += [loop, f"    state[{first} + j] = V[k, {of_new}]"]
            added += [loop, f"    D[{of_new}] += gradient[{first} + j]"]
            given += [loop, f"    gradient[{first} + j] = D[{of_old}]"]
            first += n
        self._forth = [*begun, *self._forth, *taken]
        self._begun = added
        self._ended = given


def _in(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _function(arguments: str, lines: list[str]) -> str:
    return "\n".join(["@kernel_form", f"def kernel({arguments}):", *_in(lines)]) + "\n"
