"""The original Planetoid files: ``ind.NAME.x, tx, allx, y, ty, ally, graph`` (pickles) and ``ind.NAME.test.index``.

A pickle can run any code it names. Here it can name only what these files need: arrays, CSR matrices, dictionaries and
lists. Neither numpy nor scipy objects are built by the pickle: their states are kept as plain records, checked, and made
into arrays afterwards.

Source: https://github.com/kimiyoung/planetoid (layout), https://github.com/tkipf/gcn (order of the test nodes)
"""
from __future__ import annotations

import os
import pickle
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from graphtheta.errors import FormatError
from graphtheta.graph import Graph
from graphtheta.reader_npz import AGAIN, csr
from graphtheta.transform import first_of_each, pair_key

PICKLED = ("x", "y", "tx", "ty", "allx", "ally", "graph")
N_VAL = 500
REMEDY = "only the original Planetoid pickles are read, since unpickling can run code; save other data as npz"


class Refused(pickle.UnpicklingError):
    """A pickle holds something that no Planetoid file holds."""


class Record:
    """The state of one pickled object, as stored and not yet believed."""

    def __init__(self, *args: Any) -> None:
        self.args = args
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class CsrRecord(Record):
    """A CSR matrix: its state is the dictionary of its parts."""


class ArrayRecord(Record):
    """An array: its state is (version, shape, dtype, Fortran order, bytes)."""

    def array(self) -> np.ndarray:
        """The array, if it is one of plain numbers."""
        _, shape, dtype, fortran, raw = self.state
        raw = raw.encode("latin1") if isinstance(raw, str) else raw
        # frombuffer and reshape refuse a shape that the bytes do not fill
        return np.frombuffer(raw, dtype.dtype()).reshape(shape, order="F" if fortran else "C")


class DtypeRecord(Record):
    """A dtype: its code is an argument, its byte order is in the state."""

    def dtype(self) -> np.dtype:
        """The dtype, if it is one of plain numbers."""
        dtype = np.dtype(str(self.args[0]))
        if dtype.kind not in "fiub":
            raise Refused(f"an array of dtype {dtype}")
        return dtype.newbyteorder(self.state[1]) if self.state else dtype


class Name:
    """What a name in a pickle means here: a function to call, or nothing but itself. A pickle cannot change it."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any] | None = None):
        self._call = call

    def __call__(self, *args: Any) -> Any:
        if self._call is None:
            raise Refused("an object made by calling its class")
        return self._call(*args)

    def __setstate__(self, state: Any) -> None:
        raise Refused("a name that is given a state")


def new_object(cls: Any, *_: Any) -> CsrRecord:
    """An object of protocol 0 and 1: here always a CSR matrix."""
    if cls is not CsrRecord:
        raise Refused("an object that is not a CSR matrix")
    return CsrRecord()


def encode(text: str, encoding: str) -> bytes:
    """Bytes written by Python 3 in an old protocol."""
    if encoding != "latin1":
        raise Refused(f"bytes in the encoding {encoding!r}")
    return text.encode("latin1")


ARRAY_MODULES = ("numpy.core.multiarray", "numpy._core.multiarray", "numpy.core._multiarray_umath", "numpy._core._multiarray_umath")
CSR_MODULES = ("scipy.sparse.csr", "scipy.sparse._csr")
BUILTINS = (("list", list), ("dict", dict), ("int", int), ("object", Name()))
ALLOWED: dict[tuple[str, str], Any] = {
    **{(module, "_reconstruct"): Name(lambda *_: ArrayRecord()) for module in ARRAY_MODULES},
    **{(module, name): CsrRecord for module in CSR_MODULES for name in ("csr_matrix", "csr_array")},
    ("numpy", "ndarray"): Name(),
    ("numpy", "dtype"): DtypeRecord,
    ("collections", "defaultdict"): defaultdict,
    ("_codecs", "encode"): Name(encode),
    **{(module, "bytes"): Name(lambda: b"") for module in ("__builtin__", "builtins")},
    **{(module, "_reconstructor"): Name(new_object) for module in ("copy_reg", "copyreg")},
    **{(module, name): kind for module in ("__builtin__", "builtins") for name, kind in BUILTINS},
}


class ArrayUnpickler(pickle.Unpickler):
    """An unpickler that knows the names in ``ALLOWED`` and no others."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return ALLOWED[module, name]
        except KeyError:
            raise Refused(f"the name {module}.{name}") from None


