"""Files and settings users get wrong: one clear error that names file, field or row, and what to
do, on all workers together.
"""

from __future__ import annotations

import bz2
import gzip
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import (
    ConfigError,
    DataError,
    FormatError,
    GraphThetaError,
    MemoryLimitError,
    ShapeError,
)
from graphtheta.partitioners.communities import find_clusters

N, E = 10, 24
NODES = np.arange(N)
GOOD = {
    "edge_index": np.stack([np.arange(E) % N, np.arange(E) * 7 % N]),
    "x": np.ones((N, 4), np.float32),
    "y": NODES % 3,
    "train_mask": NODES < 4,
    "val_mask": NODES == 5,
    "test_mask": NODES > 6,
}
SPARSE = {
    "x": None,
    "x_data": np.ones(2),
    "x_indices": np.array([0, 1]),
    "x_indptr": np.minimum(np.arange(N + 1), 2),
    "x_shape": np.array([N, 9]),
}
CUT, ONE = slice(0, -40), np.float32(1).tobytes()
NO_ROWS = dict.fromkeys(("x", "y", "train_mask", "val_mask", "test_mask"))

# makes files in a folder, and does what fails
Case = tuple[Callable[[Path], Any], type[GraphThetaError], list[str]]


def fields(**changes: Any) -> Callable[[Path], Any]:
    """Load a graph file with some fields changed, or left out if None."""

    def attempt(folder: Path) -> gt.Graph:
        np.savez(
            folder / "my.npz",
            **{name: a for name, a in {**GOOD, **changes}.items() if a is not None},
        )
        return gt.load(folder / "my.npz")

    return attempt


def content(name: str, make: Callable[[bytes], bytes]) -> Callable[[Path], Any]:
    """Load a file of these bytes, made from those of a good graph file."""

    def attempt(folder: Path) -> gt.Graph:
        np.savez(folder / "good.npz", **GOOD)
        (folder / name).write_bytes(make((folder / "good.npz").read_bytes()))
        return gt.load(folder / name)

    return attempt


def zipped(data: bytes, how: int = zipfile.ZIP_STORED) -> Callable[[Path], Any]:
    """Load a graph file whose field x is these bytes."""

    def attempt(folder: Path) -> gt.Graph:
        np.savez(folder / "my.npz", **{k: v for k, v in GOOD.items() if k != "x"})
        with zipfile.ZipFile(folder / "my.npz", "a", how) as z:
            z.writestr("x.npy", data)
        return gt.load(folder / "my.npz")

    return attempt


def header(shape: str, dtype: str) -> bytes:
    """The beginning of a .npy file."""
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def planetoid(**changes: bytes | None) -> Callable[[Path], Any]:
    """Load a folder of Planetoid files with some changed."""

    def attempt(folder: Path) -> gt.Graph:
        import scipy.sparse as sp

        x = sp.csr_matrix(np.eye(9, 30, dtype=np.float32))
        y = np.eye(3)[np.arange(9) % 3]
        ring = {i: [i - 1] for i in range(1, 9)}
        parts = {
            "x": x[:3],
            "y": y[:3],
            "allx": x[:6],
            "ally": y[:6],
            "tx": x[6:],
            "ty": y[6:],
            "graph": ring,
        }
        data = (
            {part: pickle.dumps(value, 2) for part, value in parts.items()}
            | {"test_index": b"6\n7\n8\n"}
            | changes
        )
        for part, value in data.items():
            if value is not None:
                (folder / f"ind.toy.{part.replace('_', '.')}").write_bytes(value)
        return gt.load(folder)

    return attempt


def clusters(data: Any) -> Callable[[Path], Any]:
    """Read cluster numbers."""

    def attempt(folder: Path) -> np.ndarray:
        if isinstance(data, np.ndarray):
            np.save(folder / "c.npy", data)
        elif data is not None:
            (folder / "c.npy").write_bytes(data)
        return find_clusters(*GOOD["edge_index"], N, str(folder / "c.npy"))

    return attempt


def yaml(text: str | bytes) -> Callable[[Path], Any]:
    """Read a job file."""

    def attempt(folder: Path) -> gt.Job:
        (folder / "my.yaml").write_bytes(text.encode() if isinstance(text, str) else text)
        return gt.Job.from_yaml(folder / "my.yaml")

    return attempt


def key(**keys: Any) -> Callable[[Path], Any]:
    """Make a job."""
    return lambda folder: gt.Job(**keys)


