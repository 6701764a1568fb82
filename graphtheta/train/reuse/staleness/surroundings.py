"""A worker's masters and mirrors as one partition without mirrors, for batches that send nothing in
their layers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from graphtheta.base.sparse import is_sparse
from graphtheta.engine.partition.blocks import edge_blocks
from graphtheta.engine.partition.exchange import NOTHING, Exchange, MovePlan, pointers
from graphtheta.engine.partition.located import locate
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.partition.relation import EDGE, Served, StoredRelation


def surroundings(p: Partition, wide: bool = True) -> Partition:
    """The masters of a worker, then its mirrors with copies of their columns, and the worker's
    edges between them.

    Sums over workers remain sums over all of them, but no row is moved.

    Args:
        p: A partition in which mirrors receive no messages, so that they have no edges to expand.
        wide: Whether to copy wide columns, such as features; the result has none if not.

    Collective: all ranks of the partition.
    """
    src, dst = p.edge_rows()
    n = len(p.gid)
    blocks, stored = edge_blocks(
        src=src,
        dst=dst,
        edges=np.arange(len(src)),
        row_of=np.arange(n, dtype=np.int32),
        n_masters=n,
        n_mirrors=0,
    )
    ptr = np.zeros(p.halo_comm.size + 1, np.int64)
    alone = Served(
        MovePlan(n_rows=n, rows=NOTHING, send_ptr=ptr, recv_ptr=ptr, anywhere=False), NOTHING
    )
    edges = StoredRelation(
        EDGE,
        p.edge_gid[stored],
        True,
        n_edges=p.n_edges,
        blocks=blocks,
        sources=alone,
        destinations=alone,
    )
    places = locate(p, p.gid[p.n_masters :])
    node = {
        name: _joined(p, places.plan, places.row, p.node.read(name))
        for name in p.node.names()
        if wide or name not in p.node.wide()
    }
    edge = {name: p.edge.read(name, stored) for name in p.edge.names()}
    return Partition(
        halo_comm=p.halo_comm,
        n_nodes=p.n_nodes,
        n_edges=p.n_edges,
        gid=p.gid,
        n_masters=n,
        directory=p.directory,
        relations={EDGE: edges},
        node=p.node.filled(n, node),
        edge=p.edge.filled(len(stored), edge),
        job_comm=p.job_comm,
        short=p.short,
    )


def _joined(p: Partition, plan: MovePlan, rows: np.ndarray, own: Any) -> Any:
    """A column of the masters, then of the mirrors, which have these halo rows of a plan."""
    comm = p.halo_comm
    if not is_sparse(own):
        return np.concatenate((own, Exchange(comm, plan).to_mirrors({"": own})[""][rows]))
    own = own.tocsr()
    sent = [own[plan.rows[a:b]] for a, b in zip(plan.send_ptr[:-1], plan.send_ptr[1:], strict=True)]
    # SciPy chooses the type of indices by the rows that it slices, which differ between workers
    index = np.int32 if own.shape[1] < 2**31 else np.int64
    counts, at, values = (
        np.concatenate(comm.all_to_all(parts))
        for parts in (
            [np.diff(x.indptr).astype(np.int32) for x in sent],
            [x.indices.astype(index) for x in sent],
            [x.data for x in sent],
        )
    )
    halo = scipy.sparse.csr_array(
        (values, at, pointers(counts.tolist())), (len(counts), own.shape[1])
    )
    return scipy.sparse.csr_array(scipy.sparse.vstack([own, halo[rows]], format="csr"))
