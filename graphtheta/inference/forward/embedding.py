"""Node embeddings: values of a layer inside a model, for all nodes of the graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphtheta.engine.layer.context import ActiveGraph
from graphtheta.engine.layer.dry_run import Probe
from graphtheta.engine.layer.layer import Model
from graphtheta.engine.layer.stages import Stages
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.strategy.strategy import whole
from graphtheta.engine.strategy.task import Seeds
from graphtheta.engine.view.scored_pairs import no_pairs
from graphtheta.errors import ConfigError
from graphtheta.graph.data.validation import Origin, as_array
from graphtheta.ops.autodiff.tape import Tape


def superstep_of(model: Model, probe: Probe, layer: int | str | Stages) -> int:
    """The number of a superstep among all that the model runs.

    Args:
        model: Holds the layer.
        probe: Of the model.
        layer: As ``Session.embed`` takes it.

    Raises:
        ConfigError: No such layer of the model returns values of nodes.
    """
    summing = probe.layer_numbers
    if isinstance(layer, int):
        if not -len(summing) <= layer < len(summing):
            raise ConfigError(
                f"embed: layer {layer} is out of range; {type(model).__name__} runs {len(summing)}"
                " layers that sum messages"
            )
        return summing[layer]
    wanted = dict(model.named_modules()).get(layer) if isinstance(layer, str) else layer
    runs = [i for i in summing if probe.supersteps[i].made_by is wanted]
    if not runs:
        paths = [
            path
            for path, module in model.named_modules()
            if any(probe.supersteps[i].made_by is module for i in summing)
        ]
        name = layer if isinstance(layer, str) else type(layer).__name__
        raise ConfigError(
            f"embed: {name!r} is not a layer of {type(model).__name__} that sums messages; choose"
            f" from {', '.join(paths)}"
        )
    return runs[-1]


def embedded(model: Model, partition: Partition, probe: Probe, superstep: int) -> np.ndarray:
    """The values of a superstep for this worker's masters, [n_masters, ...].

    Collective: all ranks of the partition.
    """
    # a decoder at the end of the model runs on zero pairs
    seeds = Seeds(np.ones(partition.n_masters, bool), no_pairs(partition))
    graph = ActiveGraph(whole(partition, probe.layers, seeds))
    graph.wanted = superstep
    with Tape(record=False, training=False, all_sum=partition.halo_comm.all_sum):
        model.run(graph)
    assert graph.wanted_result is not None
    return np.asarray(graph.wanted_result.value)


def asked_ids(ids: np.ndarray, nodes: Any, field: str = "nodes") -> np.ndarray:
    """The ids that are asked for, [m].

    Args:
        ids: Original ids of all nodes, [n_nodes].
        nodes: Original ids, or a mask [n_nodes] of bools.
        field: Names them in messages.

    Raises:
        ConfigError: A mask of another length, or no ids.
    """
    asked = as_array(nodes, Origin("", field))
    if asked.dtype != np.bool_:
        # texts of other libraries are objects
        asked = np.array(asked.tolist()) if asked.dtype == object else asked
        if asked.size and asked.dtype.kind not in "iuU":
            raise ConfigError(
                f"{field}: got values of type {asked.dtype}; give original ids, as predict returns"
                " them, or a mask"
            )
        return asked.reshape(-1)
    if asked.shape != ids.shape:
        raise ConfigError(
            f"a mask of shape {list(asked.shape)} chooses from {len(ids)} nodes; give a value for"
            " each node, or original ids"
        )
    return ids[asked]


def of_nodes(ids: np.ndarray, out: np.ndarray, nodes: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Values of some nodes, with their ids.

    Args:
        ids: Original ids of all nodes, [n_nodes].
        out: Values of all nodes, [n_nodes, ...].
        nodes: The ids that are wanted, in the order of the result; or a mask, see ``asked_ids``;
            None for all.

    Raises:
        ConfigError: There is no such node.
    """
    if nodes is None:
        return ids, out
    wanted = asked_ids(ids, nodes)
    order = np.argsort(ids, kind="stable")
    at = order[np.minimum(np.searchsorted(ids, wanted, sorter=order), len(ids) - 1)]
    unknown = wanted[ids[at] != wanted]
    if len(unknown):
        raise ConfigError(
            f"the graph has no node {unknown[0].item()!r}; give original ids, as predict returns"
            " them"
        )
    return wanted, out[at]
