"""Random graphs of PyTorch Geometric, read by ``gt.from_pyg`` and compared with their own tensors.

    python bench/fuzz_objects.py --graphs 5000 --seed 1

A graph is a ``Data`` or ``HeteroData`` with tensors of random types, strides and layouts: without
rows or columns, not contiguous, expanded, sparse, with gradients; masks of several splits; nodes
without edges, and duplicate edges. The graph that is read must have all values, or be refused with
an error of this project. Other errors and other values are faults, and make the exit code 1.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import seeds

import graphtheta as gt
from graphtheta.errors import GraphThetaError

Rng = np.random.Generator
TYPES = (
    *("float64", "float32", "float16", "bfloat16", "bool"),
    *("int8", "uint8", "int16", "int32", "int64"),
)
FIELDS = {f"{mask}_mask": mask for mask in ("train", "val", "test")}
FIELDS |= {name: name for name in ("x", "y", "edge_attr", "edge_weight")}
MATRICES = ("x", "edge_attr")
# names that are columns
NODE_COLUMNS, EDGE_COLUMNS = ("pos", "time", "_kind", "a b"), ("edge_time", "edge_rating")


def tensor(rng: Rng, n: int, width: int | None = None, dtype: str | None = None) -> Any:
    """Rows of any type and layout; of no axis but that of the rows for a width of None."""
    import torch

    name = dtype or str(rng.choice(TYPES))
    shape = (n,) if width is None else (n, width)
    if name == "bool":
        values = rng.random(shape) < 0.5
    elif name.endswith(("8", "16", "32", "64")) and "float" not in name:
        # beyond 2^53 neighbours are the same float64
        bits = min(np.iinfo(name).bits - 1, int(rng.choice([4, 24, 62])))
        values = rng.integers(-(2**bits) * (name != "uint8"), 2**bits, shape)
    else:
        values = 3 * rng.standard_normal(shape)
    x = torch.tensor(values).to(getattr(torch, name))
    layout = rng.integers(7)
    if layout == 0 and n:
        x = x[:1].expand(x.shape)
    elif layout == 1:
        x = torch.stack((x, x), -1)[..., 0]
    elif layout == 2:
        x = x.flip(0)
    elif layout == 3 and x.ndim == 2:
        x = x.t().contiguous().t()
    elif layout == 4 and x.is_floating_point():
        x = x.requires_grad_()
    elif layout == 5 and x.ndim == 2 and rng.random() < 0.3:
        x = x.to_sparse() if rng.random() < 0.5 else x.to_sparse_csr()
    return x


def values_of(x: Any) -> np.ndarray:
    """What a tensor holds, in a type of NumPy."""
    import torch

    x = x.detach() if x.layout == torch.strided else x.detach().to_dense()
    return (x.float() if x.dtype == torch.bfloat16 else x).numpy()


def drawn(rng: Rng, n: int, e: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tensors of nodes and of edges."""
    import torch

    def width(*widths: int) -> int | None:
        return None if rng.random() < 0.4 else int(rng.choice(widths))

    nodes = {"x": tensor(rng, n, int(rng.choice([0, 1, 3])))} if rng.random() < 0.7 else {}
    if rng.random() < 0.6:
        nodes["y"] = tensor(rng, n, width(1, 2))
    split = rng.permutation(n) % 4
    n_splits = width(1, 3)
    for number, mask in enumerate(("train_mask", "val_mask", "test_mask")):
        if rng.random() < 0.4:
            rows = torch.tensor(split == number)
            nodes[mask] = rows if n_splits is None else rows[:, None].expand(n, n_splits)
    if rng.random() < 0.5:
        nodes[str(rng.choice(NODE_COLUMNS))] = tensor(rng, n, width(1, 2))
    edges = {"edge_attr": tensor(rng, e, int(rng.choice([1, 2])))} if rng.random() < 0.5 else {}
    if rng.random() < 0.4:
        edges["edge_weight"] = tensor(rng, e)
    if rng.random() < 0.5:
        edges[str(rng.choice(EDGE_COLUMNS))] = tensor(rng, e, width(1, 2))
    return nodes, edges


def ends_of(rng: Rng, n_src: int, n_dst: int) -> np.ndarray:
    e = int(rng.choice([0, 1, 7, 60])) if n_src and n_dst else 0
    return np.stack((rng.integers(0, n_src or 1, e), rng.integers(0, n_dst or 1, e)))


