"""Ways in which several ranks of ``equality.py`` get the numbers of one: features of other types
and from stores, and small graphs that are computed as large ones are.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np

import graphtheta as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.store.from_graph import write_store
from graphtheta.ops.autodiff import fusion, stored
from graphtheta.ops.parallel import buffers
from graphtheta.ops.rows import computed, products

# where features are, and their type; those of half of the jobs are as drawn
FEATURES = (
    *("drawn", "drawn", "drawn", "float32 in memory", "float16 in memory"),
    *("drawn in a store", "float32 in a store", "float16 in a store", "int8 in a store"),
)
# sizes from which graphs are large, and what small ones need to be: values are deferred, products
# are computed by tiles, all of them by several blocks of rows, and rows are read where they are
SIZES: tuple[tuple[Any, dict[str, int]], ...] = (
    (fusion, {"SMALLEST": 1}),
    (stored, {"WIDE": 1}),
    (computed, {"NEAR": 1, "BLOCK": 8}),
    (buffers, {"BLOCK": 64, "LEAST_BLOCK": 32}),
    (products, {"TILED_MULTIPLICATIONS": 1, "TILED_INNER": 1, "TILED_COLUMNS": 1, "_ROWS": 8}),
)
PAGE = mmap.PAGESIZE


def with_features(graph: Graph, features: str, size: int) -> Graph:
    """A graph with features of ``FEATURES``; the same numbers in memory on one rank.

    A graph in a store has all its columns there. Features that are not dense rows of one type keep
    their type.
    """
    kind, _, place = features.partition(" in ")
    dense = type(graph.x) is np.ndarray
    if dense and kind in ("float32", "float16") and (place == "memory" or kind == "float32"):
        graph = graph.replace(x=graph.x.astype(kind))
    if place != "a store":
        return graph
    kept = from_store(graph, kind if dense and kind in ("float16", "int8") else "stored")
    if size > 1:
        return kept
    return graph.replace(x=np.asarray(kept.x[:])) if dense else graph


def from_store(graph: Graph, features: str) -> Graph:
    """The graph as it is read from a store, whose files have no names any longer."""
    with TemporaryDirectory() as folder:
        write_store(graph, Path(folder, "graph.store"), SerialComm(), features)
        return gt.load(str(Path(folder, "graph.store")))


class Guarded:
    """A store of memory in place of ``buffers.Store``: arrays end where a page ends, and the
    process ends if it reads or writes behind.
    """

    def take(self, size: int) -> np.ndarray:
        """An array of ``size`` bytes."""
        if not size:
            return np.empty(0, np.uint8)
        room = -(-size // PAGE) * PAGE
        memory = np.frombuffer(mmap.mmap(-1, room + PAGE, flags=mmap.MAP_PRIVATE), np.uint8)
        # 0: neither reads nor writes
        if ctypes.CDLL(None).mprotect(ctypes.c_void_p(memory.ctypes.data + room), PAGE, 0):
            raise OSError("mprotect failed")
        return memory[room - size : room]

    def release(self) -> None:
        """Memory returns to the system with its array."""


def guarded() -> Any:
    """All arrays that the engine allocates are in guarded memory."""
    return patch.multiple(buffers, LARGE=1, _STORE=Guarded())


@contextmanager
def as_large(is_large: bool) -> Iterator[None]:
    """Small graphs are computed as large ones, in memory that is guarded."""
    with ExitStack() as stack:
        if is_large:
            stack.enter_context(guarded())
        for module, sizes in SIZES if is_large else ():
            stack.enter_context(patch.multiple(module, **sizes))
        yield
