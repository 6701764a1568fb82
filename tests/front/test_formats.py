"""What is no table, or a table in another form: one line that names what it is and the remedy; or
it is read as it is meant.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import sqlite3
import struct
import zipfile
from decimal import Decimal
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from entrances import PyG, write_stream

import graphtheta as gt
from graphtheta.errors import ConfigError, DataError, GraphThetaError
from graphtheta.importing.ingest import tables

TEXT = b"src,dst\na,b\nb,a\n"
EDGES = {"src": [1, 2, 3], "dst": [2, 3, 1]}


def zipped(**files):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as packed:
        for name, content in files.items():
            packed.writestr(name.replace("__", "/"), content)
    return data.getvalue()


def database():
    with sqlite3.connect(":memory:") as base:
        base.execute("create table e (src, dst)")
        return base.serialize() if hasattr(base, "serialize") else b"SQLite format 3\0"


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes([*out, n])


def bomb(rows=10**10, n=99_991):
    """A Parquet file of two kilobytes that declares many rows."""
    file = io.BytesIO()
    pq.write_table(
        pa.table({"src": np.zeros(n, int), "dst": np.zeros(n, int)}), file, store_schema=False
    )
    data = file.getvalue()
    size = struct.unpack("<I", data[-8:-4])[0]
    foot = data[-8 - size : -8].replace(varint(2 * n), varint(2 * rows))
    return data[: -8 - size] + foot + struct.pack("<I", len(foot)) + b"PAR1"


# name of a file, its bytes, and words of the error
FOREIGN = {
    "UTF-16": (
        "e.csv",
        TEXT.decode().encode("utf-16"),
        "text in UTF-16; convert it: iconv -f UTF-16 -t UTF-8",
    ),
    "UTF-16 without a mark": (
        "e.csv",
        TEXT.decode().encode("utf-16-be"),
        "UTF-16; convert it: iconv -f UTF-16BE",
    ),
    "UTF-32": (
        "e.csv",
        TEXT.decode().encode("utf-32"),
        "text in UTF-32; convert it: iconv -f UTF-32 -t UTF-8",
    ),
    "Latin-1": (
        "e.csv",
        "src,dst\né,b\n".encode("latin-1"),
        "column 'src': invalid UTF8 data\n.*iconv -f WINDOWS-1252",
    ),
    "xz": ("e.csv.xz", lzma.compress(TEXT), "packed by xz; unpack it: xz -dk .*e.csv.xz"),
    "zip": ("e.zip", zipped(e=TEXT), r"a zip archive of 1 files \(e\); unpack it: unzip .*e.zip"),
    "zip called CSV": ("e.csv", zipped(e=TEXT), "a zip archive"),
    "a damaged zip": (
        "e.zip",
        zipped(e=TEXT)[:-30],
        "a damaged zip archive; copy or download it again",
    ),
    "Excel": (
        "e.xlsx",
        zipped(xl__workbook=b""),
        r"an Excel workbook; convert it: python -c .*pandas.read_excel\('.*e.xlsx'\)",
    ),
    "Excel of before 2007": (
        "e.xls",
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500),
        "Excel .*read_excel",
    ),
    "PyTorch": (
        "g.pt",
        zipped(g__data=b"", **{"g__data.pkl": b""}),
        "a file of PyTorch; .*torch.load",
    ),
    "JSON": ("e.json", b'[\n {"src": 1, "dst": 2}]', "the file is JSON; convert it: .*read_json"),
    "lines of JSON": (
        "e.jsonl",
        b'{"src": 1}\n{"src": 2}\n',
        "lines of JSON; convert it: .*lines=True",
    ),
    "SQLite": ("e.db", database(), r"an SQLite database; give gt.Query\(sqlite3.connect"),
    "DuckDB": (
        "e.db",
        bytes(8) + b"DUCK" + bytes(99),
        r"a DuckDB database; give gt.Query\(duckdb.connect",
    ),
    "a pickle": (
        "e.pkl",
        pickle.dumps({"a": 1}),
        "a pickle; load it with the library that wrote it",
    ),
    "HDF5": ("e.h5", b"\x89HDF\r\n\x1a\n" + bytes(99), "an HDF5 file"),
    "NumPy": ("e.npy", b"\x93NUMPY\x01\x00" + bytes(99), "an array of NumPy"),
    "ORC": ("e.orc", b"ORC" + bytes(99), "an ORC file; .*pyarrow.orc.read_table"),
    "Avro": ("e.avro", b"Obj\x01" + bytes(99), "an Avro file"),
    "Feather 1": ("e.feather", b"FEA1" + bytes(99), "a Feather file of version 1; .*read_table"),
    "tar": (
        "e.tar",
        b"e.csv".ljust(257, b"\0") + b"ustar" + bytes(99),
        "a tar archive; unpack it: tar -xf",
    ),
    "tar in gzip": (
        "e.tgz",
        gzip.compress(b"e.csv".ljust(257, b"\0") + b"ustar" + bytes(99)),
        "a tar archive",
    ),
    "Parquet in gzip": (
        "e.parquet.gz",
        gzip.compress(b"PAR1" + bytes(99)),
        "a packed table of Parquet or Arrow; unpack it",
    ),
    "a web page": (
        "e.csv",
        b"\n<!DOCTYPE html>\n<html></html>",
        "a web page and no table; the download failed",
    ),
    "GraphML": ("e.graphml", b'<?xml version="1.0"?><graphml/>', "XML; .*networkx.read_graphml"),
    "PDF": ("e.pdf", b"%PDF-1.4 ...", "a PDF document"),
    "bytes": ("e.dat", bytes(range(256)) * 4, "no text and of no format that is known; export"),
    "old Mac": (
        "e.csv",
        TEXT.replace(b"\n", b"\r"),
        "a carriage return alone, as on old Macs; convert them: tr",
    ),
    "old Mac in gzip": ("e.csv.gz", gzip.compress(TEXT.replace(b"\n", b"\r")), "as on old Macs"),
    "Parquet cut off": ("e.parquet", bomb()[:-9], "cannot be read .* damaged or incomplete"),
    "a Parquet bomb": (
        "e.parquet",
        bomb(10**13),
        "10,000,000,000,000 rows are declared, which take 149011.6 GiB or more",
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_files_of_other_formats_are_named_with_the_remedy(name, tmp_path, capsys):
    file, data, words = FOREIGN[name]
    (tmp_path / file).write_bytes(data)
    with pytest.raises(GraphThetaError, match=words) as caught:
        gt.import_graph(tmp_path / file, to=tmp_path / "s")
    assert str(tmp_path / file) in str(caught.value) and not (tmp_path / "s").exists()
    assert "Traceback" not in capsys.readouterr().err


def written(write):
    file = io.BytesIO()
    write(pa.table({"src": ["a", "b"], "dst": ["b", "a"]}), file)
    return file.getvalue()


# the same edges in forms that names of files do not tell
FORMS = {
    "gzip called CSV": ("e.csv", gzip.compress(TEXT)),
    "bzip2 called CSV": ("e.csv", bz2.compress(TEXT)),
    "CSV called gzip": ("e.csv.gz", TEXT),
    "gzip of two parts": ("e.csv.gz", gzip.compress(TEXT[:12]) + gzip.compress(TEXT[12:])),
    "Parquet called CSV": ("e.csv", written(pq.write_table)),
    "Feather called Parquet": ("e.parquet", written(feather.write_feather)),
    "a stream called Feather": ("e.feather", written(write_stream)),
    "letters of Windows in a column that is not used": (
        "e.csv",
        "src,dst,é\na,b,é\nb,a,ü\n".encode("cp1252"),
    ),
    "a name of a column with a line break": ("e.csv", b'src,dst,"a\nb"\na,b,1\nb,a,2\n'),
}


@pytest.mark.parametrize("name", FORMS)
def test_files_are_what_their_bytes_say(name, tmp_path):
    file, data = FORMS[name]
    (tmp_path / file).write_bytes(data)
    graph = gt.load(gt.import_graph(tmp_path / file, to=tmp_path / "s"))
    assert (graph.original_ids.tolist(), graph.src.tolist(), graph.dst.tolist()) == (
        ["a", "b"],
        [0, 1],
        [1, 0],
    )


@pytest.mark.parametrize("form", ["feather", "stream", "parquet"])
def test_damaged_files_are_errors_or_other_values(form, tmp_path):
    rng = np.random.default_rng(3)
    table = pa.table(
        {"src": np.arange(99), "dst": np.arange(99), "how": [str(i % 7) for i in range(99)]}
    )
    path = tmp_path / f"e.{'parquet' if form == 'parquet' else 'feather'}"
    {"feather": feather.write_feather, "stream": write_stream, "parquet": pq.write_table}[form](
        table, str(path)
    )
    good = path.read_bytes()
    refused = 0
    for i in range(60):
        data = bytearray(good)
        # half of them in the description of the columns at the end
        for at in rng.integers(0 if i % 2 else len(good) * 2 // 3, len(good), 3):
            data[at] ^= int(rng.integers(1, 256))
        path.write_bytes(bytes(data if i % 5 else data[: int(rng.integers(0, len(good)))]))
        try:
            gt.import_graph(path, to=tmp_path / f"s{i}", edge_columns="how")
        except GraphThetaError:
            refused += 1
    assert refused > 10


@pytest.mark.parametrize("rows", [10, 10**6])
def test_rows_that_are_declared_must_have_room(rows, tmp_path, monkeypatch):
    feather.write_feather(
        pa.table({"src": np.arange(rows), "dst": np.arange(rows)}), str(tmp_path / "e.feather")
    )
    monkeypatch.setattr(tables.shutil, "disk_usage", lambda folder: SimpleNamespace(free=10**6))
    if rows == 10:
        gt.import_graph(tmp_path / "e.feather", to=tmp_path / "s")
    else:
        with pytest.raises(
            GraphThetaError, match=r"1,000,000 rows are declared, which take 15\.3 MiB"
        ):
            gt.import_graph(tmp_path / "e.feather", to=tmp_path / "s")


def nodes(**columns):
    """A table of three nodes, and the import of its features or labels."""
    name = next(iter(columns))
    return (EDGES, {"id": [1, 2, 3], **columns}), {
        "label" if name == "y" else "split" if name == "part" else "features": name
    }


def pyg(**values):
    given = {
        "edge_index": np.array([[0, 1], [1, 2]]),
        "num_nodes": 3,
        "of_nodes": [],
        "of_edges": [],
        **values,
    }
    return (PyG(**given),), {}


def frame(columns, rows):
    return (pytest.importorskip("pandas").DataFrame(rows, columns=columns),), {}


# NumPy has it from version 2 on
STRINGS = getattr(np.dtypes, "StringDType", lambda: "U1")

# what is given, and the error; nothing if it is read
OBJECTS = {
    "whole doubles as ids": (lambda: (({"src": [1.0, 2.0], "dst": [2.0, 1.0]},), {}), ""),
    "doubles as ids": (
        lambda: (({"src": [1.5, 2.0], "dst": [2.0, 1.0]},), {}),
        "row 1: column 'src': '1.5' is not a whole number(.|\n)*--id-type text",
    ),
    "numbers beside texts": (
        lambda: (({"src": [1, "1", 2], "dst": ["a", "b", "c"]},), {}),
        "'src' has values of type object that no table has",
    ),
    "texts beside no value": (
        lambda: (({"src": ["a", float("nan"), "b"], "dst": ["a", "b", "c"]},), {}),
        "row 2: column 'src' has no id",
    ),
    "doubles that were rounded": (
        lambda: (({"src": [2.0**53, 1], "dst": [1, 2]},), {}),
        "9007199254740992 may stand for other",
    ),
    "float32 that was rounded": (
        lambda: (({"src": np.array([2**24, 1], np.float32), "dst": [1, 2]},), {}),
        "may stand for other",
    ),
    "no number as an id": (
        lambda: (({"src": [np.nan, 2.0], "dst": [2.0, 1.0]},), {}),
        "row 1: column 'src' has no id",
    ),
    "decimals as ids": (lambda: (({"src": [Decimal("1.00")], "dst": [Decimal(2)]},), {}), ""),
    "fractions of decimals": (
        lambda: (({"src": [Decimal("1.50")], "dst": [Decimal(2)]},), {}),
        "row 1: column 'src': '1.50' is not a whole number",
    ),
    "unsigned ids beyond int64": (
        lambda: ((pa.table({"src": pa.array([2**63], pa.uint64()), "dst": [1]}),), {}),
        "",
    ),
    "the same as numbers": (
        lambda: (
            (pa.table({"src": pa.array([2**63], pa.uint64()), "dst": [1]}),),
            {"id_type": "int"},
        ),
        f"row 1: column 'src': '{2**63}' is not a whole number of 64 bits",
    ),
    "the same as texts": (
        lambda: (
            (pa.table({"src": pa.array([2**63], pa.uint64()), "dst": [1]}),),
            {"id_type": "text"},
        ),
        "",
    ),
    "integers beyond int64": (lambda: (({"src": [2**70, 1], "dst": [1, 2**70]},), {}), ""),
    "names beyond int64": (lambda: ((nx.DiGraph([(2**70, 1)]),), {}), ""),
    "codes of runs": (
        lambda: (
            (pa.table({"src": pa.RunEndEncodedArray.from_arrays([2], [1]), "dst": [1, 2]}),),
            {},
        ),
        "",
    ),
    "texts of variable width of NumPy": (
        lambda: (
            ({"src": np.array(["a"], STRINGS()), "dst": np.array(["b"], STRINGS())},),
            {},
        ),
        "",
    ),
    "other byte order": (
        lambda: (({"src": np.array([1, 2], ">i8"), "dst": np.array([2, 1], ">i4")},), {}),
        "",
    ),
    "lists, the first one empty": (
        lambda: nodes(x=[[], [1.0, 2.0], [3.0, 4.0]]),
        "row 1: column 'x' has a list of 0 numbers, expected 2",
    ),
    "lists, the first one missing": (
        lambda: nodes(x=pa.array([None, [1.0], [2.0]])),
        "row 1: column 'x' has no list",
    ),
    "labels, the first one empty": (lambda: nodes(y=[[], [1], [0, 1]]), ""),
    "targets, the first one missing": (
        lambda: nodes(y=pa.array([None, [1.0, 2.0], [3.0, 4.0]])),
        "",
    ),
    "splits, the first one missing": (
        lambda: nodes(part=pa.array([None, [True], [False]])),
        "row 1: column 'part' has no list",
    ),
    "empty lists only": (
        lambda: nodes(x=pa.array([[], [], []], pa.list_(pa.float64()))),
        "column 'x': all lists are empty; give a list of as many numbers",
    ),
    "views of lists": (
        lambda: nodes(x=pa.array([[1.0], [2.0], [3.0]], pa.list_view(pa.float32()))),
        "",
    ),
    "mixed values that are not used": (lambda: (({**EDGES, "odd": [1, "a", None]},), {}), ""),
    "mixed values": (
        lambda: (({**EDGES, "odd": [1, "a", None]},), {"edge_columns": "odd"}),
        "the column 'odd' has values .* leave it out",
    ),
    "mixed attributes that are not used": (
        lambda: ((nx.DiGraph([(1, 2, {"a": 1}), (2, 1, {"a": [1]})]),), {}),
        "",
    ),
    "complex numbers": (
        lambda: nodes(x=np.ones((3, 2), complex)),
        "'x' has values of type complex128",
    ),
    "a complex matrix": (
        lambda: ((sp.csr_array(np.eye(3) * 1j),), {}),
        "'edge_weight' has values of type complex128",
    ),
    "sparse floats that float32 holds": (
        lambda: ((gt.Graph([[0], [1]], 3, x=sp.csr_array(np.eye(3, 8) * -(2.0**53))),), {}),
        "",
    ),
    "three axes": (lambda: nodes(x=np.ones((3, 2, 2))), r"'x' has shape \[3, 2, 2\]; .*reshape"),
    "no features": (lambda: nodes(x=np.ones((3, 0))), r"'x' has shape \[3, 0\]"),
    "a sparse column": (lambda: nodes(x=sp.csr_array(np.eye(3))), "'x' is a sparse matrix"),
    "columns of other lengths": (
        lambda: (({"src": [1, 2], "dst": [1]},), {}),
        "columns of different lengths, src 2, dst 1",
    ),
    "a name twice": (
        lambda: frame(["src", "dst", "src"], [[1, 2, 3]]),
        "2 columns have the name 'src'; rename",
    ),
    "a name twice that is not used": (lambda: frame(["src", "dst", "q", "q"], [[1, 2, 3, 4]]), ""),
    "a name twice in pyarrow": (
        lambda: ((pa.table([[1], [2], [1]], names=["src", "dst", "src"]),), {}),
        "2 columns have the name 'src'",
    ),
    "a split of links of PyG": (
        lambda: pyg(
            of_edges=["edge_label", "edge_label_index"],
            edge_label=np.ones(5),
            edge_label_index=np.ones((2, 5), int),
        ),
        "",
    ),
    "PyG in three axes": (
        lambda: pyg(of_nodes=["x"], x=np.ones((3, 2, 2))),
        r"'x' has shape \[3, 2, 2\]",
    ),
    "PyG without edges": (
        lambda: pyg(edge_index=None),
        r"without edge_index; give one, of shape \[2, 0\]",
    ),
    "a label of a graph of PyG": (
        lambda: pyg(y=np.array([1, 2])),
        r"y has shape \[2\], expected a row for each of the 3 nodes",
    ),
    "no edges and no nodes": (
        lambda: (({"src": [], "dst": []},), {}),
        "there are no rows; check the file, or give a table of the nodes",
    ),
    "no edges but nodes": (lambda: (({"src": [], "dst": []},), {"n_nodes": 3}), ""),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_are_read_or_refused_in_one_line(name, tmp_path):
    make, words = OBJECTS[name]
    given, options = make()
    if words:
        with pytest.raises(GraphThetaError, match=words):
            gt.import_graph(*given, to=tmp_path / "s", **options)
    else:
        gt.load(gt.import_graph(*given, to=tmp_path / "s", **options))


LONG = [5, 2**63 + 1, 2**64 - 1]


def as_file(write):
    """A form of a column that is a file of a table with ids 0, 1, 2."""

    def table(column, folder):
        write(pa.table({"id": [0, 1, 2], "long": column}), folder / "nodes")
        return folder / "nodes"

    return table


# tables of integers beyond 64 bits, by how they are given
LONG_FORMS = {
    "text": as_file(pa.csv.write_csv),
    "parquet": as_file(pq.write_table),
    "feather": as_file(feather.write_feather),
    "arrow": lambda column, _: pa.table({"id": [0, 1, 2], "long": column}),
    "decimals": lambda column, _: pa.table(
        {"id": [0, 1, 2], "long": column.cast(pa.decimal128(20, 0))}
    ),
    "list": lambda column, _: {"id": [0, 1, 2], "long": column.to_pylist()},
    "numpy": lambda column, _: {"id": [0, 1, 2], "long": column.to_numpy()},
    "big-endian": lambda column, _: {"id": [0, 1, 2], "long": column.to_numpy().astype(">u8")},
    "pandas": lambda column, _: pandas_of(column.to_numpy()),
    "objects of pandas": lambda column, _: pandas_of(column.to_numpy().astype(object)),
}


def pandas_of(values):
    return pytest.importorskip("pandas").DataFrame({"id": [0, 1, 2], "long": values})


@pytest.mark.parametrize("form", LONG_FORMS)
def test_integers_beyond_64_bits_are_exact_or_refused_everywhere(form, tmp_path):
    table = LONG_FORMS[form](pa.array(LONG, pa.uint64()), tmp_path)

    def graph(edges=(0, 1), **options):
        folder = tmp_path / next(iter(options))
        ends = {"src": [edges[0]], "dst": [edges[1]]}
        return gt.load(gt.import_graph(ends, table, to=folder, **options))

    names = list(map(str, LONG))
    assert graph(LONG[1:], id="long").original_ids.tolist() == names
    assert graph(one_hot="long").meta["one_hot"] == {"long": sorted(names)}
    told = "'long' has integers such as 1.84467e[+]19, which float32 would round; give codes"
    with pytest.raises(DataError, match=told):
        graph(features="long")
    for role in ("node_columns", "label"):
        with pytest.raises(DataError) as told:
            graph(**{role: "long"})
        said = str(told.value)
        assert "2 bad rows" in said and "--types COLUMN:text" in said
        assert f" {3 if form == 'text' else 2}: column 'long': '{LONG[1]}' is not" in said
    texts = graph(node_columns="long", types={"long": "text"})
    assert [texts.categories("node", "long")[k] for k in texts.node_columns["long"]] == names


def test_labels_that_are_decimals_or_dates(tmp_path):
    def label(values, name):
        table = pa.table({"id": [1, 2, 3], "y": values})
        return gt.load(gt.import_graph(EDGES, table, to=tmp_path / name, label="y"))

    decimals = pa.array([Decimal("1.50"), None, Decimal("-2.25")])
    assert label(decimals, "targets").label_kind == "regression"
    assert label(pa.array([Decimal(1), None, Decimal(0)]), "classes").y.tolist() == [1, -1, 0]
    with pytest.raises(ConfigError, match=r"the label y has type date32.*--types y:text"):
        label(pa.array([0, 1, 2], pa.date32()), "dates")


def test_ids_that_no_type_holds_stay_what_they_are(tmp_path):
    for i, edges in enumerate(
        ({"src": [2**70, 1], "dst": [1, 2**70]}, nx.DiGraph([(2**70, 1), (1, 2**70)]))
    ):
        graph = gt.load(gt.import_graph(edges, to=tmp_path / str(i)))
        assert sorted(graph.original_ids.tolist()) == ["1", str(2**70)]
    with pytest.raises(GraphThetaError, match="beyond int64; give the ids as texts"):
        gt.Graph([[0], [1]], 2, node_ids=np.array([2**63, 1], np.uint64))


def test_masks_are_those_that_their_names_say(tmp_path):
    graph = gt.Graph(
        [[0], [1]], 3, y=[0, 1, 0], train=[True, False, False], test=[False, True, False]
    )
    found = gt.load(gt.import_graph(graph, to=tmp_path / "s"), split="stored")
    assert found.test.tolist() == graph.test.tolist() and not np.any(found.val)


def test_a_batch_of_graphs_becomes_whole_graphs(tmp_path):
    batch = np.array([0, 0, 1])
    given = {
        "edge_index": np.array([[0], [1]]),
        "num_nodes": 3,
        "num_graphs": 2,
        "y": np.array([1, 0]),
        "batch": batch,
        "x": np.eye(3, 2),
    }
    found = gt.load(
        gt.import_graph(PyG(**given, of_nodes=["x", "batch"], of_edges=[]), to=tmp_path / "s")
    )
    wanted = gt.whole_graphs(gt.Graph([[0], [1]], 3, x=np.eye(3, 2)), [1, 0], graph_of=batch)
    assert (
        found.y.tolist() == wanted.y.tolist()
        and found.node_types == wanted.node_types
        and found.src.tolist() == wanted.src.tolist()
    )


@pytest.mark.second
def test_tensors_of_any_layout_are_features():
    torch = pytest.importorskip("torch")
    dense = torch.eye(3, 8)
    for x in (
        dense,
        dense.to(torch.bfloat16),
        dense.half(),
        dense.double().requires_grad_(),
        dense.to_sparse(),
        dense.to_sparse_csr(),
    ):
        found = gt.Graph(torch.tensor([[0], [1]]), 3, x=x)
        assert (
            found.has_sparse_features == ("strided" not in str(x.layout))
            and found.x.dtype == np.float32
        )
        assert np.array_equal(
            found.x.toarray() if found.has_sparse_features else found.x, np.eye(3, 8)
        )
    typed = gt.Graph(
        {("a", "to", "a"): torch.tensor([[0], [1]])},
        {"a": 3},
        x={"a": dense.to_sparse()},
        y={"a": torch.tensor([0, 1, 0])},
    )
    assert typed.y.tolist() == [0, 1, 0] and typed.n_features == 8
