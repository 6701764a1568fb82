"""Reverse-mode differentiation: a list of operations that is traversed backwards.

The backward pass communicates, so all ranks must run the same operations in the same order. A list
guarantees that: what is recorded never depends on the contents of an array. No operation is known
by name: a node has its inputs, its outputs and one function from output to input gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

import numpy as np

from graphtheta.base.arguments import checked
from graphtheta.base.bfloat16 import BFLOAT16, is_wide
from graphtheta.base.rng import Purpose, key
from graphtheta.base.sparse import is_sparse
from graphtheta.base.wording import shown
from graphtheta.errors import ArgumentError, ShapeError, TapeError

from ..rows.bfloat16 import as_float, rounded
from ..rows.computed import ComputedRows
from ..rows.row_list import ArrayOrList, RowList
from . import init
from .gradients import Gradients
from .scope import value_scope
from .space import RowSpace

Vjp = Callable[[list[Any]], Sequence[Any]]
Called = (
    tuple[Any, Mapping[str, Any]] | None
)  # the primitive that was called with its keywords, for tapes that list operations
Version = Mapping["Parameter", np.ndarray]
# a pending update of other state: a function and its arguments, which can be sent to other workers
Change = tuple[Callable[..., None], tuple[np.ndarray, ...]]


class Operators:
    """Arithmetic and method syntax, filled in by ``operators.py`` for variables and edge
    expressions alike.
    """

    __slots__ = ()


class Var(Operators):
    """A value of the forward pass.

    Args:
        value: The array, which may be ``BFLOAT16``.

    Attributes:
        value: numpy array, or a scipy CSR array for sparse rows. It must stay as it is until the
            pass has ended: functions of large values, and gradient rules, read it later. A value
            that was rounded is expanded again by each reader.
        space: The rows of axis 0, or None for a value that has none (parameters, losses).
        needs_grad: Whether gradients flow into it; they flow into floats only.
        name: Name of a column, for messages; empty for other values.
        made_in: ``Tape.number`` of the pass that computed it; None for an input of the pass.
    """

    __slots__ = ("_stored", "made_in", "name", "needs_grad", "space")

    def __init__(
        self,
        value: Any,
        space: RowSpace | None = None,
        needs_grad: bool | Unrecorded = False,
        name: str = "",
    ):
        if space is not None and value.shape[0] != space.n:
            raise ShapeError(
                f"a value has {value.shape[0]} rows, but there are {space.n} {space.kind}s; give"
                " one row for each"
            )
        self._stored = value
        self.space = space
        self.needs_grad = needs_grad
        self.name = name
        self.made_in: int | None = None

    @property
    def value(self) -> Any:
        return as_float(self._stored)

    @value.setter
    def value(self, value: Any) -> None:
        self._stored = value

    @property
    def short(self) -> ArrayOrList | None:
        """The value as ``BFLOAT16``, to which it is rounded where the pass stores it so; None if
        it is stored otherwise.
        """
        if self._stored.dtype != BFLOAT16 and is_rounded(self):
            self._stored = rounded(self._stored)
        return self._stored if self._stored.dtype == BFLOAT16 else None

    def lent(self) -> RowList | ComputedRows | None:
        """The rows, of one axis each, for a product, which reads them a block at a time; None if
        it reads the value in memory.
        """
        return None

    @property
    def stored_bytes(self) -> int:
        """Bytes of a number as it is stored now; 0 if it is not."""
        return 0 if self._stored is None else self._stored.dtype.itemsize

    @property
    def sparse(self) -> bool:
        """Whether it has sparse rows."""
        return is_sparse(self._stored)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._stored.shape

    @property
    def dtype(self) -> np.dtype:
        dtype = self._stored.dtype
        return np.dtype(np.float32) if dtype == BFLOAT16 else dtype

    def __repr__(self) -> str:
        rows = f" over {self.space.kind}s" if self.space is not None else ""
        return f"Var({self.dtype}{list(self.shape)}{rows})"


class Parameter(Operators):
    """A trainable array, the same on every rank.

    Attributes:
        value: The array; within ``version_scope`` that of the version in use, otherwise the newest.
        name: Path inside the model ("layers.0.weight"), given when the model is built.
        decay: Multiplier of the optimiser's weight decay; 0 or False for none.
        requires_grad: Whether it is trained; False, set before a trainer is made, makes it a
            constant for backward.
    """

    __slots__ = ("_newest", "decay", "name", "requires_grad")
    space = None

    @checked
    def __init__(self, value: Any, decay: float | bool = 1.0, name: str = ""):
        try:
            self._newest = np.asarray(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ArgumentError(
                f"Parameter: {shown(value)} is no array ({error}); give a NumPy array"
            ) from None
        if self._newest.dtype.kind not in "biuf":
            raise ArgumentError(
                f"Parameter: got values of type {self._newest.dtype}; give an array of numbers"
            )
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
    @checked
    def glorot(cls, *shape: int, decay: float | bool = 1.0) -> Parameter:
        """Uniform with variance 2 / (fan_in + fan_out); fan_in = shape[0], fan_out = the product of
        the other axes.
        """
        return cls(init.glorot(shape), decay)

    @classmethod
    @checked
    def he(cls, *shape: int, decay: float | bool = 1.0) -> Parameter:
        """Uniform with variance 2 / fan_in; fan_in = shape[0]. For layers followed by relu."""
        return cls(init.he(shape), decay)

    @classmethod
    @checked
    def normal(cls, *shape: int, std: float = 1.0, decay: float | bool = 1.0) -> Parameter:
        """Normal with mean 0."""
        return cls(init.normal(shape, std), decay)

    @classmethod
    @checked
    def zeros(cls, *shape: int, decay: float | bool = 1.0) -> Parameter:
        """All 0."""
        return cls(init.zeros(shape), decay)

    @classmethod
    @checked
    def ones(cls, *shape: int, decay: float | bool = 1.0) -> Parameter:
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
    """An entry of a tape: an operation, or a checkpointed segment."""

    outputs: list[Var]

    @property
    def parameters(self) -> list[Parameter]:
        """The parameters it reads, in an order that only the recorded operations determine."""

    def back(self, grads: Gradients) -> None:
        """Take the gradients of the outputs and add those of the inputs."""


@dataclass(slots=True)
class Node:
    """One recorded operation.

    Attributes:
        fresh: Whether nobody else reads the gradients that ``vjp`` returns, as those of products.
    """

    name: str
    inputs: list[Any]
    outputs: list[Var]
    vjp: Vjp
    fresh: bool = False

    @property
    def parameters(self) -> list[Parameter]:
        """The parameters it reads and into which gradients flow."""
        return [x for x in self.inputs if isinstance(x, Parameter) and x.needs_grad]

    def back(self, grads: Gradients) -> None:
        """Apply the gradient rules of the operation."""
        incoming = [grads.take(out) for out in self.outputs]
        # results that only this step held, and their gradients, are released as rules have read
        # them
        self.outputs = []
        if all(g is None for g in incoming):
            return
        for x, g in zip(self.inputs, self.vjp(incoming), strict=True):
            if g is not None and needs_grad(x):
                grads.add(x, g, self.name, self.fresh)


@dataclass(slots=True)
class Moment:
    """A place in the tape at which backward calls a function."""

    action: Callable[[], None]
    outputs: list[Var] = field(default_factory=list)
    parameters: list[Parameter] = field(default_factory=list)

    def back(self, grads: Gradients) -> None:
        """Call it."""
        self.action()


class Unrecorded:
    """``Var.needs_grad`` inside a checkpointed segment: true, but no operation is recorded.

    It raises after the segment has ended, whose outputs alone may be used then.
    """

    def __init__(self) -> None:
        self.ended = False

    def __bool__(self) -> bool:
        if self.ended:
            raise TapeError(
                "a value computed inside gt.recompute is used outside of it; return it from the"
                " function"
            )
        return True


class Tape:
    """One forward pass and what its backward pass needs.

    Args:
        record: False for inference: nothing is recorded.
        training: Whether dropout drops and batch statistics are used.
        seed, step: Keys of all random draws of this pass.
        all_sum: Sums an array over all workers; the identity on one.

    Attributes:
        dtype: The float type of the pass, in which quotients and float functions of integers are
            computed. A model that runs sets that of its graph.
        short: Whether operations round the wide node values that they read, see ``is_rounded``.
        large: Whether functions are fused however few rows there are, as those of many rows are: a
            dry run without rows then stores what a pass stores.
        changes: Updates of other state. They run when the ``with`` block ends; a caller that runs
            them later, in the order of steps, empties the list.
        read: Parameters read by the unrecorded operations of a checkpointed segment.
        number: Number of the pass in this process, shared by its segments; None without a pass.
    """

    _marks: bool | Unrecorded = True
    _whole = True

    def __init__(
        self,
        *,
        record: bool = True,
        training: bool = True,
        seed: int = 0,
        step: int = 0,
        all_sum: Callable[[np.ndarray], np.ndarray] | None = None,
    ):
        self.record = record
        self.training = training
        self.seed = seed
        self.step = step
        self.all_sum = all_sum or (lambda x: x)
        self.dtype = np.dtype(np.float64)
        self.short = False
        self.large = False
        self.nodes: list[Step] = []
        self.changes: list[Change] = []
        self.read: dict[Parameter, None] = {}
        self.number: int | None = next(_NUMBERS)
        self._draws = 0
        self._spent = False
        self._token: Any = None

    def __enter__(self) -> Tape:
        self._token = _ACTIVE.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _ACTIVE.reset(self._token)
        for update, values in self.changes if self._whole else ():
            update(*values)

    def random_key(self) -> int:
        """A fresh key for one random operation of this pass; the same on every rank."""
        self._draws += 1
        return key(self.seed, Purpose.DROPOUT, self.step, self._draws)

    def add(
        self,
        name: str,
        inputs: Sequence[Any],
        outputs: Sequence[Var],
        vjp: Vjp,
        call: Called = None,
    ) -> None:
        """Record an operation. ``vjp`` gets one gradient (or None) per output, returns one (or
        None) per input. It may empty the list that it is given.

        Raises:
            TapeError: An input was computed in another pass, which has a tape of its own.
        """
        number = self.number
        for x in inputs:
            # outside of any pass, results of earlier passes may be read
            if (
                isinstance(x, Var)
                and x.made_in != number
                and x.made_in is not None
                and number is not None
            ):
                raise TapeError(
                    f"{name} was given a value from an earlier pass; values are valid in one"
                    " forward pass only, so compute it in each, and keep only settings and"
                    " parameters on self"
                )
        for out in outputs:
            out.made_in = number
        learned = (
            [out for out in outputs if out.dtype.kind == "f"]
            # a deferred value knows whether gradients flowed into it when it was called
            if self.record and any(map(needs_grad, (*inputs, *outputs)))
            else []
        )
        if not learned:
            return
        for out in learned:
            out.needs_grad = self._marks
        fresh = call is not None and call[0].traits.contraction
        node = Node(name, list(inputs), list(outputs), vjp, fresh)
        if self._marks is True:
            self.nodes.append(node)
        else:
            self.read.update(dict.fromkeys(node.parameters))

    def at_this_point(self, action: Callable[[], None]) -> None:
        """Let backward call a function between what is recorded after and before this call."""
        if self.record and self._marks is True:
            self.nodes.append(Moment(action))

    @contextmanager
    def storing(self, short: bool) -> Iterator[None]:
        """Set ``short`` inside the block."""
        before = self.short
        self.short = short
        try:
            yield
        finally:
            self.short = before

    def part(self, marks: bool | Unrecorded) -> Tape:
        """A tape for a segment of this pass, which starts with the random numbers of this one.

        Args:
            marks: ``needs_grad`` of its values: True, or an ``Unrecorded`` if it is checkpointed.
        """
        part = copy(self)
        part.nodes = []
        part.changes = []
        part.read = {}
        part._marks = marks
        part._token = None
        part._whole = False
        return part

    def add_segment(self, step: Step, end: Tape) -> None:
        """Record a segment as one step, and continue with the random state of its tape, ``end``."""
        self._draws = end._draws
        self.changes += end.changes
        for out in step.outputs:
            if out.needs_grad is end._marks:
                out.needs_grad = self._marks
        if self._marks is not True:
            self.read.update(dict.fromkeys(step.parameters))
        elif any(needs_grad(out) for out in step.outputs):
            self.nodes.append(step)

    def backward(
        self,
        output: Var,
        seed: np.ndarray | None = None,
        final: Callable[[Parameter, Any], None] | None = None,
    ) -> Gradients:
        """Backpropagate from ``output``; returns the gradients of leaves and parameters.

        Steps are released as they are passed, so memory falls, and a tape can be used once.

        Args:
            final: Called with each parameter and its gradient (or None) as soon as no step is left
                that reads it, in an order that only the recorded operations determine.

        Raises:
            TapeError: It was called before, or nothing was recorded on the tape.
        """
        if self._spent:
            raise TapeError(
                "backward was already called on this tape; run the forward pass again first"
            )
        if not self.record:
            raise TapeError(
                "this tape was opened with record=False and recorded no operations; open it with"
                " record=True"
            )
        self._spent = True
        grads = Gradients()
        grads.add(
            output,
            np.ones_like(output.value) if seed is None else np.asarray(seed, output.value.dtype),
        )
        if final is None:
            self.backpropagate(grads)
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

    def backpropagate(self, grads: Gradients) -> None:
        """Backpropagate over all recorded steps."""
        while self.nodes:
            self.nodes.pop().back(grads)


_NUMBERS = count()
_ACTIVE: ContextVar[Tape] = ContextVar("graphtheta_tape")
_VERSION: ContextVar[Version | None] = ContextVar("graphtheta_version", default=None)
_FROZEN: ContextVar[frozenset[Parameter]] = ContextVar("graphtheta_frozen", default=frozenset())


def version_scope(version: Version) -> AbstractContextManager[None]:
    """Use the parameter values of ``version`` in this thread, whatever updates follow."""
    return value_scope(_VERSION, version)


def frozen_scope(parameters: frozenset[Parameter]) -> AbstractContextManager[None]:
    """No gradients flow into ``parameters`` in this thread."""
    return value_scope(_FROZEN, parameters)


def current() -> Tape:
    """The tape of the enclosing ``with Tape()``; outside of any, one for inference."""
    tape = _ACTIVE.get(None)
    if tape is None:
        tape = Tape(record=False, training=False)
        tape.number = None
    return tape


def needs_grad(x: Any) -> bool:
    """Whether gradients flow into x; False for arrays and numbers."""
    return bool(getattr(x, "needs_grad", False))


def is_rounded(x: Var) -> bool:
    """Whether operations of this pass round a value that they read: float32 rows of nodes, of
    ``WIDE`` numbers or more, in a model whose graph stores values as bfloat16.
    """
    return (
        x.space is not None
        and x.space.kind == "node"
        and current().short
        and is_wide(x.shape[1:], x.dtype)
        and not x.sparse
    )


def value_of(x: Any) -> Any:
    """The array behind a variable or parameter; anything else as it is."""
    return x.value if isinstance(x, (Var, Parameter)) else x


def space_of(x: Any) -> RowSpace | None:
    """The row space of a variable; None for everything else."""
    return x.space if isinstance(x, Var) else None