def read_pickle(path: Path) -> Any:
    """The contents of a pickle: an array, a CSR record, a dictionary or a list.

    Raises:
        FormatError: Missing, damaged, or the pickle names anything else.
    """
    if not path.is_file():
        raise FormatError(f"{path}: there is no such file; a Planetoid data set needs ind.NAME.{{{','.join(PICKLED)},test.index}} "
                          "in one folder")
    try:
        with path.open("rb") as stream:
            content = ArrayUnpickler(stream, encoding="latin1").load()
        return content.array() if isinstance(content, ArrayRecord) else content
    except Refused as error:
        raise FormatError(f"{path}: refused: it holds {error}; {REMEDY}") from error
    # damaged bytes make the unpickler raise nearly anything
    except Exception as error:
        raise FormatError(f"{path}: cannot be unpickled ({type(error).__name__}: {error}); {AGAIN}") from error


def read_matrix(path: Path) -> Any:
    """A CSR array from a pickle."""
    record = read_pickle(path)
    if not isinstance(record, CsrRecord):
        raise FormatError(f"{path}: holds a {type(record).__name__}, expected a CSR matrix; {AGAIN}")
    try:
        values, indices, indptr = (record.state[name].array() for name in ("data", "indices", "indptr"))
        height, width = map(int, record.state.get("_shape") or record.state["shape"])
    # a state can be anything at all
    except Exception as error:
        raise FormatError(f"{path}: the CSR matrix lacks data, indices, indptr or shape ({type(error).__name__}: {error}); "
                          f"{AGAIN}") from error
    kinds = values.dtype.kind in "fiu" and indices.dtype.kind in "iu" and indptr.dtype.kind in "iu"
    if not kinds or {values.ndim, indices.ndim, indptr.ndim} != {1}:
        raise FormatError(f"{path}: the CSR matrix has parts of the wrong dtype or shape; {AGAIN}")
    return csr(values, indices, indptr, (height, width), str(path))


def read_labels(path: Path, rows: int) -> np.ndarray:
    """One-hot labels, [rows, n_classes]."""
    labels = read_pickle(path)
    if not isinstance(labels, np.ndarray) or labels.ndim != 2 or labels.dtype.kind not in "fiub" or len(labels) != rows:
        got = f"{labels.dtype}{list(labels.shape)}" if isinstance(labels, np.ndarray) else type(labels).__name__
        raise FormatError(f"{path}: expected {rows} rows of one-hot labels, got {got}; {AGAIN}")
    return labels


