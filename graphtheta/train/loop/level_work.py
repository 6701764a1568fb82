"""Multiply-adds of the supersteps of a model, from the sizes of their levels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from graphtheta.base.costs import GATHERED, MULTIPLIED, SPARSE_MULTIPLIED
from graphtheta.engine.layer.dry_run import Probe, RowOperation
from graphtheta.engine.layer.traffic import Widths
from graphtheta.ops.autodiff.primitive import PRIMITIVES
from graphtheta.ops.edge.cost import operation_flops
from graphtheta.ops.functions.recurrence import Called


class Step(NamedTuple):
    """A superstep that runs over edges or pairs.

    Attributes:
        number: Its number.
        sums: Whether it sums messages along edges; otherwise it makes values of pairs.
        widths: Of its phases.
    """

    number: int
    sums: bool
    widths: list[Widths]


def steps_of(probe: Probe) -> Iterator[Step]:
    """The supersteps of a model that run over edges or pairs, in their order."""
    traffic = iter(probe.traffic)
    for number, step in enumerate(probe.supersteps):
        if step.program is not None and step.made_by is not None:
            widths = [next(traffic).widths for _ in step.program.phases]
            yield Step(number, step.made_by.sum is not None, widths)


def level_work(
    probe: Probe,
    superstep: int,
    widths: Iterable[Widths],
    itemsize: int,
    rows_in: float,
    rows_out: float,
    edges: float,
    density: float = 1.0,
) -> float:
    """Multiply-adds of the forward pass of a superstep.

    Args:
        probe: Dry run of the model.
        superstep: Its number.
        widths: Of its phases.
        itemsize: Bytes of a number.
        rows_in, rows_out, edges: Size of the level.
        density: Share of the numbers of the features that are stored.
    """
    gathered = sum(each.src + each.dst for each in widths) / itemsize
    return (
        row_work(probe, superstep, "transform", density) * rows_in
        + row_work(probe, superstep, "apply", density) * rows_out
        + GATHERED * edges * gathered
    )


def row_work(probe: Probe, superstep: int, stage: str, density: float = 1.0) -> float:
    """Multiply-adds of the node operations of a stage for each row, with arguments as above."""
    stored = min(1.0, SPARSE_MULTIPLIED / MULTIPLIED * density)
    return sum(
        _work(o) * (stored if reads_features(probe, o) else 1.0)
        for o in probe.operations
        if o.superstep == superstep and o.stage == stage and o.name != "gather"
    )


def reads_features(probe: Probe, o: RowOperation) -> bool:
    """Whether an operation is a product of the features: the first one, or one beside it."""
    first = next((each for each in probe.operations if is_product(each)), None)
    return (
        first is not None
        and is_product(o)
        and (o.superstep, o.inputs[0]) == (first.superstep, first.inputs[0])
    )


def _work(o: RowOperation) -> float:
    return operation_flops(PRIMITIVES.get(o.name), o.inputs, o.outputs[0]) / 2


def is_product(o: RowOperation | Called) -> bool:
    """Whether an operation multiplies matrices."""
    prim = PRIMITIVES.get(o.name)
    return prim is not None and prim.traits.work == "contraction"
