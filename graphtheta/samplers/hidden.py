"""Edges that a sampler hides, and everything that looks at edges beside it.

A sampler by time hides the edges that are later than a target, in training and in evaluation. A
mask hides edges from training; evaluation reads all. What else of a job looks at edges stands in
``MECHANISMS`` with what it does about both, and is refused where it would see what is hidden.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from graphtheta.base.described import name_and_options
from graphtheta.engine.sampling.columns import ALWAYS
from graphtheta.engine.sampling.sampler import Timed
from graphtheta.errors import ConfigError, DataError
from graphtheta.graph.data.columns import unit_of
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.splits.nodes import labelled_nodes
from graphtheta.graph.splits.times import check_stated
from graphtheta.samplers.registry import SAMPLERS

REFUSED = "refused"


class Mechanism(NamedTuple):
    """Something that looks at edges beside the sampler of a job.

    Attributes:
        title: What it is, for the documentation.
        times: How it leaves out edges that are later than a target; ``REFUSED`` if it does not.
        mask: The same of edges that a mask hides from training.
        sees: What it sees where it is refused, for messages.
        remedy: What to do then.
    """

    title: str
    times: str
    mask: str
    sees: str = ""
    remedy: str = ""


MECHANISMS = {
    "precompute": Mechanism(
        title="totals of the first layer (`precompute`)",
        times=REFUSED,
        mask=REFUSED,
        sees="its totals are sums over all edges",
        remedy="drop --precompute",
    ),
    "structural_features": Mechanism(
        title="`structural_features`",
        times=REFUSED,
        mask=REFUSED,
        sees="they are computed from all edges",
        remedy="drop --structural-features, or give features of the time as columns",
    ),
    "degrees": Mechanism(
        title="degrees that a layer reads, as `gcn` does",
        times=REFUSED,
        mask=REFUSED,
        sees="degrees count all edges",
        remedy="choose a model without degrees, such as sage",
    ),
    "history": Mechanism(
        title="values of earlier batches (`history`)",
        times=REFUSED,
        mask="values come from batches that the sampler chose",
        sees="its values depend on the time of the target",
        remedy="drop --history",
    ),
    "keep_layers": Mechanism(
        title="layers kept for a graph that grows (`keep_layers`, `since`)",
        times=REFUSED,
        mask="values come from evaluation, which reads all edges",
        sees="layers are kept with all edges of the graph",
        remedy="use predict, or train with another sampler",
    ),
    "self_loops": Mechanism(
        "self loops that a job adds",
        "every node gets one, known at any time, with zeros in place of means",
        "every node gets one, which passes the mask, with zeros in place of means",
    ),
    "caches": Mechanism(
        "caches of features", "hold values of nodes only", "hold values of nodes only"
    ),
    "negatives": Mechanism(
        "negatives",
        "are no training link of any time; read no values of edges",
        "are no training link, also a hidden one; read no values of edges",
    ),
    "ranking": Mechanism(
        "answers left out of a ranking",
        "those of the same time only",
        "belong to evaluation, which reads all edges",
    ),
}


def table() -> list[str]:
    """``MECHANISMS`` as lines of a table in Markdown."""
    rows = [
        (
            "looks at edges beside the sampler",
            "edges later than a target",
            "edges hidden by a mask",
        ),
        ("---", "---", "---"),
        *(one[:3] for one in MECHANISMS.values()),
    ]
    return [f"| {' | '.join(row)} |" for row in rows]


class Hidden(NamedTuple):
    """The edges that the sampler of a job hides.

    Attributes:
        sampler: The sampler as the job describes it.
        timed: Whether edges are hidden from earlier targets.
        time, mask, weight: Edge columns that decide which edges may be chosen; empty for none.
        target_time: Node column of the times of targets; empty for none.
    """

    sampler: str
    timed: bool
    time: str
    target_time: str
    mask: str
    weight: str

    def of_loops(self, columns: Any) -> dict[str, Any]:
        """Values with which a self loop is not hidden, by edge column.

        Args:
            columns: Edge columns of the graph, [n_edges, ...] by name.
        """
        values = {self.weight: 1, self.mask: 1} | ({self.time: ALWAYS} if self.timed else {})
        return {
            name: value[columns[name].dtype.kind] if value is ALWAYS else value
            for name, value in values.items()
            if name in columns
        }


def hidden_by(job: Any) -> Hidden | None:
    """The edges that the sampler of a job hides; None if it hides none.

    Raises:
        ConfigError: There is no such sampler.
    """
    if job.strategy != "mini" or not job.fanout:
        return None
    name, written = name_and_options(job.sampler)
    sampler_class = SAMPLERS.find(name)
    names = {
        option: written.get(option, getattr(sampler_class, option, ""))
        for option in ("time", "target_time", "mask", "weight")
    }
    columns = {
        option: column if isinstance(column, str) else "" for option, column in names.items()
    }
    hidden = Hidden(sampler=job.sampler, timed=issubclass(sampler_class, Timed), **columns)
    return hidden if hidden.timed or hidden.mask else None


def check_times(graph: Graph, hidden: Hidden | None, of_nodes: bool) -> None:
    """Check that times which are compared can be: that all relations have them, and that edges and
    nodes have the same unit.

    Args:
        graph: The graph, before self loops are added.
        hidden: Edges that the sampler hides; None if it hides none.
        of_nodes: Whether targets are nodes.

    Raises:
        DataError: They cannot.
    """
    if hidden is None or not hidden.timed:
        return
    at = f"{graph.name}: sampler={hidden.sampler}"
    check_stated(graph, "edge", hidden.time, at)
    units = [
        unit_of(graph, group, name)
        for group, name in (("edge", hidden.time), ("node", hidden.target_time))
    ]
    if of_nodes:
        check_stated(
            graph=graph, group="node", column=hidden.target_time, at=at, rows=labelled_nodes(graph)
        )
        if all(units) and units[0] != units[1]:
            raise DataError(
                f"{at} compares times of edges in {units[0]} with times of nodes in {units[1]};"
                f" import both tables with one type of times, such as --types {hidden.time}:time"
            )


def why_refused(name: str, job: Any) -> str:
    """Why a job may not use a mechanism; empty if it may.

    Args:
        name: Key in ``MECHANISMS``.
        job: The job.
    """
    one = MECHANISMS[name]
    hidden = hidden_by(job)
    if hidden is None:
        return ""
    seen = [
        what
        for what, applies, does in (
            ("are later than a target", hidden.timed, one.times),
            (f"mask={hidden.mask} hides from training", bool(hidden.mask), one.mask),
        )
        if applies and does == REFUSED
    ]
    return (
        f"{one.sees}, also over those that {' and '.join(seen)} with sampler={hidden.sampler}"
        if seen
        else ""
    )


def refuse(name: str, job: Any, what: str = "") -> None:
    """Refuse a mechanism that would see hidden edges.

    Args:
        name: Key in ``MECHANISMS``.
        job: The job.
        what: How the job uses it, for the message; by default the key and its value.

    Raises:
        ConfigError: It would.
    """
    if why := why_refused(name, job):
        raise ConfigError(
            f"{what or f'{name}={job.as_text(name)}'}: {why}; {MECHANISMS[name].remedy}"
        )
