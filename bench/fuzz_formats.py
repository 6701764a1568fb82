"""Formats for ``fuzz.py``: valid files, ways to damage them, and readers with their checks."""

from __future__ import annotations

import io
import json
import pickle
import re
import tempfile
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import msgpack
import numpy as np

Spoil = Callable[[Random, bytes], bytes]
EDGES = (
    0,
    1,
    2,
    7,
    127,
    128,
    255,
    256,
    2**15,
    2**16 - 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**40,
    2**62,
    2**63 - 1,
    2**64 - 1,
)


@dataclass
class Target:
    """A reader.

    Attributes:
        files: Good files, by name; each input has one of them spoilt.
        read: Reads the folder, or the file that is spoilt.
        spoils: Ways to spoil a file of this format, beside those for all.
        multiple: Memory the reader may take, in sizes of what the file holds.
        named: Whether errors name the file.
    """

    files: dict[str, bytes]
    read: Callable[[Path, str], Any]
    spoils: tuple[Spoil, ...] = ()
    multiple: int = 128
    named: bool = True


# ---- spoiling bytes of any format


def flip(r: Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(r.choice((1, 1, 2, 8))):
        out[r.randrange(len(out))] ^= 1 << r.randrange(8)
    return bytes(out)


def cut(r: Random, data: bytes) -> bytes:
    return data[: r.randrange(len(data))]


def splice(r: Random, data: bytes) -> bytes:
    a, b, c = sorted(r.randrange(len(data)) for _ in range(3))
    return r.choice(
        (
            data[:a] + data[b:],
            data[:b] + data[a:c] + data[b:],
            data[:a] + data[b:c] + data[a:b] + data[c:],
        )
    )


def number(r: Random, data: bytes) -> bytes:
    n = r.choice((1, 2, 4, 8))
    order = r.choice(("little", "big"))
    at = r.randrange(max(1, len(data) - n))
    return data[:at] + (r.choice(EDGES) % 256**n).to_bytes(n, order) + data[at + n :]


def noise(r: Random, data: bytes) -> bytes:
    at = r.randrange(len(data))
    n = r.randrange(1, 40)
    return data[:at] + r.randbytes(n) + data[at + r.choice((0, n)) :]


ANY: tuple[Spoil, ...] = (flip, cut, splice, number, noise)


def tokens(words: tuple[str, ...]) -> Spoil:
    """Puts some of these words in, in front of words that are there or in their place."""

    def spoil(r: Random, data: bytes) -> bytes:
        for _ in range(r.choice((1, 1, 2, 5))):
            found = list(re.finditer(rb"[\w.+-]+|[^\w\s]", data))
            if found:
                old = r.choice(found)
                word = r.choice(words).encode()
                data = (
                    data[: old.start()]
                    + word * r.choice((1, 1, 1, 300))
                    + data[r.choice((old.start(), old.end())) :]
                )
        return data

    return spoil


def pieces(*words: bytes) -> Spoil:
    """Puts one of these in, over what is there or before it."""

    def spoil(r: Random, data: bytes) -> bytes:
        at = r.randrange(len(data))
        word = r.choice(words)
        return data[:at] + word + data[at + r.choice((0, 0, 1, len(word))) :]

    return spoil


# ---- arrays


DTYPES = (
    "<f4",
    "<f8",
    "<i8",
    "<i4",
    "|u1",
    "|b1",
    ">i8",
    "<u8",
    "<f2",
    "|O",
    "<U3",
    "<U0",
    "|V8",
    "<c8",
    "<M8[s]",
    "|S0",
    "<U9999999",
    "f4,f4",
    "<x4",
    "",
)
SHAPES = (
    "()",
    "(0,)",
    "(1000000000000,)",
    "(-1,)",
    "(2, 0)",
    "(1000000000, 0)",
    "(2, 1000000000)",
    "(4611686018427387904, 4)",
    "(3, 3)",
    "(None,)",
    "(1.5,)",
    "(True,)",
    "[3]",
    "(" + "1, " * 70 + ")",
    "(" * 90,
    "3",
    "(3L,)",
)


def npy_bytes(array: np.ndarray) -> bytes:
    """A .npy file."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, allow_pickle=False)
    return stream.getvalue()


def header(r: Random, data: bytes) -> bytes:
    """Another dtype, order, shape or length in the header of a .npy file."""
    old = data[:200]
    what = r.randrange(5)
    if what == 0:
        new = re.sub(rb"'descr': '[^']*'", f"'descr': '{r.choice(DTYPES)}'".encode(), old)
    elif what == 1:
        new = re.sub(rb"'shape': \([^)]*\)", f"'shape': {r.choice(SHAPES)}".encode(), old)
    elif what == 2:
        new = re.sub(rb"(True|False)", r.choice((b"True", b"2", b"'x'", b"-" * 3000 + b"1")), old)
    elif what == 3:
        new = old[:6] + bytes((r.randrange(4), r.randrange(2))) + old[8:]
    else:
        new = old[:8] + r.choice(EDGES).to_bytes(8, "little")[:2] + old[10:]
    end = new.find(b"\n")
    # mostly keep the stated length right, so that what it says is looked at
    if what < 3 and end > 10 and r.random() < 0.9:
        new = new[:8] + (min(end - 9, 65535)).to_bytes(2, "little") + new[10:]
    return new + data[200:]


def values(r: Random, data: bytes) -> bytes:
    """Other values in the data of a .npy file."""
    begin = data.find(b"\n") + 1
    return (
        data[:begin] + r.choice(ANY)(r, data[begin:] or b"\0")
        if r.random() < 0.3
        else data[:begin] + number(r, data[begin:] or b"\0")
    )


def array(r: Random, data: bytes) -> bytes:
    """An array of other values, kind or length."""
    n = r.choice((0, 1, 2, 3, 9, 10, 24))
    high = r.choice((1, 3, 10, 2**31, 2**62))
    shape = r.choice(((n,), (2, n), (n, 2), (), (n, 0)))
    made = np.array(
        [r.randrange(-high // 4, high) for _ in range(int(np.prod(shape)))], np.int64
    ).reshape(shape)
    return npy_bytes(
        made.astype(r.choice(("i8", "f4", "u1", "bool", "U5", "f2", ">i4", "u8")), casting="unsafe")
    )


def npz_bytes(r: Random | None = None, **arrays: np.ndarray) -> bytes:
    """A .npz file."""
    return zipped(r, {f"{name}.npy": npy_bytes(np.asarray(a)) for name, a in arrays.items()})


def zipped(r: Random | None, members: dict[str, bytes]) -> bytes:
    """A zip file; compressed in some way if there is a generator."""
    stream = io.BytesIO()
    ways = (
        zipfile.ZIP_STORED,
        zipfile.ZIP_DEFLATED,
        zipfile.ZIP_DEFLATED,
        zipfile.ZIP_BZIP2,
        zipfile.ZIP_LZMA,
    )
    with zipfile.ZipFile(
        stream,
        "w",
        zipfile.ZIP_STORED if r is None else r.choice(ways[:3] if r.random() < 0.9 else ways),
    ) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return stream.getvalue()


def member(r: Random, data: bytes) -> bytes:
    """A zip file, whole, with one member spoilt, dropped, renamed, or blown up."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = r.choice(list(members))
    what = r.randrange(10)
    if what == 0:
        del members[name]
    elif what == 1:
        members[r.choice(list(members))] = members.pop(name)
    elif what == 2:
        members[name] = b"\x93NUMPY\x02\x00" + b"\xff\xff\xff\x7f" + b" " * 2_000_000
    else:
        members[name] = r.choice((header, values, values, array))(r, members[name])
    return zipped(r, members)


def directory(r: Random, data: bytes) -> bytes:
    """Other sizes, ways of compression or places in the directory of a zip file."""
    entries = [m.start() for m in re.finditer(rb"PK\x01\x02", data)]
    at = r.choice(entries) + r.choice((8, 10, 16, 20, 24, 28, 30, 32, 42))
    at = data.rfind(b"PK\x05\x06") + r.randrange(20) if r.random() < 0.2 else at
    return data[:at] + (r.choice(EDGES) % 2**32).to_bytes(4, "little") + data[at + 4 :]


# ---- good files


def npz_files() -> dict[str, bytes]:
    """Graph files: everything; sparse features; text ids and compressed."""
    g = np.random.default_rng(0)
    n, e = 10, 24
    part = np.arange(n) % 3
    every = {
        "edge_index": g.integers(0, n, (2, e)),
        "x": g.standard_normal((n, 4)),
        "y": g.integers(0, 3, n),
        "train_mask": part == 0,
        "val_mask": part == 1,
        "test_mask": part == 2,
        "edge_attr": g.standard_normal((e, 2)),
        "edge_weight": np.ones(e),
        "meta": np.array(
            json.dumps({"num_classes": 3, "num_nodes": n, "source": ["a", {"b": 1.5}]})
        ),
    }
    sparse = {
        "src": g.integers(0, n, e),
        "dst": g.integers(0, n, e),
        "x_data": np.ones(n, np.float32),
        "x_indices": np.arange(n) % 7,
        "x_indptr": np.arange(n + 1),
        "x_shape": np.array([n, 50]),
        "y": g.random((n, 3)) > 0.5,
        "n_nodes": np.array(n),
    }
    names = {
        "edge_index": g.integers(0, 200, (2, 900), np.int32),
        "node_ids": np.array([f"node {i}" for i in range(200)]),
        "x": np.zeros((200, 40), np.uint8),
        "edge_y": g.standard_normal(900),
        "edge_train": np.arange(900) < 500,
        "edge_columns.type": g.integers(0, 9, 900).astype(np.uint8),
        "node_columns.place": g.standard_normal((200, 2)),
    }
    return {
        "every.npz": npz_bytes(**every),
        "sparse.npz": npz_bytes(**sparse),
        "names.npz": npz_bytes(Random(4), **names),
    }


def named_files() -> dict[str, bytes]:
    """Small files of the layouts that have builders of their own."""
    g = np.random.default_rng(0)
    n, e = 128, 300
    ends = g.integers(0, n, (2, e))
    meta = np.array("{}")
    degree = np.full(n, 2)
    degree[-3:] = 0
    columns = [
        g.integers(0, 5, n),
        g.integers(0, 3, n),
        *g.integers(0, 90, (3, n)),
        g.integers(2003, 2010, n),
        g.integers(0, 9, n),
    ]
    files = {
        "mol_tox21": {
            "edge_index": ends,
            "node_attr": g.integers(0, 5, (n, 9)),
            "edge_attr": g.integers(0, 3, (e, 3)),
            "graph_ptr": np.arange(0, n + 1, 8),
            "graph_split": np.arange(n // 8) % 3,
        },
        "traffic_chicago_regional": {
            "edge_index": ends,
            "edge_attr": np.abs(g.standard_normal((e, 8))).round(),
            "node_xy": g.random((n, 2)),
            "edge_target_flow": g.random(e),
        },
        "bitcoin_otc": {"edge_index": ends, "edge_attr": g.random((e, 2)), "orig_id": np.arange(n)},
        "fb15k_237": {
            "edge_index": ends,
            "edge_type": g.integers(0, 4, e),
            "edge_split": np.arange(e) % 3,
            "entity_names": np.array([f"e{i}" for i in range(n)]),
            "relation_names": np.array(list("abcd")),
        },
        "facebook100_packed": {
            "upper_degree": degree,
            "delta": np.ones(degree.sum(), int),
            "info": np.stack(columns, 1),
            "school_ptr": np.array([0, 60, n]),
        },
        "amazon_photo": {"edge_index": ends, "x": g.integers(0, 2, (n, 6)), "y": np.arange(n) % 2},
    }
    return {f"{name}.npz": npz_bytes(meta=meta, **arrays) for name, arrays in files.items()}


def planetoid_files() -> dict[str, bytes]:
    """A folder of pickles, of several protocols."""
    import scipy.sparse as sp

    one_hot = np.eye(3)[[0, 1, 2, 0, 1, 2]]
    x = sp.csr_matrix(np.pad(np.eye(9, dtype=np.float32), ((0, 0), (0, 41))))
    lists = defaultdict(
        list,
        {0: [1, 2], 1: [0], 2: [0, 3, 3], 3: [2], 4: [4], 5: [6], 6: [5], 7: [9], 8: [], 9: [7]},
    )
    parts = {
        "x": x[:3],
        "y": one_hot[:3],
        "allx": x[:6],
        "ally": one_hot,
        "tx": x[6:],
        "ty": np.eye(3)[[2, 0, 1]],
        "graph": lists,
    }
    return {
        f"ind.toy.{part}": pickle.dumps(value, i % 5)
        for i, (part, value) in enumerate(parts.items())
    } | {"ind.toy.test.index": b"9\n6\n7\n"}


def run_files() -> dict[str, bytes]:
    """What a run leaves."""
    from graphtheta.run.job.job import Job
    from graphtheta.run.log.profile import Book, Profile

    rows = [
        {
            "epoch": i,
            "step": 3 * i,
            "loss": 1 / i,
            "seconds": 0.1,
            "train_loss": 1 / i,
            "train_accuracy": 0.5,
            "val_loss": 2 / i,
            "val_accuracy": 0.25,
            "time": {"gather": {"seconds": 0.1}},
        }
        for i in range(1, 5)
    ]
    book = Book(seconds=[0.5, 0.25], wait=[0.0, 0.125], bytes=[100, 200], messages=[3, 4])
    profile = Profile(
        ranks=2,
        epochs=3,
        steps=12,
        elapsed=0.5,
        first_left_out=True,
        stages={"gather": book, "other": book},
        sent=[(9, 1), (8, 1)],
        largest=[(0, 1, 9, 1), (1, 0, 8, 1)],
        predicted=[1000, 1000],
        measured=[900, 1100],
    )
    return {
        "job.yaml": Job().to_yaml().encode(),
        "metrics.jsonl": "".join(json.dumps(row) + "\n" for row in rows).encode(),
        "result.json": (
            json.dumps({"best_epoch": 3, "seconds": 1.5, "metrics": {"val_loss": 0.5}}).encode()
        ),
        "profile.json": profile.model_dump_json().encode(),
    }


def checkpoint_files() -> dict[str, bytes]:
    """The arrays of a checkpoint, and its manifest without the checksum around it."""
    from graphtheta.run.checkpoints.checkpoint import (
        ARRAYS,
        MANIFEST,
        Checkpoint,
        CheckpointManifest,
        write_checkpoint,
    )
    from graphtheta.run.checkpoints.progress import Progress

    progress = Progress(
        epoch=3, losses=[0.5, 0.25], history=[{"epoch": 1, "time": {"move": {"wait": 0.5}}}]
    )
    manifest = CheckpointManifest(
        step=7, counters={"views": 7}, progress=progress, job={"lr": 0.1}, job_hash="x"
    )
    arrays = {
        "model/w": np.arange(12, dtype=np.float32).reshape(3, 4),
        "optimiser/steps": np.array(7),
        "flags": np.array([True, False]),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = write_checkpoint(Path(folder), Checkpoint(manifest, arrays))
        return {
            ARRAYS: (path / ARRAYS).read_bytes(),
            MANIFEST: msgpack.unpackb((path / MANIFEST).read_bytes())["body"],
        }


def message_files() -> dict[str, bytes]:
    """What ranks send each other."""
    from graphtheta.engine.comm.codec import encode

    objects = [
        {"a": np.arange(9), "b": (1, 2.5, None), "c": [np.float32(1), b"xyz", "text", True]},
        [("<f4", (3, 4)), {}],
        (["E"], "why"),
        np.array(["ab", "c"]),
        np.zeros((0, 3)),
        np.array("2020-01-01", "M8[D]"),
    ]
    return {str(i): encode(obj) for i, obj in enumerate(objects)}


# ---- readers


def graph_of(path: Path) -> None:
    """Read a graph file and check what comes out."""
    from graphtheta.graph.datasets.reader_npz import read_npz

    sound(read_npz(path))


def sound(graph: Any) -> None:
    """A graph that passes its own checks again, and can be summed up."""
    again = graph.replace()
    assert again.summary() == graph.summary()
    assert graph.n_nodes >= 1 and (
        not graph.n_edges or 0 <= graph.src.min() <= graph.src.max() < graph.n_nodes
    )


def read_named(folder: Path, name: str) -> None:
    """Read a named dataset."""
    import graphtheta as gt

    name = name.removesuffix(".npz").removesuffix("_packed")
    options: dict[str, Any] = {
        "facebook100": {"colleges": 2},
        "traffic_chicago_regional": {"regions": 8},
        "amazon_photo": {"split": "fraction"},
    }
    sound(gt.load(name, data_dir=folder, **options.get(name, {})))


def read_planetoid_folder(folder: Path, _: str) -> None:
    """Read the folder."""
    from graphtheta.graph.datasets.reader_planetoid import read_planetoid

    sound(read_planetoid(folder))


def read_clusters(folder: Path, name: str) -> None:
    """Read a file of cluster numbers."""
    from graphtheta.partitioners.communities import find_clusters

    none = np.zeros(0, np.int64)
    found = find_clusters(none, none, 30, str(folder / name))
    assert found.shape == (30,) and found.min() == 0 and found.max() < 30


def read_job(folder: Path, name: str) -> None:
    """Read a job."""
    from graphtheta.run.job.job import Job

    job = Job.from_yaml(folder / name)
    assert Job.from_yaml(_written(folder / "again.yaml", job.to_yaml())) == job


def _written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def read_run_folder(folder: Path, name: str) -> None:
    """Read the folder of a run, and make its page if it is sound, as it is at first, and of every
    five-hundredth input.
    """
    from graphtheta.inspect.reports.page import page
    from graphtheta.inspect.reports.run import read_run

    run = read_run(folder)
    data = (folder / name).read_bytes()
    if zlib.crc32(data) % 500 == 0 or data == run_files()[name]:
        assert page(run).endswith("</html>\n")


def read_arrays(folder: Path, name: str) -> None:
    """Read a file of arrays, whose content nothing protects."""
    from graphtheta.run.checkpoints.tensors import read_tensors

    assert all(x.dtype.kind in "fiub" for x in read_tensors(folder / name)[1].values())


def read_signed_checkpoint(folder: Path, _: str) -> None:
    """Read a checkpoint whose manifest has a good checksum, as somebody who means harm would make
    it.
    """
    from graphtheta.run.checkpoints.checkpoint import ARRAYS, MANIFEST, read_checkpoint

    path = folder / "step-00000007"
    body = (folder / MANIFEST).read_bytes()
    path.mkdir(exist_ok=True)
    (path / MANIFEST).write_bytes(msgpack.packb({"checksum": zlib.crc32(body), "body": body}))
    (path / ARRAYS).write_bytes((folder / ARRAYS).read_bytes())
    assert read_checkpoint(path).manifest.step == 7


def read_message(folder: Path, name: str) -> None:
    """Decode a message."""
    from graphtheta.engine.comm.codec import decode

    decode((folder / name).read_bytes(), [])


YAML = tokens(
    (
        "&a ",
        "*a",
        "<<: ",
        "!!python/object/apply:os.system ",
        "[",
        "{",
        "- ",
        ": ",
        "1e999",
        "9" * 30,
        "2020-13-45",
        "!!int x",
        "!!timestamp x",
        "\t",
        "\0",
        "lr: 1\n",
        "? ",
        "|",
        "%",
        "!!binary ",
        "0x",
        "1:2:3",
        ".nan",
        "~",
        "'",
        '"',
        "seed",
        "true",
    )
)
JSON = tokens(
    (
        "NaN",
        "Infinity",
        "1e400",
        "-1",
        "[",
        "{",
        "null",
        "9" * 30,
        "9" * 5000,
        "true",
        '"',
        ",",
        ":",
        "1e308",
        "0",
        "{}",
        '"\\ud800"',
    )
)
MESSAGE = pieces(
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\x00\xff\xff\xff",
    b"\xc9\xff\xff\xff\xff\x02",
    b"\xc7\x05\x02",
    b"\xc7\x05\x03",
    b"\xd4\x01",
    b"\xc1",
    b"\x91" * 400,
    b"\xc8\x00\x03\x01" * 300,
    b"\xcf" + b"\xff" * 8,
    b"\xc0",
    b"\xa3|O8",
)
PICKLE = pieces(
    b"cos\nsystem\n",
    b"r\xff\xff\xff\xff",
    b"\x8e" + b"\xff" * 8,
    b"\x95" + b"\xff" * 8,
    b"]" * 300,
    b"(",
    b"2" * 50,
    b"R",
    b"b",
    b"\x81",
    b"q\x00",
    b"h\x01",
    b"cnumpy\nndarray\n",
    b"I" + b"9" * 400 + b"\n",
    b"\x8b\xff\xff\xff\x7f",
    b"}",
    b"(ttR",
    b"N",
    b"\x8c\x03abc",
)


def targets() -> dict[str, Target]:
    """All readers by name."""
    whole = (member, member, member, directory)
    numbers = npy_bytes(np.arange(30) % 4)
    jobs = {
        "job.yaml": run_files()["job.yaml"],
        "short.yaml": b"lr: 0.1\nfanout: [3, 4]\nstrategy: mini\n",
    }
    return {
        "npz graph": Target(npz_files(), lambda folder, name: graph_of(folder / name), whole, 32),
        "named npz": Target(named_files(), read_named, whole, 64),
        "planetoid": Target(planetoid_files(), read_planetoid_folder, (PICKLE, PICKLE)),
        "clusters npy": Target(
            {"clusters.npy": numbers}, read_clusters, (header, header, values, array), 32
        ),
        "job yaml": Target(jobs, read_job, (YAML, YAML, YAML), 512),
        "run folder": Target(run_files(), read_run_folder, (JSON, JSON, YAML), 512),
        "safetensors": Target(
            {"a.safetensors": checkpoint_files()["arrays.safetensors"]},
            read_arrays,
            (JSON, JSON),
            64,
        ),
        "checkpoint": Target(checkpoint_files(), read_signed_checkpoint, (MESSAGE, MESSAGE), 512),
        "messages": Target(message_files(), read_message, (MESSAGE, MESSAGE), 4096, named=False),
    }
