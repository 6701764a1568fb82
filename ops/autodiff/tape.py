"""Reverse-mode differentiation: a list of nodes, walked backwards.

Backward communicates, so every rank must meet the same operations in the same order. A list gives that for free;
nothing here looks at the contents of an array to decide what to record. The tape knows no operation by name: a node
carries its inputs, its outputs and one function from output gradients to input gradients.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

import numpy as np

from graphtheta.errors import ShapeError, TapeError
from graphtheta.rng import Purpose, key

from . import buffers, init
from .scope import holding
from .space import RowSpace

Vjp = Callable[[list[Any]], Sequence[Any]]
Version = Mapping["Parameter", np.ndarray]


class Operators:
    """Arithmetic and method syntax, filled in by ``operators.py`` for variables and edge expressions alike."""

    __slots__ = ()


class Var(Operators):
    """A value of the forward pass.

    Attributes:
        value: numpy array, or a scipy CSR array for sparse rows.
        space: The rows of axis 0, or None for a value that has none (parameters, losses).
        needs_grad: Whether gradients flow into it; they flow into floats only.
        name: What a user calls it, for messages; of columns only.
        made_in: The pass whose operation made it, as ``Tape.number``; None for a value that was given to the pass.
    """

    __slots__ = ("made_in", "name", "needs_grad", "space", "value")

    def __init__(self, value: Any, space: RowSpace | None = None, needs_grad: bool | Passing = False, name: str = ""):
        if space is not None and value.shape[0] != space.n:
            raise ShapeError(f"a value has {value.shape[0]} rows, but there are {space.n} {space.kind}s; give one row for each")
        self.value = value
        self.space = space
        self.needs_grad = needs_grad
        self.name = name
        self.made_in: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def dtype(self) -> np.dtype:
        return self.value.dtype

    def __repr__(self) -> str:
        rows = f" over {self.space.kind}s" if self.space is not None else ""
        return f"Var({self.value.dtype}{list(self.shape)}{rows})"


class Parameter(Operators):
    """A trainable array, the same on every rank.

    Attributes:
        value: The array; within ``version_scope`` that of the version in use, otherwise the newest.
        name: Path inside the model ("layers.0.weight"), given when the model is built.
        decay: Multiplier of the optimiser's weight decay; 0 or False for none.
        requires_grad: Whether it is trained; False, set before a trainer is made, makes it a constant for backward.
    """

    __slots__ = ("_newest", "decay", "name", "requires_grad")
    space = None

    def __init__(self, value: Any, decay: float = 1.0, name: str = ""):
        self._newest = np.asarray(value)
        self.decay = float(decay)
        self.name = name
        self.requires_grad = True

    @property
    def needs_grad(self) -> bool:
        """Whether gradients flow into it, here and now."""
        return self.requires_grad and self not in _FROZEN.get()

    @property
    def value(self) -> np.ndarray:
        version = _VERSION.get()
        return self._newest if version is None else version.get(self, self._newest)

    @value.setter
    def value(self, value: np.ndarray) -> None:
        self._newest = value

    @classmethod
    def glorot(cls, *shape: int, decay: float = 1.0) -> Parameter:
        """Uniform with variance 2 / (fan_in + fan_out); fan_in = shape[0], fan_out = the product of the other axes."""
        return cls(init.glorot(shape), decay)

    @classmethod
    def he(cls, *shape: int, decay: float = 1.0) -> Parameter:
        """Uniform with variance 2 / fan_in; fan_in = shape[0]. For layers followed by relu."""
        return cls(init.he(shape), decay)

    @classmethod
    def normal(cls, *shape: int, std: float = 1.0, decay: float = 1.0) -> Parameter:
        """Normal with mean 0."""
        return cls(init.normal(shape, std), decay)

    @classmethod
    def zeros(cls, *shape: int, decay: float = 1.0) -> Parameter:
        """All 0."""
        return cls(init.zeros(shape), decay)

    @classmethod
    def ones(cls, *shape: int, decay: float = 1.0) -> Parameter:
        """All 1."""
        return cls(init.ones(shape), decay)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def dtype(self) -> np.dtype:
        return self.value.dtype

    def __repr__(self) -> str:
        return f"Parameter({self.name or '?'}, {self.value.dtype}{list(self.shape)})"


class Step(Protocol):
    """What a tape holds: an operation, or a piece of the pass that will run again."""

    outputs: list[Var]

    @property
    def parameters(self) -> list[Parameter]:
        """Those it reads, in an order that the recorded operations determine."""

    def back(self, grads: Gradients) -> None:
        """Take the gradients of the outputs and add those of what they were made from."""


@dataclass(slots=True)
class Node:
    """One recorded operation."""

    name: str
    inputs: list[Any]
    outputs: list[Var]
    vjp: Vjp

    @property
    def parameters(self) -> list[Parameter]:
        """Those it reads and into which gradients flow."""
        return [x for x in self.inputs if isinstance(x, Parameter) and x.needs_grad]

    def back(self, grads: Gradients) -> None:
        """Walk back over it."""
        incoming = [grads.take(out) for out in self.outputs]
        if all(g is None for g in incoming):
            return
        for x, g in zip(self.inputs, self.vjp(incoming), strict=True):
            if g is not None and needs_grad(x):
                grads.add(x, g)


class Passing:
    """In place of True: gradients flow into a value, but nothing that leads back to it is kept.

    It is true while the piece that made the value runs; whoever asks afterwards uses a value that the piece did not return.
    """

    def __init__(self) -> None:
        self.over = False

    def __bool__(self) -> bool:
        if self.over:
            raise TapeError("a value computed inside gt.recompute is used outside of it; return it from the function")
        return True


class Tape:
    """One forward pass and what is needed to walk it back.

    Args:
        record: False for inference: nothing is kept.
        training: Whether dropout drops and batch statistics are used.
        seed, step: Keys of all random draws of this pass.
        all_sum: Sums an array over all workers; the identity on one.

    Attributes:
        changes: Updates of state besides the parameters, such as running statistics. They are done when the ``with`` block
            ends, unless somebody has emptied the list to do them in the order of the steps.
        read: Parameters read by what was not recorded because it will run again.
        number: Of the pass, in this process; pieces of a pass share it. None outside of any pass.
    """

    _marks: bool | Passing = True
    _whole = True

    def __init__(self, *, record: bool = True, training: bool = True, seed: int = 0, step: int = 0,
                 all_sum: Callable[[np.ndarray], np.ndarray] | None = None):
        self.record = record
        self.training = training
        self.seed = seed
        self.step = step
        self.all_sum = all_sum or (lambda x: x)
        self.nodes: list[Step] = []
        self.changes: list[Callable[[], None]] = []
        self.read: dict[Parameter, None] = {}
        self.number: int | None = next(_NUMBERS)
        self._sites = 0
        self._spent = False
        self._token: Any = None

    def __enter__(self) -> Tape:
        self._token = _ACTIVE.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _ACTIVE.reset(self._token)
        for change in self.changes if self._whole else ():
            change()

    def random_key(self) -> int:
        """A fresh key for one random operation of this pass; the same on every rank."""
        self._sites += 1
        return key(self.seed, Purpose.DROPOUT, self.step, self._sites)

    def add(self, name: str, inputs: Sequence[Any], outputs: Sequence[Var], vjp: Vjp) -> None:
        """Record an operation. ``vjp`` gets one gradient (or None) per output, returns one (or None) per input.

        Raises:
            TapeError: An input was made by an operation of another pass, from which no gradient would find its way back.
        """
        number = self.number
        for x in inputs:
            # outside of any pass, results of passes are looked at
            if isinstance(x, Var) and x.made_in is not None and x.made_in != number and number is not None:
                raise TapeError(f"{name} was given a value from an earlier pass; values are valid in one forward pass only, "
                                "so compute it in "
                                "each, and keep only settings and parameters on self")
        for out in outputs:
            out.made_in = number
        learned = [out for out in outputs if out.dtype.kind == "f"]
        if not self.record or not learned or not any(needs_grad(x) for x in inputs):
            return
        for out in learned:
            out.needs_grad = self._marks
        node = Node(name, list(inputs), list(outputs), vjp)
        if self._marks is True:
            self.nodes.append(node)
        else:
            self.read.update(dict.fromkeys(node.parameters))

    def part(self, marks: bool | Passing) -> Tape:
        """A tape for a piece of this pass, which starts where this one stands.

        Args:
            marks: What is said of values into which gradients flow: True, or a ``Passing`` for a piece that is not to be kept.
        """
        part = copy(self)
        part.nodes, part.changes, part.read, part._marks, part._token, part._whole = [], [], {}, marks, None, False
        return part

    def keep(self, step: Step, end: Tape) -> None:
        """Go on where a part ended; what it did is recorded as one step."""
        self._sites = end._sites
        self.changes += end.changes
        for out in step.outputs:
            if out.needs_grad is end._marks:
                out.needs_grad = self._marks
        if self._marks is not True:
            self.read.update(dict.fromkeys(step.parameters))
        elif any(needs_grad(out) for out in step.outputs):
            self.nodes.append(step)

    def backward(self, output: Var, seed: np.ndarray | None = None, final: Callable[[Parameter, Any], None] | None = None) -> Gradients:
        """Walk back from ``output``; returns the gradients of leaves and parameters.

        Nodes are dropped as they are passed, so memory falls during the walk and a tape serves once.

        Args:
            final: Called with each parameter and its gradient (or None) as soon as no step is left that reads it: in an order
                that only the recorded operations determine.

        Raises:
            TapeError: The tape has been walked already, or nothing was recorded on it.
        """
        if self._spent:
            raise TapeError("backward was already called on this tape; run the forward pass again first")
        if not self.record:
            raise TapeError("this tape was opened with record=False and recorded no operations; open it with record=True")
        self._spent = True
        grads = Gradients()
        grads.add(output, np.ones_like(output.value) if seed is None else np.asarray(seed, output.value.dtype))
        if final is None:
            self.walk(grads)
            return grads
        first: dict[Parameter, int] = {}
        for i, step in enumerate(self.nodes):
            for p in step.parameters:
                first.setdefault(p, i)
        ends: dict[int, list[Parameter]] = {}
        for p, i in first.items():
            ends.setdefault(i, []).append(p)
        while self.nodes:
            self.nodes.pop().back(grads)
            for p in ends.get(len(self.nodes), ()):
                final(p, grads.of(p))
        return grads

    def walk(self, grads: Gradients) -> None:
        """Carry gradients back over everything recorded."""
        while self.nodes:
            self.nodes.pop().back(grads)


class Gradients:
    """Gradients by variable or parameter, summed where a value was used more than once."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[Any, Any]] = {}
        # sums made here, which nobody else sees and which may be added to
        self._own: set[int] = set()

    def add(self, x: Any, g: Any) -> None:
        if g.shape != x.shape:
            raise ShapeError(f"a gradient rule returned shape {list(g.shape)} for a value of shape {list(x.shape)}")
        old = self._of.get(id(x))
        if old is None:
            self._of[id(x)] = (x, g)
        else:
            self._of[id(x)] = (x, buffers.add(old[1], g, out=old[1] if id(x) in self._own else None))
            self._own.add(id(x))

    def take(self, x: Any) -> Any:
        """The gradient of an intermediate value, forgotten here; None if there is none."""
        entry = self._of.pop(id(x), None)
        self._own.discard(id(x))
        return None if entry is None else entry[1]

    def of(self, x: Any) -> Any:
        """The gradient of a leaf or parameter; None if it was not reached."""
        entry = self._of.get(id(x))
        return None if entry is None else entry[1]


