"""Digests of the arrays of a graph and of a model, by name: CRC-32, which tells accidents apart,
not forgeries.

Arrays in memory are read whole, on all threads: checksums release the interpreter lock. Of arrays
in files, and of those that are computed from them when they are read, some rows are read, evenly
spread; a store also says itself what its files hold.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from graphtheta.base.lazy_array import LazyArray
from graphtheta.base.npy import in_files
from graphtheta.base.sparse import is_sparse
from graphtheta.engine.layer.module import Module
from graphtheta.engine.store.column import is_column
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.store.manifest import is_store, read_manifest
from graphtheta.ops.autodiff.tape import Parameter

Digests = dict[str, int]

# bytes that one thread reads at a time
PART = 1 << 24
# of an array in files: bytes that are read, and of each place
MOST_READ = 1 << 22
PLACE = 1 << 16
# behind the name of an array of which some rows are read
IN_FILES = " in files"
# behind the name of a field that is stored as several arrays, see ``Graph.named_arrays``
PART_OF_FORM = re.compile(r"^(\w+)_(type|of_\d+|data|indices|indptr)$")
# name of the digest of all that a store holds
STORE = "store"
# entries of ``meta`` that a run reads
META = (
    "node_types",
    "relations",
    "n_relations",
    "n_types",
    "class_names",
    "node_categories",
    "edge_categories",
)
# attributes of a model that are digested beside its arrays
PLAIN = (bool, int, float, complex, str, bytes, np.generic)


def graph_digests(graph: Graph, threads: int = 1) -> Digests:
    """Digests of all that a graph consists of, by field.

    Args:
        graph: The graph.
        threads: That may compute at the same time.
    """
    sizes = graph.n_nodes, graph.n_edges, graph.n_features, graph.n_classes, graph.multilabel
    digests = {"number of nodes, edges, features or classes": of_text(repr(sizes))}
    if graph.folder and is_store(graph.folder):
        columns = read_manifest(Path(graph.folder)).columns
        contents = sorted((c.group, c.name, c.dtype, c.shape, c.checksums) for c in columns)
        digests[STORE] = of_text(repr(contents))
    with ThreadPoolExecutor(max(threads, 1)) as pool:
        of_parts = {
            name + IN_FILES * _is_read_in_part(x): [pool.submit(part) for part in _parts(x, name)]
            for name, x in graph.named_arrays()
        }
        for name, parts in of_parts.items():
            digests[name] = zlib.crc32(np.array([part.result() for part in parts], np.uint32).data)
    digests |= {
        f"meta[{name!r}]": of_text(repr(graph.meta[name])) for name in META if name in graph.meta
    }
    return digests


def model_digests(model: Module) -> Digests:
    """Digests of the parameters of a model or layer, and of arrays, numbers and texts in its
    attributes, by path.
    """
    digests = {}
    for path, x in model.named_values():
        if isinstance(x, Parameter):
            digests[path] = of_array(x.value)
        elif isinstance(x, np.ndarray) and x.dtype.kind != "O":
            digests[path] = of_array(x)
        elif isinstance(x, PLAIN):
            digests[path] = of_text(repr(x))
    return digests


def of_text(text: str) -> int:
    """The digest of a text."""
    return zlib.crc32(text.encode(errors="surrogatepass"))


def of_array(x: np.ndarray) -> int:
    """The digest of type, shape and content of an array in memory."""
    return zlib.crc32(_bytes(x), of_text(f"{x.dtype.str}{x.shape}"))


def changed(now: Digests, then: Digests) -> list[str]:
    """Names of what differs in two graphs, or is in one of them; an array that was in a file and is
    no more is not compared.
    """
    fields = [{name.removesuffix(IN_FILES) for name in digests} for digests in (now, then)]
    names = now | then
    return [
        name
        for name in names
        if (name in now and name in then and now[name] != then[name])
        or name.removesuffix(IN_FILES) in (fields[0] ^ fields[1]) - {STORE}
    ]


def in_other_forms(now: Digests, then: Digests) -> list[str]:
    """Fields that two graphs have in other forms: as a matrix, sparse, or rows of the widths of
    types or relations.
    """
    forms = []
    for digests in (now, then):
        names = {name.removesuffix(IN_FILES) for name in digests}
        forms.append({name: PART_OF_FORM.sub(r"\1", name) for name in names})
    common = set(forms[0].values()) & set(forms[1].values())
    same = {field for name, field in forms[0].items() if name in forms[1]}
    return sorted(common - same)


def _is_read_in_part(x: Any) -> bool:
    return is_column(x) or isinstance(x, LazyArray) or in_files(x)


def _parts(x: Any, name: str) -> list[Callable[[], int]]:
    """Functions that each give the digest of a part of an array."""
    head = of_text(f"{x.dtype.str}{tuple(x.shape)}")
    # the width of sparse indices is SciPy's choice, not content
    dtype = np.dtype(np.int64) if name.endswith(("_indices", "_indptr")) else x.dtype
    row = max(x.dtype.itemsize * int(np.prod(x.shape[1:])), 1)
    if not _is_read_in_part(x):
        rows = max(PART // row, 1)
        bounds = [(a, min(a + rows, len(x))) for a in range(0, len(x), rows)]
        return [
            partial(_of_rows, x=x, begin=a, end=b, dtype=dtype, head=head) for a, b in bounds
        ] or [lambda: head]
    n = x.shape[0]
    rows = max(PLACE // row, 1)
    places = min(-(-n // rows), max(MOST_READ // (rows * row), 1))
    begins = np.linspace(0, max(n - rows, 0), places).astype(np.int64).tolist()
    if places * rows >= n:
        begins = range(0, n, rows)
    return [
        partial(_of_rows, x=x, begin=a, end=min(a + rows, n), dtype=dtype, head=head)
        for a in begins
    ]


def _of_rows(x: Any, begin: int, end: int, dtype: np.dtype, head: int) -> int:
    rows = x.read_begin(np.arange(begin, end)).end() if is_column(x) else x[begin:end]
    rows = rows.toarray() if is_sparse(rows) else np.asarray(rows)
    return zlib.crc32(_bytes(rows.astype(dtype, copy=False)), head)


def _bytes(x: np.ndarray) -> memoryview:
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8).data if x.size else memoryview(b"")
