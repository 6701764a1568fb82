"""Self loops of a job: added, dropped, or left alone as the model wants it."""

from __future__ import annotations

from typing import NamedTuple

from graphtheta.engine.layer.dry_run import probe
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.engine.partition.partition import Partition
from graphtheta.errors import DataError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.data.transform import add_self_loops, drop_self_loops
from graphtheta.graph.graph_level.whole_graphs import graph_ids
from graphtheta.samplers.hidden import Hidden
from graphtheta.tasks.kinds.kind import GraphInfo

# placeholder of added self loops in integer columns; it is no row of any embedding table
NO_CODE = -1


class Looped(NamedTuple):
    """A graph with the self loops of a job.

    Attributes:
        graph: The message-passing graph.
        info: Original ids of its nodes and edges.
        unknown: Edge columns without a value that models may read for the added self loops:
            integers, and what a sampler reads.
    """

    graph: Graph
    info: GraphInfo
    unknown: frozenset[str]


def with_loops(graph: Graph, loops: str, model: Model, hidden: Hidden | None = None) -> Looped:
    """Add or drop self loops.

    A sampler that hides edges never hides an added loop, which then carries nothing of other edges.
    Every node gets one, because whether it has another may be hidden.

    Args:
        graph: The graph.
        loops: "yes", "no", or "auto": added for layers that use them.
        model: Has the layers.
        hidden: Edges that the sampler hides; None if it hides none.
    """
    edges = None
    n_edges = graph.n_edges
    unknown = frozenset[str]()
    if loops == "yes" or (
        loops == "auto" and any(m.self_loops for m in model.modules() if isinstance(m, Layer))
    ):
        whole = frozenset(name for name, x in graph.edge_columns.items() if x.dtype.kind == "i")
        shown = {} if hidden is None else hidden.of_loops(graph.edge_columns)
        fill = "mean" if hidden is None else "zeros"
        graph = add_self_loops(
            graph, fill, dict.fromkeys(whole, NO_CODE) | shown, every=hidden is not None
        )
        unknown = whole | shown.keys() if graph.n_edges > n_edges else unknown
    elif loops == "no":
        graph, edges = drop_self_loops(graph)
        n_edges = graph.n_edges
    return Looped(graph, GraphInfo(graph.node_ids, n_edges, edges, whole=graph_ids(graph)), unknown)


def check_loops(model: Model, partition: Partition, unknown: frozenset[str]) -> None:
    """Check that the model reads no edge column that has no value for the added self loops.

    Raises:
        DataError: It reads such a column.
    """
    outputs: set[str] = set()
    for step in probe(model, partition).supersteps if unknown else ():
        phases = step.program.phases if step.program is not None else []
        for name in (
            n for phase in phases for n in phase.reads["edge"] if n in unknown and n not in outputs
        ):
            raise DataError(
                f"{step.layer} reads edge.{name}, a column without a value for the self loops that"
                f" the job adds; add them beforehand with graph.with_self_loops(columns={{{name!r}:"
                " VALUE}), or choose self_loops='no' (--self-loops no)"
            )
        outputs |= {n for phase in phases for n in phase.outputs}
