"""The gather and the sums of a layer, with those of its staged accumulators put in their place.

A ``Pooling`` sums what its ``before`` makes of a message, so the traced gather returns that, and
the sums are those of the pooling. What an ``Ordered`` takes is a new edge value: the phase computes
it for each edge, and ``in_order`` takes it from there. Kernels name variables after sums and edge
values, so the names that are made here have two underscores, as none of users should.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from graphtheta.errors import ColumnError, UserFunctionError

from ...ops.autodiff.naming import naming
from ...ops.edge.aggregator import Accumulator, Aggregator, aggregators
from ...ops.edge.symbolic import message_and_outputs
from .module import refuse_shared
from .ordered import Ordered
from .staged import Pooling, Staged
from .stages import Stages


class Totals:
    """Several totals by name.

    Args:
        reader: The function that reads them, for messages.
        totals: By name.
    """

    def __init__(self, reader: str, totals: Mapping[str, Any]):
        self._reader = reader
        self._totals = totals

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in self._totals:
            raise ColumnError(
                f"{self._reader} reads total.{name}; its sum has several totals, so there is one"
                f" total for each: {', '.join(f'total.{n}' for n in self._totals)}"
            )
        return self._totals[name]


def message_of(name: str) -> str:
    """Name of the edge value that an ordered sum takes."""
    return f"{name}__message"


def order_of(name: str) -> str:
    """Name of the edge value that its edges are sorted by."""
    return f"{name}__order"


def part_of(name: str, part: str) -> str:
    """Name of a part of the total of an ordered sum."""
    return f"{name} {part}" if part else name


class Opened:
    """The gather and the sums of a layer.

    Attributes:
        accumulators: What the layer gives as ``sum``, by name of the total.
        sums: Aggregators by name of the total; None for a decoder.
        ordered: Sums in order by name of the total.

    Raises:
        ConfigError: There is no aggregator of a name that the layer gives.
        UserFunctionError: An accumulator with parameters is an attribute of the class of the layer.
    """

    def __init__(self, layer: Stages, owner: str):
        self._layer = layer
        self._owner = owner
        self.accumulators = aggregators(layer.sum)
        for a in self.accumulators.values() if "sum" not in vars(layer) else ():
            if isinstance(a, Staged):
                refuse_shared(layer, a)
        each = [pair for name, a in self.accumulators.items() for pair in _inside(name, a)]
        self.ordered = {name: a for name, a in each if isinstance(a, Ordered)}
        self.sums = (
            None
            if layer.sum is None
            else {name: a for name, a in each if isinstance(a, Aggregator)}
        )

    def gather(self, edge: Any) -> Any:
        """What the gather of the layer returns, with a message for each of ``sums``."""
        returned = self._layer.gather(edge)
        if not any(isinstance(a, Staged) for a in self.accumulators.values()):
            return returned
        messages, outputs = message_and_outputs(returned, self.accumulators, self._owner)
        each: dict[str, Any] = {}
        for name, a in self.accumulators.items():
            each |= self._messages(name, a, edge, messages[name])
        # the type of the first edge value is that of the program
        taken = {message_of(name): each.pop(name) for name in self.ordered}
        keys = {order_of(name): self._order(a, edge) for name, a in self.ordered.items()}
        sorted_by = {name: key for name, key in keys.items() if key is not None}
        return each, taken | sorted_by | outputs

    def total(self, node: Any, totals: Mapping[str, Any]) -> Any:
        """The total that apply receives, or several by name, from those of ``sums`` and of
        ``ordered``.
        """
        each = {n: _total(n, a, node, totals) for n, a in self.accumulators.items()}
        return each[""] if "" in each else Totals(f"apply of {self._owner}", each)

    def _messages(self, name: str, a: Accumulator, edge: Any, message: Any) -> dict[str, Any]:
        """The message of each sum inside an accumulator."""
        if not isinstance(a, Staged):
            return {name: message}
        owner = type(a).__name__
        with naming(f"before of {owner}"):
            before = a.before(edge, message)
        if isinstance(a, Pooling):
            inside = aggregators(a.sum)
            messages, _ = message_and_outputs((before, {}), inside, owner, "before")
            each: dict[str, Any] = {}
            for inner, b in inside.items():
                each |= self._messages(f"{name}__{inner}", b, edge, messages[inner])
            return each
        if getattr(before, "dtype", None) is None or before.dtype.kind != "f":
            raise UserFunctionError(
                f"before of {owner} returned {before!r}; expected one message of floats, so cast it"
                " with gt.cast"
            )
        return {name: before}

    def _order(self, a: Ordered, edge: Any) -> Any:
        """What edges are sorted by; None for their ids."""
        owner = type(a).__name__
        with naming(f"order of {owner}"):
            key = a.order(edge)
        if key is None or (key.shape[1:] == () and key.dtype.kind in "fiu"):
            return key
        raise UserFunctionError(
            f"order of {owner} returned {key!r}; edges are sorted by one number of each"
        )


def _inside(name: str, a: Accumulator) -> Iterator[tuple[str, Accumulator]]:
    """The sums that an accumulator is made of, by name."""
    if not isinstance(a, Pooling):
        yield name, a
        return
    for inner, b in aggregators(a.sum).items():
        yield from _inside(f"{name}__{inner}", b)


def _total(name: str, a: Accumulator, node: Any, totals: Mapping[str, Any]) -> Any:
    if not isinstance(a, Staged):
        return totals[name]
    if isinstance(a, Pooling):
        parts = {n: _total(f"{name}__{n}", b, node, totals) for n, b in aggregators(a.sum).items()}
        whole = parts.get("")
    else:
        parts = {
            n.removeprefix(f"{name} "): x for n, x in totals.items() if n.startswith(f"{name} ")
        }
        whole = totals.get(name)
    function = f"after of {type(a).__name__}"
    with naming(function):
        return a.after(node, Totals(function, parts) if whole is None else whole)
