"""The registry of kinds of task."""

from __future__ import annotations

import inspect

from graphtheta.base.registry import Registry
from graphtheta.graph.data.graph import Graph
from graphtheta.tasks.kinds.edge import EdgeKind
from graphtheta.tasks.kinds.kind import TaskKind
from graphtheta.tasks.kinds.link import LinkKind
from graphtheta.tasks.kinds.node import NodeKind
from graphtheta.tasks.kinds.triple import TripleKind


def is_kind(x: object) -> bool:
    """Whether something is a kind of task that can be made."""
    return inspect.isclass(x) and issubclass(x, TaskKind) and not inspect.isabstract(x)


TASKS: Registry[type[TaskKind]] = Registry(
    "kind of task", is_kind, ("auto",), (NodeKind, LinkKind, TripleKind, EdgeKind)
)


def kind_for(name: str, graph: Graph) -> type[TaskKind]:
    """The kind of task of a job; with ``auto`` the kind added last that fits the graph.

    Raises:
        ConfigError: There is no kind of that name.
    """
    return (
        TASKS.find(name)
        if name != "auto"
        else next(kind for kind in reversed(list(TASKS.values())) if kind.fits(graph))
    )


def readers() -> dict[str, list[str]]:
    """For each key of a job that only some kinds of task read, their names."""
    names: dict[str, list[str]] = {}
    for kind in list(TASKS.values()):
        for key in kind.keys:
            names.setdefault(key, []).append(kind.name)
    return names
