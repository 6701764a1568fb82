"""Readers: damaged, hostile and merely wrong files are refused with a word about file, field and
remedy.
"""

from __future__ import annotations

import json
import pickle
import struct
import zipfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from graphtheta.errors import DataError, FormatError, ShapeError
from graphtheta.graph.datasets.reader_npz import read_npz
from graphtheta.graph.datasets.reader_planetoid import read_planetoid

sp = pytest.importorskip("scipy.sparse")

GOOD = {
    "edge_index": np.array([[0, 1, 2], [1, 2, 0]], np.int32),
    "x": np.eye(3, dtype=np.float32),
    "y": np.array([0, 1, 0]),
    "train_mask": np.array([True, False, False]),
    "test_mask": np.array([False, True, True]),
}


def write(path: Path, **changes) -> Path:
    fields = {**GOOD, **changes}
    np.savez(path, **{k: v for k, v in fields.items() if v is not None})
    return path


def test_a_good_file(tmp_path):
    meta = json.dumps({"name": "x", "num_classes": 4, "source": "here"})
    more = {"edge_attr": np.ones((3, 2)), "orig_id": np.array([7, 8, 9]), "extra": np.zeros(1)}
    g = read_npz(write(tmp_path / "good.npz", meta=np.array(meta), **more))
    assert (g.n_nodes, g.n_edges, g.n_classes, g.name) == (3, 3, 4, "good")
    assert g.train.tolist() == [True, False, False] and g.val is None
    assert g.node_ids.tolist() == [7, 8, 9] and g.n_edge_features == 2
    assert g.meta["source"] == "here" and g.meta["unused_fields"] == ["extra"]


def test_sparse_parts_and_separate_ends(tmp_path):
    x = sp.random_array((3, 40), density=0.1, format="csr", rng=np.random.default_rng(0))
    parts = {
        "x_data": x.data,
        "x_indices": x.indices,
        "x_indptr": x.indptr,
        "x_shape": np.array(x.shape),
    }
    g = read_npz(
        write(
            tmp_path / "a.npz",
            x=None,
            edge_index=None,
            src=np.array([0, 1]),
            dst=np.array([1, 2]),
            **parts,
        )
    )
    assert abs(g.x - x.astype(np.float32)).max() == 0
    assert g.dst.tolist() == [1, 2]


CSR = {
    "x": None,
    "x_data": np.ones(2),
    "x_indices": np.array([0, 1]),
    "x_indptr": np.array([0, 1, 2, 2]),
    "x_shape": np.array([3, 9]),
}
BAD_FIELDS = {
    "no edges": ({"edge_index": None}, FormatError, ["'edge_index' is missing", "x, y"]),
    "objects": (
        {"y": np.array([0, "a", {}], object)},
        FormatError,
        ["'y'", "Python objects", "run code"],
    ),
    "edges of floats": (
        {"edge_index": np.zeros((2, 3))},
        FormatError,
        ["'edge_index'", "float64", "integers"],
    ),
    "edges of three rows": (
        {"edge_index": np.zeros((3, 2), int)},
        FormatError,
        ["'edge_index'", "[3, 2]", "transpose"],
    ),
    "edges in one axis": (
        {"edge_index": np.zeros(6, int)},
        FormatError,
        ["'edge_index'", "expected 2 axes"],
    ),
    "several types": (
        {"edge_index": None, "edge_index__a__b__c": np.zeros((2, 1), int)},
        FormatError,
        ["edge_index__a__b__c", "as dicts"],
    ),
    "text features": ({"x": np.array([["a"]] * 3)}, FormatError, ["'x'", "<U1", "floats"]),
    "csr part missing": ({**CSR, "x_indptr": None}, FormatError, ["'x_indptr' is missing"]),
    "csr index": ({**CSR, "x_indices": np.array([0, 99])}, FormatError, ["'x'", "99", "0..8"]),
    "csr negative": ({**CSR, "x_indices": np.array([-5, 1])}, FormatError, ["'x'", "-5"]),
    "csr bounds": ({**CSR, "x_indptr": np.array([0, 9, 1, 2])}, FormatError, ["'x'", "indptr"]),
    "csr shape": ({**CSR, "x_shape": np.array([30, 9])}, FormatError, ["'x'", "[30, 9]"]),
    "meta": ({"meta": np.array("{oops")}, FormatError, ["'meta'", "json.dumps"]),
    "meta deep": ({"meta": np.array("[" * 100_000)}, FormatError, ["'meta'"]),
    "meta number": ({"meta": np.array(7)}, FormatError, ["'meta'", "text"]),
    "ids out of range": (
        {"edge_index": np.array([[0], [9]])},
        DataError,
        ["edge 0", "destination 9"],
    ),
    "mask rows": (
        {"train_mask": np.ones(5, bool), "test_mask": None, "x": None},
        ShapeError,
        ["train", "3 rows"],
    ),
}


