"""Features aggregated once: the total of a first layer that sums features over whole neighbourhoods
never changes.

``A x`` is computed by the same superstep that would compute it in every step, and stored as a
derived node column on top of those of the partition. The layer starts from this total: no step
runs its gather, forward or backward, and a mini-batch has one hop less. The results are equal up
to rounding, because only the order of the sum and the product with the weights changes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from graphtheta.errors import ColumnError, ConfigError, ShapeError, UserFunctionError

from ...ops.autodiff.tape import Tape
from ..partition.partition import Partition
from ..view.view import PRECOMPUTED, global_view
from .context import ActiveGraph
from .dry_run import probe
from .ingredients import Ingredients
from .layer import Model
from .settings import PassSettings, pass_scope, pass_settings
from .stages import Stages
from .superstep import total_of


@dataclass
class Saving:
    """What a precomputed total saves.

    Attributes:
        layer: Name of the layer.
        edges, width: Number of messages, over all workers, that steps do not sum, and their width.
        nbytes: Memory of the totals, over all workers.
        sampled: Whether the other layers sample their neighbourhoods.
    """

    layer: str
    edges: int
    width: int
    nbytes: int
    sampled: bool = False

    def __str__(self) -> str:
        hybrid = (
            "; it aggregates complete neighbourhoods, the other layers sampled ones"
            if self.sampled
            else ""
        )
        return (
            f"precomputed: {self.layer} aggregates {self.edges:,} messages of {self.width} numbers"
            f" once instead of in every step; the totals take {self.nbytes / 2**20:,.1f}"
            f" MiB{hybrid}"
        )


def precompute(model: Model, partition: Partition) -> tuple[Partition, PassSettings, Saving]:
    """Compute the total of the model's first layer, as a column on top of those of the partition.

    Returns:
        The partition with the total as a further column, which views of the model must use; the
        settings of the enclosing scope, changed so that the layer uses the total; and the saving.

    Raises:
        ConfigError: The first layer's messages depend on weights or random draws, it reads
            something else than the features, or the features are sparse.

    Collective: all ranks of the partition.
    """
    layer = _first(model, partition)
    name = type(layer).__name__
    if "x" in partition.node and partition.node.column("x").sparse:
        raise ConfigError(
            "precompute stores dense aggregated features, but the node features are sparse; drop"
            " precompute: multiplying sparse features by the weights first is cheaper"
        )
    settings = pass_settings()
    try:
        with pass_scope(replace(settings, precomputed=(layer, Ingredients(layer.direction)))):
            graph = ActiveGraph(global_view(partition, [layer.direction]))
            with Tape(training=True, all_sum=partition.halo_comm.all_sum):
                total, traced, columns = total_of(layer, graph)
    except (ColumnError, ShapeError, UserFunctionError) as error:
        raise ConfigError(
            f"precompute: {name} does not run on the node features alone ({error}); drop"
            " precompute, or use a first layer that does"
        ) from error
    if total.needs_grad or any(e.traits.random for e in traced.order):
        raise ConfigError(
            f"precompute: the messages of {name} depend on weights or on dropout; drop precompute,"
            " or use a first layer that aggregates features, such as gcn, sage or gin"
        )
    width = int(np.prod(total.shape[1:]))
    passes = 2 if layer.direction == "both" else 1
    saving = Saving(
        name, passes * partition.n_edges, width, partition.n_nodes * width * total.dtype.itemsize
    )
    settings = replace(
        settings,
        precomputed=(layer, Ingredients.of(layer.direction, traced, columns, partition.masters)),
    )
    return partition.overlay({PRECOMPUTED: total.value}, {}), settings, saving


def _first(model: Model, partition: Partition) -> Stages:
    """The first layer that runs."""
    steps = probe(model, partition).supersteps
    layers = [step.made_by for step in steps]
    first = layers[0] if layers else None
    if steps and steps[0].along is not None:
        raise ConfigError(
            f"precompute: {type(first).__name__} runs along one relation, and totals are those of"
            " all edges; drop precompute"
        )
    if first is None or first.sum is None:
        raise ConfigError(
            f"precompute: {type(model).__name__} has no layer that sums messages; drop precompute"
        )
    if sum(layer is first for layer in layers) > 1:
        raise ConfigError(
            f"precompute: {type(first).__name__} is run several times with the same weights; drop"
            " precompute"
        )
    return first