def plain(rng: Rng) -> str:
    """Compare a ``Data``; returns the words in which it was refused."""
    import torch
    from torch_geometric.data import Data

    n = int(rng.choice([1, 2, 5, 9, 30]))
    ends = ends_of(rng, n, n)
    nodes, edges = drawn(rng, n, ends.shape[1])
    pair = torch.tensor(ends).to(torch.int32 if rng.random() < 0.3 else torch.int64)
    data = Data(edge_index=pair, num_nodes=n, **nodes, **edges)
    # PyG takes tensors of as many rows as edges for those of edges, unless they are of usual names
    nodes, edges = ({k: data[k] for k in of} for of in (data.node_attrs(), data.edge_attrs()))
    try:
        graph = gt.from_pyg(data)
    except GraphThetaError as error:
        return str(error)
    same("ends", np.stack((graph.src, graph.dst)), ends)
    compare(graph, nodes, slice(None))
    compare(graph, {k: x for k, x in edges.items() if k != "edge_index"}, slice(None))
    return ""


def typed(rng: Rng) -> str:
    """Compare a ``HeteroData``; returns the words in which it was refused."""
    import torch
    from torch_geometric.data import HeteroData

    data = HeteroData()
    counts = {
        kind: int(rng.choice([0, 1, 4, 7])) for kind in ("a", "b c", "d")[: rng.integers(1, 4)]
    }
    kinds = list(counts)
    relations = [
        (str(rng.choice(kinds)), f"to {i}", str(rng.choice(kinds)))
        for i in range(rng.integers(1, 4))
    ]
    ends = {name: ends_of(rng, counts[name[0]], counts[name[2]]) for name in relations}
    tensors: dict[Any, dict[str, Any]] = {kind: drawn(rng, n, 0)[0] for kind, n in counts.items()}
    for other in kinds[1:]:
        # targets are of one type
        tensors[other] = {k: x for k, x in tensors[other].items() if k not in FIELDS or k == "x"}
    tensors |= {name: drawn(rng, 1, pair.shape[1])[1] for name, pair in ends.items()}
    for kind, n in counts.items():
        data[kind].num_nodes = n
    for name, pair in ends.items():
        data[name].edge_index = torch.tensor(pair)
    for key, values in tensors.items():
        for name, x in values.items():
            data[key][name] = x
    try:
        graph = gt.from_pyg(data)
    except GraphThetaError as error:
        return str(error)
    first = dict(zip(kinds, np.cumsum([0, *counts.values()]).tolist(), strict=False))
    for kind, n in counts.items():
        compare(graph, tensors[kind], slice(first[kind], first[kind] + n))
    for code, (name, (src, dst)) in enumerate(ends.items()):
        rows = np.flatnonzero(graph.edge_columns["relation"] == code)
        same("sources", graph.src[rows], src + first[name[0]])
        same("destinations", graph.dst[rows], dst + first[name[2]])
        compare(graph, tensors[name], rows)
    return ""


def compare(graph: gt.Graph, tensors: Mapping[str, Any], rows: Any) -> None:
    """Compare tensors with the rows of a graph that have them."""
    for name, x in tensors.items():
        read = getattr(graph, FIELDS[name]) if name in FIELDS else None
        if read is None and not name.startswith("_"):
            read = {**graph.node_columns, **graph.edge_columns}[name]
        if read is None:
            continue
        dense = np.asarray(read.toarray() if hasattr(read, "toarray") else read)[rows]
        given = values_of(x)
        if name in MATRICES:
            # features of a type are some of all columns
            dense = dense[:, dense.any(axis=0)]
            given = given.astype(np.float32)
            given = given[:, given.any(axis=0)]
        same(name, dense, given)


def same(what: str, read: np.ndarray, given: np.ndarray) -> None:
    """Check that values are those given, but for the type float32 in which floats are stored."""
    read, given = (x[:, 0] if x.ndim == 2 and x.shape[1] == 1 else x for x in (read, given))
    if read.shape != given.shape:
        raise AssertionError(f"{what} has the shape {read.shape}, and was {given.shape}")
    if given.dtype.kind == "f" and read.dtype == np.float32:
        given = given.astype(np.float32)
    # no two integers are compared as floats
    different = [a != b for a, b in zip(read.flat, given.flat, strict=True) if a.item() != b.item()]
    if different:
        raise AssertionError(f"{len(different)} values of {what} differ")


def refused(seed: int) -> Any:
    """Whether the graph of a seed was refused."""
    return (typed if seed % 2 else plain)(np.random.default_rng(seed))


def search(numbers: range) -> seeds.Outcomes:
    """How many graphs were accepted and refused, and the faults."""
    return seeds.outcomes(numbers, refused)


if __name__ == "__main__":
    sys.exit(seeds.main(__doc__, "graphs", 2000, search))
