"""Stores as inputs of ``fuzz.py``: each has one file spoilt."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import fuzz_formats
import numpy as np
from fuzz_formats import JSON, Target, header, sound, values


@cache
def store_files() -> dict[str, bytes]:
    """The files of a store with ids of text, features as codes, and CSR edge attributes."""
    import scipy.sparse as sp

    import graphtheta as gt
    from graphtheta.engine.comm.serial import SerialComm
    from graphtheta.graph.store.from_graph import write_store

    attr = sp.csr_array(np.eye(8, 9, dtype=np.float32))
    graph = gt.Graph(
        np.arange(16).reshape(2, 8) % 6,
        6,
        x=np.arange(12.0).reshape(6, 2),
        y=np.arange(6) % 3,
        train=np.arange(6) < 3,
        edge_attr=attr,
        node_ids=np.array(["a", "ä", "日本", "", "b", "node"]),
        edge_columns={"kind": np.arange(8)},
    )
    with TemporaryDirectory() as folder:
        write_store(graph, Path(folder, "s"), SerialComm(), "int8")
        return {path.name: path.read_bytes() for path in Path(folder, "s").iterdir()}


def read_store_folder(folder: Path, _: str) -> None:
    """Read a store, and its features."""
    from graphtheta.graph.store.reader import read_store

    graph = read_store(folder)
    assert (
        graph.x is None
        or graph.x.read_begin(np.arange(graph.n_nodes)[::-1].copy()).end().shape == graph.x.shape
    )
    sound(graph)


def targets() -> dict[str, Target]:
    """All readers by name, with that of stores."""
    return {
        **fuzz_formats.targets(),
        "store": Target(store_files(), read_store_folder, (header, values, JSON, JSON), 64),
    }
