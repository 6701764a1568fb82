"""The rows of learnable columns that a pass reads, and what becomes of their gradients.

Rows of a view that all workers compute together are where they are stored: copies at other workers
are made by the moves of the pass, and their gradients return with the moves of backward. A view
that a worker computes alone has nodes of others. Their rows are requested when the view is made,
sent when the update before its step is done, and their gradients are sent back after backward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from ...ops.autodiff.gradients import Gradients
from ...ops.autodiff.tape import Change, Var
from ..partition.exchange import pointers
from ..partition.partition import Partition
from ..partition.table import Route
from ..view.view import GraphView
from .fetch import REQUEST
from .scatter import Move
from .table import LearnedTable


class OwnRows:
    """Rows of a view that all workers compute together.

    Args:
        tables: The learnable columns.
        view: This worker's part of the view.
    """

    def __init__(self, tables: Sequence[LearnedTable], view: GraphView):
        self._tables = tables
        self._view = view
        self._read: dict[str, Var] = {}

    def read(self) -> dict[str, Var]:
        """The values by name of the column, [n, width] each, in the order of the rows of the view;
        called once, before the pass.
        """
        self._read = _variables(
            {t.name: t.values(self._view.rows) for t in self._tables}, self._view
        )
        return self._read

    def changes(self, gradients: Gradients) -> list[Change]:
        """The additions to gradients of tables at this worker; called once, after the pass."""
        return [
            (t.add, t.row_gradients(self._view.rows, gradients.of(self._read[t.name])))
            for t in self._tables
        ]


class FetchedRows:
    """Rows of views that workers compute alone, from the workers that own the nodes.

    Args:
        tables: The learnable columns.
        partition: This worker's part of the graph.
        view: The view of this worker.

    Collective: all ranks of the partition, here and in every method.
    """

    def __init__(self, tables: Sequence[LearnedTable], partition: Partition, view: GraphView):
        self._tables = tables
        self._view = view
        self._comm = partition.halo_comm
        owner, row = partition.directory.locate(view.space.gid)
        self._route = Route(owner, self._comm.size)
        with self._comm.ledger.stage("fetch"):
            # master rows that each worker reads
            self._asked = self._comm.all_to_all(self._route.parts(row.astype(REQUEST)))
        self._read: dict[str, Var] = {}

    def read(self) -> dict[str, Var]:
        """As ``OwnRows.read``."""
        asked = np.concatenate(self._asked)
        bounds = pointers([len(rows) for rows in self._asked])
        with self._comm.ledger.stage("fetch"):
            received = (
                Move(
                    self._comm,
                    {t.name: t.values(asked) for t in self._tables},
                    bounds,
                    self._route.bounds,
                )
                .end()
                .columns
            )
            order = self._route.positions()
        self._read = _variables(
            {name: x if order is None else x[order] for name, x in received.items()}, self._view
        )
        return self._read

    def changes(self, gradients: Gradients) -> list[Change]:
        """As ``OwnRows.changes``."""
        back = {
            t.name: t.row_gradients(self._view.rows, gradients.of(self._read[t.name]))[1]
            for t in self._tables
        }
        ordered = {name: g[self._route.order] for name, g in back.items()}
        bounds = pointers([len(rows) for rows in self._asked])
        with self._comm.ledger.stage("fetch"):
            received = Move(self._comm, ordered, self._route.bounds, bounds).end().columns
        bounded = list(zip(self._asked, pairwise(bounds), strict=True))
        return [
            (t.add, (rows, received[t.name][a:b])) for t in self._tables for rows, (a, b) in bounded
        ]


# the rows of a pass
LearnedRows = OwnRows | FetchedRows


def _variables(values: Mapping[str, np.ndarray], view: GraphView) -> dict[str, Var]:
    return {name: Var(x, view.space, True, f"node.{name}") for name, x in values.items()}