@pytest.mark.parametrize("case", BAD_FIELDS)
def test_bad_fields(tmp_path, case):
    changes, error, words = BAD_FIELDS[case]
    path = write(tmp_path / "bad.npz", **changes)
    with pytest.raises(error) as caught:
        read_npz(path)
    for word in [str(path), *words]:
        assert word in str(caught.value)


def member(shape: str, descr: str = "<f4", data: bytes = b"") -> bytes:
    """A .npy member with a header of our choice."""
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (63 - (len(header) + 10) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


@pytest.mark.parametrize(
    "content",
    [
        member("(1000000000000, 8)"),
        member("(-4, 2)"),
        member("(3, 3)", data=b"\0" * 20),
        member("(3,", data=b"\0" * 12),
        b"\x93NUMPY\x09\x00",
        b"",
        b"not an array",
        member("(3, 3)", "O"),
        member("(2,)", "<x9"),
        member("(2,)", "V8", b"\0" * 16),
    ],
)
def test_lying_headers(tmp_path, content):
    path = tmp_path / "liar.npz"
    write(path, x=None)
    with zipfile.ZipFile(path, "a") as z:
        z.writestr("x.npy", content)
    with pytest.raises(FormatError, match=r"liar\.npz: field 'x'"):
        read_npz(path)


def test_damaged_files(tmp_path):
    path = write(tmp_path / "whole.npz")
    content = path.read_bytes()
    cases = {
        "empty": b"",
        "text": b"hello",
        "half": content[: len(content) // 2],
        "no end": content[:-10],
    }
    flipped = bytearray(content)
    flipped[content.index(GOOD["x"].tobytes()) + 8] ^= 0xFF
    cases["flipped"] = bytes(flipped)
    for name, damaged in cases.items():
        bad = tmp_path / f"{name}.npz"
        bad.write_bytes(damaged)
        with pytest.raises(FormatError, match=rf"{name}\.npz.*copy or download it again"):
            read_npz(bad)
    with pytest.raises(FormatError, match="the file does not exist"):
        read_npz(tmp_path / "missing.npz")


def test_random_damage_is_an_error_or_a_graph(tmp_path, rng):
    content = write(tmp_path / "whole.npz").read_bytes()
    for trial in range(200):
        damaged = bytearray(content)
        for at in rng.integers(0, len(damaged), 3):
            damaged[at] = rng.integers(256)
        path = tmp_path / f"{trial}.npz"
        path.write_bytes(bytes(damaged))
        try:
            assert read_npz(path).n_nodes >= 1
        except (FormatError, DataError, ShapeError) as error:
            assert path.name in str(error)


# 6 nodes with features before the test range, test nodes 6, 7 and 9; 8 is isolated and in no file
TEST_ROWS = [9, 6, 7]
LISTS = {0: [1, 2], 1: [0], 2: [0, 3, 3], 3: [2], 4: [4], 5: [6], 6: [5], 7: [9], 8: [], 9: [7]}


def planetoid(folder: Path, name: str = "toy", protocol: int = 2, **changes) -> Path:
    one_hot = np.eye(3)[[0, 1, 2, 0, 1, 2]]
    features = sp.csr_matrix(np.pad(np.eye(9, dtype=np.float32), ((0, 0), (0, 41))))
    contents = {
        "x": features[:3],
        "y": one_hot[:3],
        "allx": features[:6],
        "ally": one_hot,
        "tx": features[6:],
        "ty": np.eye(3)[[2, 0, 1]],
        "graph": defaultdict(list, LISTS),
    } | changes
    for part, value in contents.items():
        data = value if isinstance(value, bytes) else pickle.dumps(value, protocol)
        (folder / f"ind.{name}.{part}").write_bytes(data)
    (folder / f"ind.{name}.test.index").write_text("\n".join(map(str, TEST_ROWS)) + "\n")
    return folder


@pytest.mark.parametrize("protocol", range(5))
def test_planetoid(tmp_path, protocol):
    g = read_planetoid(planetoid(tmp_path, protocol=protocol))
    assert (g.n_nodes, g.n_features, g.n_classes, g.name) == (10, 50, 3, "toy")
    assert g.y.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, -1, 2]
    column = [int(np.argmax(row)) if row.any() else -1 for row in g.x.toarray()]
    assert column == [0, 1, 2, 3, 4, 5, 7, 8, -1, 6]
    assert [np.flatnonzero(m).tolist() for m in (g.train, g.val, g.test)] == [
        [0, 1, 2],
        [3, 4, 5],
        [6, 7, 9],
    ]
    found = sorted(zip(g.src.tolist(), g.dst.tolist(), strict=True))
    assert found == sorted(
        [(0, 1), (1, 0), (0, 2), (2, 0), (2, 3), (3, 2), (4, 4), (5, 6), (6, 5), (7, 9), (9, 7)]
    )


def test_pickles_of_python_2(tmp_path):
    planetoid(tmp_path)
    for part in ("x", "allx", "tx", "y", "ally", "ty", "graph"):
        file = tmp_path / f"ind.toy.{part}"
        # the names of the original files
        old = (
            file.read_bytes()
            .replace(b"cscipy.sparse._csr\n", b"cscipy.sparse.csr\n")
            .replace(b"cnumpy._core.", b"cnumpy.core.")
        )
        assert any(
            name in old for name in (b"c__builtin__\n", b"cscipy.sparse.csr\n", b"cnumpy.core.")
        )
        file.write_bytes(old)
    assert read_planetoid(tmp_path).n_nodes == 10


class Call:
    """Pickles as a call."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


def hostile(folder: Path) -> dict[str, object]:
    mark = str(folder / "ran")
    return {
        "open": Call(open, mark, "w"),
        "eval": Call(eval, f"open({mark!r}, 'w')"),
        "system": b"cos\nsystem\n(S'touch " + mark.encode() + b"'\ntR.",
        "inside a list": {0: [Call(open, mark, "w")]},
        "getattr": Call(getattr, "text", "encode"),
        "dotted": b"\x80\x04\x8c\x05numpy\x94\x8c\x0bcore.system\x94\x93\x94.",
        "huge array": b"cnumpy\nndarray\n((I1000000000000\nttR.",
        "object array": np.array([Call(open, mark, "w")], object),
        "state of a name": b"c_codecs\nencode\n}S'__defaults__'\n(I1\ntsb.",
        "class state": b"cscipy.sparse.csr\ncsr_matrix\n}S'array'\nI1\nsb.",
        "class attributes": b"cscipy.sparse.csr\ncsr_matrix\n(N}S'state'\nI1\nstb.",
        "bytes made before they are read": b"\x80\x05\x96" + b"\xff" * 5 + b"\0\0\0.",
        "memo with a large number": b"]r\xff\xff\xff\xff0c_codecs\ndecode\n.",
        "key that takes a year to hash": b"(" + b"(t" + b"2\x86" * 90 + b"I1\nd.",
        "list copied by calls": b"]("
        + b"I1\n" * 999
        + b"eq\0"
        + b"cnumpy\ndtype\nh\0R" * 999
        + b".",
        "text encoded many times": b"S'"
        + b"a" * 999
        + b"'\nq\0"
        + b"c_codecs\nencode\n(h\0S'latin1'\ntR" * 99
        + b".",
        "parts that are no arrays": b"cscipy.sparse.csr\ncsr_matrix\n)\x81}(S'data'\nI1\n"
        b"S'indices'\nI2\nS'indptr'\nI3\nS'shape'\n(I6\nI50\ntub.",
    }


@pytest.mark.parametrize("case", hostile(Path()))
@pytest.mark.parametrize("part", ["allx", "ty", "graph"])
def test_hostile_pickles_are_refused_and_run_nothing(tmp_path, case, part):
    planetoid(tmp_path, **{part: hostile(tmp_path)[case]})
    with pytest.raises(FormatError) as caught:
        read_planetoid(tmp_path)
    assert f"ind.toy.{part}" in str(caught.value)
    assert not (tmp_path / "ran").exists()


BAD_PARTS = {
    "not a pickle": ({"allx": b"hello"}, ["ind.toy.allx"]),
    "truncated": (
        {"ally": pickle.dumps(np.eye(3), 2)[:-9]},
        ["ind.toy.ally", "cannot be unpickled"],
    ),
    "array for matrix": ({"tx": np.eye(3)}, ["ind.toy.tx", "expected a CSR matrix"]),
    "list for labels": ({"ty": [1, 2, 3]}, ["ind.toy.ty", "list"]),
    "label rows": ({"ally": np.eye(3)}, ["ind.toy.ally", "expected 6 rows", "[3, 3]"]),
    "features differ": (
        {"tx": sp.csr_matrix((3, 7))},
        ["ind.toy.tx", "7 features, but allx has 50"],
    ),
    "classes differ": ({"ty": np.eye(3, 4)}, ["ind.toy.ty", "4 classes, but ally has 3"]),
    "graph is a list": ({"graph": [1]}, ["ind.toy.graph", "dictionary"]),
    "graph of text": ({"graph": {0: ["a"]}}, ["ind.toy.graph", "integers"]),
    "node out of range": ({"graph": {0: [99]}}, ["ind.toy.graph", "node 99", "0..9"]),
    "negative node": ({"graph": {0: [-1]}}, ["ind.toy.graph", "node -1"]),
}


@pytest.mark.parametrize("case", BAD_PARTS)
def test_bad_planetoid_files(tmp_path, case):
    changes, words = BAD_PARTS[case]
    with pytest.raises(FormatError) as caught:
        read_planetoid(planetoid(tmp_path, **changes))
    for word in words:
        assert word in str(caught.value)


def test_csr_parts_of_a_pickle_are_checked(tmp_path):
    bad = sp.csr_matrix(np.eye(6, 50, dtype=np.float32))
    bad.indices[2] = 10**6
    with pytest.raises(FormatError, match=r"ind\.toy\.allx.*1000000"):
        read_planetoid(planetoid(tmp_path, allx=bad))


@pytest.mark.parametrize("text", ["", "a\nb\nc", "6\n6\n7", "1\n6\n7", "6\n7\n99999999"])
def test_bad_test_index(tmp_path, text):
    planetoid(tmp_path)
    (tmp_path / "ind.toy.test.index").write_text(text)
    with pytest.raises(FormatError, match=r"test\.index"):
        read_planetoid(tmp_path)


def test_which_data_set(tmp_path):
    with pytest.raises(FormatError, match="no Planetoid files"):
        read_planetoid(tmp_path)
    planetoid(tmp_path)
    assert read_planetoid(tmp_path / "ind.toy.test.index").name == "toy"
    planetoid(tmp_path, "other")
    with pytest.raises(FormatError, match=r"other, toy.*ind\.other\.graph"):
        read_planetoid(tmp_path)
    (tmp_path / "ind.other.ty").unlink()
    with pytest.raises(FormatError, match=r"ind\.other\.ty: the file does not exist"):
        read_planetoid(tmp_path / "ind.other.x")