def big(**keys: Any) -> Callable[[Path], Any]:
    """Train a model that does not fit."""
    graph = gt.Graph(GOOD["edge_index"], N, x=GOOD["x"], y=GOOD["y"], train=GOOD["train_mask"])
    return lambda folder: gt.Trainer("gcn", graph, **keys)


def ends(value: int, at: int = 3) -> np.ndarray:
    """The edges with one source changed."""
    found = GOOD["edge_index"].copy()
    found[0, at] = value
    return found


def nan_at(row: int) -> np.ndarray:
    x = GOOD["x"].copy()
    x[row, 1] = np.nan
    return x


# one list of 200 neighbours, for 201 nodes
REPEATS = b"}(" + b"K\x00](" + b"K\x01" * 200 + b"eq\x00" + b"K\x01h\x00" * 200 + b"u."
# each line holds the one before twice
LAUGHS = "a: &a [1,1]\n" + "".join(
    f"{b}: &{b} [*{a},*{a}]\n" for a, b in zip("abcdefg", "bcdefgh", strict=True)
)
AGAIN = "copy or download it again"
GRAPHS: dict[str, Case] = {
    "missing": (
        lambda folder: gt.load(folder / "my.npz"),
        FormatError,
        ["my.npz", "does not exist", "check the path"],
    ),
    "a download of nothing": (
        content("my.npz", lambda b: b""),
        FormatError,
        ["my.npz", "not a readable npz", AGAIN],
    ),
    "a download that stopped": (
        content("my.npz", lambda b: b[CUT]),
        FormatError,
        ["my.npz", AGAIN],
    ),
    "a web page instead": (
        content("my.npz", lambda b: b"<!DOCTYPE html><title>404</title>"),
        FormatError,
        ["my.npz", "numpy.savez"],
    ),
    "text instead": (
        content("my.npz", lambda b: b"src,dst\n0,1\n"),
        FormatError,
        ["my.npz", "numpy.savez"],
    ),
    "a table of edges": (
        content("my.csv.gz", lambda b: b"src,dst\n0,1\n"),
        FormatError,
        ["not a readable npz", "graphtheta import --edges", "my.csv.gz --to my.store"],
    ),
    "still packed by gzip": (
        content("my.npz", gzip.compress),
        FormatError,
        ["my.npz", "not a readable npz"],
    ),
    "still packed by bzip2": (
        content("my.npz", bz2.compress),
        FormatError,
        ["my.npz", "not a readable npz"],
    ),
    "npy called npz": (
        content("my.npz", lambda b: header("(2,)", "<i8") + bytes(16)),
        FormatError,
        ["my.npz", "numpy.savez"],
    ),
    "a bit that fell over": (
        content("my.npz", lambda b: b.replace(ONE, b"\0\0\x81\x3f", 1)),
        FormatError,
        ["'x'", AGAIN],
    ),
    "zip of another way": (
        zipped(header("(10,)", "<f4") + bytes(40), zipfile.ZIP_LZMA),
        FormatError,
        ["'x'", "numpy.savez_compressed"],
    ),
    "more declared than held": (
        zipped(header("(1000000000000, 8)", "<f4")),
        FormatError,
        ["'x'", "32000000000000 bytes", "holds 0", AGAIN],
    ),
    "a header without end": (
        zipped(b"\x93NUMPY\x02\x00\xff\xff\xff\x7f" + b" " * 9_000_000, zipfile.ZIP_DEFLATED),
        FormatError,
        ["'x'", AGAIN],
    ),
    "rows without values": (
        zipped(header("(1000000000, 0)", "<f4")),
        FormatError,
        ["'x'", "is empty", "leave it out"],
    ),
    "lists of unequal lengths": (
        fields(edge_attr=np.array([[1], [1, 2]], object)),
        FormatError,
        ["'edge_attr'", "Python objects", "plain number"],
    ),
    "no edges at all": (
        fields(edge_index=None),
        FormatError,
        ["'edge_index' is missing", "x, y, train_mask"],
    ),
    "a scipy matrix": (
        fields(**dict.fromkeys(GOOD), indices=NODES, indptr=NODES, data=NODES),
        FormatError,
        ["'edge_index'", "indptr"],
    ),
    "edges by row": (
        fields(edge_index=GOOD["edge_index"].T),
        FormatError,
        ["'edge_index'", "[24, 2]", "transpose"],
    ),
    "edges as floats": (
        fields(edge_index=GOOD["edge_index"] * 1.0),
        FormatError,
        ["'edge_index'", "float64", "integers"],
    ),
    "nodes counted from 1": (
        fields(edge_index=ends(N)),
        DataError,
        ["my.npz: edge_index: edge 3 has source 10", "0..9", "number them from 0"],
    ),
    "padding of -1": (fields(edge_index=ends(-1)), DataError, ["my.npz", "edge 3 has source -1"]),
    "ids of users": (
        fields(edge_index=ends(9_876_543_210_123), **NO_ROWS),
        DataError,
        ["9876543210124 nodes", "without gaps", "node_ids"],
    ),
    "several kinds of edges": (
        fields(edge_index=None, edge_index__a__b__c=GOOD["edge_index"]),
        FormatError,
        ["gt.Graph as dicts", "edge_columns.relation"],
    ),
    "a feature that is NaN": (
        fields(x=nan_at(7)),
        DataError,
        ["my.npz: x: node 7, column 1 is nan", "replace or drop"],
    ),
    "a feature beyond float32": (
        fields(x=np.full((N, 1), 1e300)),
        DataError,
        ["x: node 0, column 0 is 1e+300", "float32"],
    ),
    "features as text": (
        fields(x=np.full((N, 1), "1.5")),
        FormatError,
        ["'x'", "<U3", "convert it"],
    ),
    "features of other nodes": (fields(x=np.ones((N + 1, 4))), ShapeError, ["y", "11 rows"]),
    "features in three axes": (
        fields(x=np.ones((N, 2, 2))),
        ShapeError,
        ["x", "[10, 2, 2]", "one row of features"],
    ),
    "features of one number": (fields(x=np.float32(3), y=None), ShapeError, ["x", "[10, d]"]),
    "a part of sparse features": (
        fields(**{**SPARSE, "x_shape": None}),
        FormatError,
        ["'x_shape' is missing", "x_data, x_indices"],
    ),
    "sparse features of another width": (
        fields(**{**SPARSE, "x_shape": np.array([N, 1])}),
        FormatError,
        ["'x'", "0 to 1", "0..0"],
    ),
    "sparse features too wide": (
        fields(**{**SPARSE, "x_shape": np.array([N, 2**40])}),
        FormatError,
        ["'x'", "1099511627776 columns"],
    ),
    "labels as text": (fields(y=np.array(["cat"] * N)), FormatError, ["'y'", "<U3", "integers"]),
    "labels that are codes": (
        fields(y=NODES * 10**9),
        DataError,
        ["my.npz: y", "9000000001 classes for 10 nodes", "np.unique"],
    ),
    "labels of no column": (
        fields(edge_index=np.ones((2, 1), int), **{**NO_ROWS, "y": np.zeros((2, 0))}),
        ShapeError,
        ["y: expected [2, C]", "at least one column"],
    ),
    "labels beyond the stated classes": (
        fields(meta=np.array('{"num_classes": 2}')),
        DataError,
        ["node 2 has label 2", "0..1"],
    ),
    "classes stated as text": (
        fields(meta=np.array('{"num_classes": "three"}')),
        FormatError,
        ["my.npz", "num_classes = 'three'", "whole"],
    ),
    "nodes stated as a fraction": (
        fields(meta=np.array('{"num_nodes": 10.5}')),
        FormatError,
        ["my.npz", "num_nodes = 10.5"],
    ),
    "fewer nodes stated": (
        fields(meta=np.array('{"num_nodes": 4}')),
        DataError,
        ["my.npz", "outside 0..3"],
    ),
    "meta as a dictionary": (
        fields(meta=np.array({"a": 1})),
        FormatError,
        ["'meta'", "Python objects"],
    ),
    "meta that is no JSON": (
        fields(meta=np.array("{'a': 1}")),
        FormatError,
        ["'meta' is not JSON", "json.dumps"],
    ),
    "a mask of numbers": (
        fields(train_mask=np.array([0, 1])),
        DataError,
        ["my.npz: train", "bool mask", "mask[numbers] = True"],
    ),
    "a mask of other nodes": (
        fields(train_mask=np.ones(N - 1, bool)),
        ShapeError,
        ["train", "10 rows"],
    ),
    "masks of two and ten splits": (
        fields(train_mask=np.zeros((N, 10), bool), val_mask=np.zeros((N, 2), bool)),
        ShapeError,
        ["my.npz: val: 2 columns", "train has 10"],
    ),
    "masks that overlap": (fields(val_mask=NODES < 2), DataError, ["train and val", "node 0"]),
    "ids that are not unique": (
        fields(node_ids=NODES // 2),
        DataError,
        ["node_ids: id 0 belongs to 2 nodes", "unique"],
    ),
    "weights that are not finite": (
        fields(edge_weight=np.full(E, np.inf)),
        DataError,
        ["edge_weight: edge 0 is inf"],
    ),
    "attributes of other edges": (
        fields(edge_attr=np.ones((E + 1, 1))),
        ShapeError,
        ["edge_attr", "24 rows, one per edge"],
    ),
    "targets of other edges": (fields(edge_y=np.ones(3)), ShapeError, ["edge_y", "24 rows"]),
    "a folder without graphs": (
        lambda folder: gt.load(folder),
        FormatError,
        ["no Planetoid files", "npz"],
    ),
    "a Planetoid file too few": (
        planetoid(allx=None),
        FormatError,
        ["ind.toy.allx", "does not exist", "one folder"],
    ),
    "a Planetoid file cut": (
        planetoid(ally=pickle.dumps(np.eye(6, 3), 2)[:-9]),
        FormatError,
        ["ind.toy.ally", AGAIN],
    ),
    "a Planetoid file of code": (
        planetoid(graph=pickle.dumps(print)),
        FormatError,
        ["ind.toy.graph", "builtins.print", "run code", "npz"],
    ),
    "a Planetoid graph of another kind": (
        planetoid(graph=pickle.dumps([(0, 1)])),
        FormatError,
        ["ind.toy.graph", "dictionary of lists"],
    ),
    "a Planetoid test set of words": (
        planetoid(test_index=b"six\nseven\n"),
        FormatError,
        ["ind.toy.test.index", "node number a line"],
    ),
    "a Planetoid test set too short": (
        planetoid(test_index=b"6\n7\n"),
        FormatError,
        ["ind.toy.test.index", "expected 3", "got 2"],
    ),
    "a Planetoid list that repeats itself": (
        planetoid(graph=REPEATS),
        FormatError,
        ["ind.toy.graph", "40200 neighbours", "npz"],
    ),
}
OTHERS: dict[str, Case] = {
    "clusters: missing": (clusters(None), ConfigError, ["c.npy", "nor a file"]),
    "clusters: of other nodes": (
        clusters(NODES[:4]),
        FormatError,
        ["c.npy", "4 cluster numbers", "10 nodes"],
    ),
    "clusters: floats": (clusters(NODES * 1.0), FormatError, ["c.npy", "float64", "integers"]),
    "clusters: text": (clusters(b"0\n1\n"), FormatError, ["c.npy", AGAIN]),
    "clusters: objects": (
        clusters(header("(10,)", "|O") + bytes(80)),
        FormatError,
        ["c.npy", "Python objects"],
    ),
    "clusters: more declared than held": (
        clusters(header("(10000000000,)", "<i8")),
        FormatError,
        ["c.npy", "80000000000 bytes"],
    ),
    "job: tabs": (
        yaml("lr:\t0.1\n\tseed: 3\n"),
        FormatError,
        ["my.yaml", "in line 1, column 4", "'key: value'"],
    ),
    "job: no colon": (yaml("lr 0.1\n"), FormatError, ["my.yaml", "got a str"]),
    "job: a list": (yaml("- lr: 1\n"), FormatError, ["my.yaml", "got a list"]),
    "job: a key twice": (
        yaml("lr: 0.1\nseed: 1\nlr: 0.2\n"),
        FormatError,
        ["my.yaml", "'lr' is given twice", "line 3"],
    ),
    "job: aliases": (yaml("a: &a [1]\nb: *a\n"), FormatError, ["my.yaml", "anchors", "line 1"]),
    "job: aliases that explode": (yaml(LAUGHS), FormatError, ["anchors"]),
    "job: a Python object": (
        yaml("lr: !!python/object/apply:os.getcwd []\n"),
        FormatError,
        ["my.yaml", "python/object", "line 1"],
    ),
    "job: too deep": (yaml("lr: " + "[" * 5000), FormatError, ["my.yaml", "nested too deeply"]),
    "job: another large file": (
        yaml(b"#" * 100_000),
        FormatError,
        ["my.yaml", "larger than 64 KiB"],
    ),
    "job: no text": (
        yaml(b"\x93NUMPY\x01\x00"),
        FormatError,
        ["my.yaml", "cannot be read as a job"],
    ),
    "job: a folder": (
        lambda folder: gt.Job.from_yaml(folder),
        FormatError,
        ["directory", "cannot be read as a job"],
    ),
    "job: unknown key": (
        yaml("learning_rate: 1\n"),
        ConfigError,
        ["my.yaml", "'learning_rate'", "--help"],
    ),
    "job: a key almost right": (
        yaml("epoch: 3\n"),
        ConfigError,
        ["my.yaml", "did you mean 'epochs'"],
    ),
    "job: a value of another kind": (
        yaml("lr: fast\n"),
        ConfigError,
        ["my.yaml: lr: got 'fast', expected a number"],
    ),
    "job: a mapping for a value": (
        yaml("lr: {start: 1}\n"),
        ConfigError,
        ["my.yaml: lr", "a number"],
    ),
    "job: nothing for a value": (yaml("lr:\n"), ConfigError, ["my.yaml: lr: got None"]),
    "key: a decimal comma": (key(lr="0,01"), ConfigError, ["lr: got '0,01', expected a number"]),
    "key: half an epoch": (
        key(epochs="1.5"),
        ConfigError,
        ["epochs: got '1.5', expected a whole number"],
    ),
    "key: a negative rate": (key(lr=-1), ConfigError, ["lr: got -1", "more than 0"]),
    "key: everything dropped": (key(dropout=1), ConfigError, ["dropout: got 1", "less than 1"]),
    "key: a rate that is no number": (key(lr="nan"), ConfigError, ["lr: got 'nan'", "finite"]),
    "key: maybe": (
        key(recompute="maybe"),
        ConfigError,
        ["recompute: got 'maybe'", "true or false"],
    ),
    "key: fanout of nothing": (
        key(strategy="mini", fanout="0"),
        ConfigError,
        ["fanout: got '0'", "at least 1, or all"],
    ),
    "key: fanout in other digits": (
        key(strategy="mini", fanout="²"),
        ConfigError,
        ["fanout: got '²'", "at least 1, or all"],
    ),
    "key: fanout beyond reason": (
        key(strategy="mini", fanout=10**9),
        ConfigError,
        ["fanout", "separated by commas"],
    ),
    "key: too many layers": (
        key(layers=10**9),
        ConfigError,
        ["layers: got 1000000000", "at most 10000"],
    ),
    "key: too many negatives": (
        key(task="link", eval_negatives=10**12),
        ConfigError,
        ["eval_negatives", "at most 10000"],
    ),
    "key: beyond 32 bits": (
        key(hidden=10**30),
        ConfigError,
        ["hidden: got a number of 100 bits", "expected at most 64"],
    ),
    "key: wider than memory": (
        big(hidden=2**31 - 1),
        MemoryLimitError,
        ["do not fit into memory", "narrower layers"],
    ),
}
CASES = {**GRAPHS, **OTHERS}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_mistake_is_named_on_all_workers(case: Case, tmp_path: Path) -> None:
    attempt, kind, words = case

    def program(comm):
        own = tmp_path / str(comm.rank)
        own.mkdir()
        with pytest.raises(kind) as caught:
            attempt(own)
        return str(caught.value).replace(str(own), "")

    told = run_simulated(2, program)
    assert told[0] == told[1] and "\n" not in told[0] and len(told[0]) < 600
    assert [word for word in words if word not in told[0]] == [], told[0]


RUNS = {
    "metrics.jsonl": b'{"epoch": 1, "step": 1, "loss": 0.5}\n{"epoch": 2, "st',
    "result.json": b"",
    "profile.json": b"[]",
    "job.yaml": b"lr: 1\nlr: 2\n",
}


@pytest.mark.parametrize("name", RUNS)
def test_a_damaged_run_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    good = {
        "job.yaml": b"lr: 1\n",
        "metrics.jsonl": b'{"epoch": 1, "step": 1, "loss": 0.5}\n',
        "result.json": json.dumps({"best_epoch": 1, "seconds": 1}).encode(),
    }
    for file, data in {**good, name: RUNS[name]}.items():
        Path(file).write_bytes(data)
    assert main(["report", "."]) == 1
    err = capsys.readouterr().err
    assert name in err and err.count("\n") == 1 and "Traceback" not in err
