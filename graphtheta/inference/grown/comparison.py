"""How a graph is compared with an earlier one: by fingerprints of its nodes, or by their degrees
alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from hashlib import blake2b

import numpy as np

from graphtheta.base.strict_json import to_json
from graphtheta.base.wording import did_you_mean
from graphtheta.engine.view.hop import Hop
from graphtheta.errors import ConfigError
from graphtheta.graph.data.typed import TYPE
from graphtheta.inference.forward.on_graph import ModelOnGraph
from graphtheta.inference.forward.program import program
from graphtheta.inference.grown.fingerprints import column_hashes, edge_hashes
from graphtheta.inference.grown.frontier import READ, Changes
from graphtheta.inference.grown.layer_files import EarlierValues
from graphtheta.run.checkpoints.tensors import checksum
from graphtheta.run.job.model_keys import ModelKeys
from graphtheta.tasks.evaluation.evaluate import NodeEvaluator

# names of arrays that are kept: hashes of nodes and of their edges, and degrees, by whether edges
# are out-edges
OWN = "own"
EDGES = {False: "in-edges", True: "out-edges"}
DEGREES = {False: "in_degree", True: "out_degree"}
COMPARISONS = ("values", "degrees")
# bits of the number of a node among those of its type
OF_TYPE = 48


def fingerprints(model: ModelOnGraph, values: bool = True) -> dict[str, np.ndarray]:
    """Fingerprints of the masters of this worker by name, [n_masters] each: the degrees and, with
    ``values``, hashes.

    Raises:
        ConfigError: Its outputs are not those of nodes, or depend on the order of edges; on all
            ranks together.

    Collective: all ranks.
    """
    if type(model.setup.evaluator) is not NodeEvaluator:
        raise ConfigError(
            "layers are kept of a task with outputs of nodes, evaluated without times; for another"
            " task, run it on the whole graph"
        )
    if in_order := [step.layer for step in model.probe.supersteps if step.ordered]:
        raise ConfigError(
            f"{in_order[0]} sums messages in the order of edges, which two graphs with equal edges"
            " may have in another one, so no values of layers are kept; run it on the whole graph"
        )
    p = model.partition
    layers = model.probe.layers
    by_name = {name: p.node.read(name) for name in DEGREES.values()}
    if not values:
        return by_name
    read = model.columns_read
    of_nodes, of_edges = (
        [name.partition(".")[2] for name in read if name.startswith(f"{kind}.")]
        for kind in ("node", "edge")
    )
    by_name[OWN] = column_hashes(p.node, of_nodes)
    ids = identity(model)
    return by_name | {
        EDGES[reverse]: edge_hashes(p, of_edges, ids, reverse) for reverse in directions_of(layers)
    }


def directions_of(layers: list[Hop]) -> list[bool]:
    """Whether layers read in-edges (False), and out-edges (True)."""
    return sorted({reverse for hop in layers for reverse in READ[hop.direction]})


def weights_hash(model: ModelOnGraph) -> str:
    """A hash of weights, running statistics and options of a model, and of its precision."""
    texts = {name: checksum(x) for name, x in sorted(model.model.state().items())}
    job = model.job
    options = {
        key: job.as_text(key) for key in (*ModelKeys.model_fields, "dtype", "values")
    } | job.extra_options
    steps = [(step.layer, step.direction) for step in model.probe.supersteps]
    return blake2b(to_json([texts, options, steps]).encode(), digest_size=16).hexdigest()


def program_hash(model: ModelOnGraph) -> str:
    """A hash of what a model computes, see ``graphtheta.inference.forward.program``."""
    listed = program(model.model, model.partition, model.probe.layers)
    return blake2b(to_json(listed).encode(), digest_size=16).hexdigest()


def check_comparison(model: ModelOnGraph, compare: str) -> None:
    """Check how nodes are compared.

    Raises:
        ConfigError: There is no such comparison, or it would miss changes.
    """
    if compare not in COMPARISONS:
        raise ConfigError(
            f"compare={compare!r} is unknown{did_you_mean(compare, COMPARISONS)}; choose from"
            f" {', '.join(COMPARISONS)}"
        )
    if compare == "degrees" and model.job.structural_features:
        raise ConfigError(
            "compare=degrees would miss changes of structural features, which depend on the whole"
            " graph; choose compare=values"
        )


def degrees_read_by(model: ModelOnGraph) -> set[str]:
    """The degrees that the model reads, at nodes or at their edges."""
    return {name.partition(".")[2] for name in model.columns_read} & set(DEGREES.values())


def changes_since(
    earlier: EarlierValues,
    now: dict[str, np.ndarray],
    degrees_read: set[str],
    directions: list[bool],
) -> Changes:
    """What differs from the earlier graph.

    Args:
        earlier: The earlier graph.
        now: Fingerprints; without hashes, edges differ where degrees do.
        degrees_read: Names of the degrees that are values of the node.
        directions: Whether layers read in-edges (False), and out-edges (True).
    """

    @cache
    def differs(name: str) -> np.ndarray:
        return earlier.differs(name, now[name])

    if OWN in now:
        return Changes(
            differs(OWN), {reverse: differs(name) for reverse, name in EDGES.items() if name in now}
        )
    values = ~earlier.present
    for name in degrees_read:
        values = values | differs(name)
    return Changes(values, {reverse: differs(DEGREES[reverse]) for reverse in directions})


def ranks_of(model: ModelOnGraph) -> np.ndarray:
    """Ranks of this worker's masters in ascending order of their numbers, [n_masters] int64."""
    p = model.partition
    if p.n_masters == p.n_nodes:
        return p.masters
    ranks = np.empty(p.n_masters, np.int64)
    ranks[np.argsort(p.masters)] = np.arange(p.n_masters)
    return ranks


def identity(model: ModelOnGraph) -> Callable[[np.ndarray], np.ndarray]:
    """Function from numbers of nodes to what identifies them in an earlier graph and in a grown
    one.

    These are original ids. A graph of several types without any numbers its nodes type after type,
    in any order of the types, so that nodes appended to one type change the numbers of later types;
    its nodes are identified by their type and their number in it.

    Collective: all ranks.
    """
    info = model.setup.info
    p = model.partition
    if info.node_ids is not None or TYPE not in p.node:
        return info.ids
    comm = p.halo_comm
    kind = p.node.read(TYPE).astype(np.int64)
    types = int(comm.all_max(np.array(kind.max(initial=0)))) + 1
    first = np.full(types, p.n_nodes)
    last = np.full(types, -1)
    count = np.bincount(kind, minlength=types)
    np.minimum.at(first, kind, p.masters)
    np.maximum.at(last, kind, p.masters)
    first, last, count = comm.all_min(first), comm.all_max(last), comm.all_sum(count)
    present = np.flatnonzero(count)
    if (last - first + 1 != count)[present].any():
        # the types are mixed, and nodes are appended behind all others
        return info.ids
    present = present[np.argsort(first[present])]
    starts = first[present]

    def of(nodes: np.ndarray) -> np.ndarray:
        at = np.searchsorted(starts, nodes, side="right") - 1
        return present[at] << OF_TYPE | nodes - starts[at]

    return of


def ids_of(model: ModelOnGraph) -> np.ndarray:
    """What identifies the masters of this worker; see ``identity``.

    Collective: all ranks.
    """
    return np.asarray(identity(model)(model.partition.masters))