def read_edges(path: Path, n_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """The adjacency lists as edges, both directions, without duplicates, sorted by source."""
    lists = read_pickle(path)
    if not isinstance(lists, dict) or not all(isinstance(v, list) for v in lists.values()):
        raise FormatError(f"{path}: expected a dictionary of lists of neighbours; {AGAIN}")
    degree = np.fromiter(map(len, lists.values()), np.int64, len(lists))
    try:
        src = np.repeat(np.fromiter(lists, np.int64, len(lists)), degree)
        dst = np.fromiter((v for neighbours in lists.values() for v in neighbours), np.int64, int(degree.sum()))
    except (TypeError, ValueError, OverflowError) as error:
        raise FormatError(f"{path}: nodes and neighbours must be integers ({error}); {AGAIN}") from error
    src, dst = np.concatenate((src, dst)), np.concatenate((dst, src))
    if len(src) and (src.min() < 0 or src.max() >= n_nodes):
        bad = int(src[(src < 0) | (src >= n_nodes)][0])
        raise FormatError(f"{path}: node {bad} is outside 0..{n_nodes - 1}, the nodes that allx and test.index name; {AGAIN}")
    keys = pair_key(src, dst, n_nodes)
    first = first_of_each(keys)
    first = first[np.argsort(keys[first])]
    return src[first], dst[first]


def read_test_index(path: Path, n_all: int, n_test: int) -> np.ndarray:
    """Rows of the test nodes, in the order of ``tx`` and ``ty``."""
    try:
        rows = np.array([int(line) for line in path.read_text().split()], np.int64)
    except (OSError, ValueError, OverflowError) as error:
        raise FormatError(f"{path}: expected one node number a line ({error}); {AGAIN}") from error
    if len(rows) != n_test or not n_test or len(np.unique(rows)) != n_test or rows.min() < n_all or rows.max() > n_all + 100 * n_test:
        raise FormatError(f"{path}: expected {n_test} different node numbers from {n_all} on, got {len(rows)}; {AGAIN}")
    return rows


def find_name(path: Path) -> tuple[Path, str]:
    """Folder and data set name of a folder holding one data set, or of one of its files."""
    if path.is_dir():
        names = sorted(file.name[4:-6] for file in path.glob("ind.*.graph"))
        if len(names) == 1:
            return path, names[0]
        if not names:
            raise FormatError(f"{path}: no Planetoid files (ind.NAME.graph and others) in this folder; name a folder that has them "
                              "or an npz file")
        raise FormatError(f"{path}: several data sets ({', '.join(names)}); name a file of the one you mean, as "
                          f"{path / f'ind.{names[0]}.graph'}")
    stem = path.name.removesuffix(".test.index") if path.name.endswith(".test.index") else path.name.rpartition(".")[0]
    return path.parent, stem.removeprefix("ind.")


def read_planetoid(path: str | os.PathLike[str]) -> Graph:
    """A graph from the original Planetoid files, with the public split.

    Test nodes that the files leave out (isolated ones of citeseer) get features 0 and no label, and are in no mask.

    Args:
        path: The folder, or any file of the data set.

    Returns:
        An undirected graph, both directions stored; self loops kept; features as stored.

    Raises:
        FormatError: A file is missing, damaged or refused.
        ShapeError, DataError: The arrays do not make a graph.
    """
    import scipy.sparse as sp

    folder, name = find_name(Path(path))
    file = {part: folder / f"ind.{name}.{part}" for part in (*PICKLED, "test.index")}
    known, unseen = read_matrix(file["allx"]), read_matrix(file["tx"])
    n_all, n_test = known.shape[0], unseen.shape[0]
    if known.shape[1] != unseen.shape[1]:
        raise FormatError(f"{file['tx']}: {unseen.shape[1]} features beside {known.shape[1]} in allx; {AGAIN}")
    labels = [read_labels(file["ally"], n_all), read_labels(file["ty"], n_test)]
    n_train = read_matrix(file["x"]).shape[0]
    read_labels(file["y"], n_train)
    if labels[0].shape[1] != labels[1].shape[1]:
        raise FormatError(f"{file['ty']}: {labels[1].shape[1]} classes beside {labels[0].shape[1]} in ally; {AGAIN}")
    rows = read_test_index(file["test.index"], n_all, n_test)
    n = int(rows.max()) + 1
    src, dst = read_edges(file["graph"], n)
    # the row of x that each stacked row of (allx, tx) goes to
    to = np.concatenate((np.arange(n_all), rows))
    place = sp.csr_array((np.ones(len(to), np.float32), (to, np.arange(len(to)))), shape=(n, len(to)))
    x = place @ sp.vstack((known, unseen), format="csr").astype(np.float32)
    one_hot = np.concatenate(labels)
    y = np.full(n, -1, np.int64)
    y[to] = np.where(one_hot.any(axis=1), one_hot.argmax(axis=1), -1)
    node = np.arange(n)
    test = np.zeros(n, bool)
    test[rows] = True
    return Graph((src, dst), n, x=x, y=y, n_classes=one_hot.shape[1], train=node < n_train,
                 val=(node >= n_train) & (node < min(n_train + N_VAL, n_all)), test=test & (y >= 0), name=name,
                 meta={"kind": "node classification, public Planetoid split"}, where=str(folder / f"ind.{name}"))