_NUMBERS = count()
_ACTIVE: ContextVar[Tape] = ContextVar("graphtheta_tape")
_VERSION: ContextVar[Version | None] = ContextVar("graphtheta_version", default=None)
_FROZEN: ContextVar[frozenset[Parameter]] = ContextVar("graphtheta_frozen", default=frozenset())


def version_scope(version: Version) -> AbstractContextManager[None]:
    """Parameters have the values of ``version`` in this thread, whatever becomes of them elsewhere."""
    return holding(_VERSION, version)


def frozen_scope(parameters: frozenset[Parameter]) -> AbstractContextManager[None]:
    """No gradients flow into ``parameters`` in this thread."""
    return holding(_FROZEN, parameters)


def current() -> Tape:
    """The tape of the enclosing ``with Tape()``; outside of any, one that records nothing and does not train."""
    tape = _ACTIVE.get(None)
    if tape is None:
        tape = Tape(record=False, training=False)
        tape.number = None
    return tape


def needs_grad(x: Any) -> bool:
    """Whether gradients flow into x; False for arrays and numbers."""
    return bool(getattr(x, "needs_grad", False))


def value_of(x: Any) -> Any:
    """The array behind a variable or parameter; anything else as it is."""
    return x.value if isinstance(x, (Var, Parameter)) else x


def space_of(x: Any) -> RowSpace | None:
    """The row space of a variable; None for everything else."""
    return x.space if isinstance(x, Var) else None
