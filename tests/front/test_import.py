"""The command that imports a graph, features in fewer bits, and training from files that are larger
than memory.
"""

from __future__ import annotations

import subprocess
import sys

import graphs
import numpy as np
import pytest
import scipy.sparse as sp

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.store.mapped import MappedColumn
from graphtheta.engine.store.memory import MemoryColumn
from graphtheta.engine.store.quantised import QuantisedColumn
from graphtheta.errors import ConfigError, DataError, FormatError
from graphtheta.graph.store.from_graph import write_store
from graphtheta.graph.store.narrow import narrowed

PLAIN = graphs.random_graph(40, 200, edge_y=None, edge_train=None, edge_val=None, edge_test=None)


def test_import_and_verify(tmp_path, capsys):
    np.savez(tmp_path / "mine.npz", edge_index=PLAIN.edge_index, x=PLAIN.x, y=PLAIN.y)
    assert (
        main(
            [
                "import",
                str(tmp_path / "mine.npz"),
                "--to",
                str(tmp_path / "s"),
                "--feature-type",
                "int8",
            ]
        )
        == 0
    )
    found = capsys.readouterr().out
    assert (
        "40 nodes" in found
        and f"in {tmp_path / 's'}" in found
        and "stored as int8: a value changes by at most 0.0" in found
    )
    # no split is made up, so that a seed means the same as for the file
    assert (
        gt.load(tmp_path / "s").train is None
        and gt.load(tmp_path / "s", split="auto", seed=1).train is not None
    )
    assert main(["info", "--dataset", str(tmp_path / "s"), "--verify"]) == 0
    data = bytearray((tmp_path / "s" / "node.x.codes.npy").read_bytes())
    data[-1] ^= 1
    (tmp_path / "s" / "node.x.codes.npy").write_bytes(data)
    assert main(["info", "--dataset", str(tmp_path / "s"), "--verify"]) != 0
    assert "node.x.codes.npy: rows 0 to 39 are damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, message",
    [
        (["mine.npz"], "--to is missing"),
        (["mine.npz", "--to", "s"], "mine.npz: the file does not exist"),
        (["sbm", "--to", "s", "--feature-type", "int4"], "int4"),
        (["nothing", "--to", "s"], "no dataset or file 'nothing'"),
    ],
    ids=str,
)
def test_an_import_that_cannot_be_done(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["import", *words]) != 0
    assert message in capsys.readouterr().err and not list(tmp_path.iterdir())


@pytest.mark.parametrize("features", ["int8", "float16"])
def test_narrow_features_are_as_near_as_stated(features, tmp_path, rng):
    x = rng.standard_normal((40, 5)).astype(np.float32) * [1, 1000, 1e-3, 0, 1e-7] + np.array(
        [0, 5, 3, 7, 1]
    )
    g = PLAIN.replace(x=x)
    roundings = run_simulated(3, lambda comm: write_store(g, tmp_path / "s", comm, features))
    found = gt.load(tmp_path / "s").x
    assert isinstance(
        found, QuantisedColumn if features == "int8" else MappedColumn
    ) and found.nbytes == 8 * 5 * (features == "int8")
    rows = np.array([7, 7, 0, 39])
    np.testing.assert_array_equal(found.read_begin(rows).end(), found.read_begin(None).end()[rows])
    off = np.abs(found.read_begin(None).end().astype(np.float64) - g.x)
    assert roundings[0] == roundings[2] and off.max() <= roundings[0].largest < 10 * off.max()
    size = np.abs(g.x) if features == "float16" else np.ptp(g.x.astype(np.float64), axis=0)
    assert (off <= roundings[0].relative * size + 1e-30).all()
    one, three = (run_simulated(size, losses, gt.load(tmp_path / "s"), {}) for size in (1, 3))
    assert np.allclose(one[0], three[0], rtol=1e-12) and np.isfinite(one[0]).all()


def test_a_column_of_zeros_and_ones_keeps_its_zeros(tmp_path):
    g = PLAIN.replace(x=(PLAIN.x > 0).astype(np.float32))
    run_simulated(1, lambda comm: write_store(g, tmp_path / "s", comm, "int8"))
    found = gt.load(tmp_path / "s").x.read_begin(None).end()
    assert (found[g.x == 0] == 0).all() and np.abs(found - g.x).max() < 1e-6


LIMIT = np.finfo(np.float32).max


@pytest.mark.parametrize(
    ("column", "features"),
    [
        ([0, LIMIT, LIMIT / 3], "int8"),
        ([0, -LIMIT, -LIMIT / 3], "int8"),
        ([LIMIT / 15, LIMIT, LIMIT / 2], "int8"),
        ([-LIMIT / 2, LIMIT / 2, 1], "int8"),
        ([1e-44, 2e-44, 5e-44], "int8"),
        ([1e-42, 3e-42, 2e-42], "int8"),
        ([1e9, 1e9 + 1000, 1e9 + 400], "int8"),
        ([65504, 1, -3], "float16"),
        ([65504, -65504, 1e-8], "float16"),
    ],
)
def test_narrow_features_at_the_limits_are_as_near_as_stated(column, features):
    x = np.array(column, np.float32)[:, None]
    columns, rounding = narrowed(x, features, SerialComm(), "g")
    parts = dict(columns)
    stored = parts[".codes" if features == "int8" else ""].read_begin(np.arange(3)).end()
    found = (
        QuantisedColumn(MemoryColumn(stored), parts[".scale"], parts[".zero"])
        .read_begin(None)
        .end()
        if features == "int8"
        else stored
    )
    off = np.abs(found.astype(np.float64) - x).max()
    assert np.isfinite(found).all() and np.isfinite(rounding.largest) and off <= rounding.largest


UNKNOWN = np.zeros((40, 2), np.float32)
UNKNOWN[33, 1] = np.nan


@pytest.mark.parametrize(
    "x, features, error, message",
    [
        (np.full((40, 2), 1e5), "float16", DataError, "x reaches 1e.05, but float16 ends at 65504"),
        (None, "int8", DataError, "no node features"),
        (PLAIN.x, "int4", ConfigError, "features is stored or float16 or int8"),
        (sp.csr_array(np.eye(40, 50)), "int8", DataError, "x is sparse"),
        (
            np.full((40, 1), LIMIT) * np.where(np.arange(40) % 2, 1, -1)[:, None],
            "int8",
            DataError,
            "column 0 reaches from -3.403e.38 to",
        ),
        (MemoryColumn(UNKNOWN), "int8", DataError, "x: node 33, column 1 is nan"),
    ],
    ids=["large", "none", "type", "sparse", "range", "nan"],
)
def test_features_that_cannot_be_narrow(x, features, error, message, tmp_path):
    with pytest.raises(error, match=message):
        run_simulated(
            3, lambda comm: write_store(PLAIN.replace(x=x), tmp_path / "s", comm, features)
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "codes, scale",
    [
        (np.zeros((4, 2)), np.ones(2)),
        (np.zeros(4, np.int8), np.ones(1)),
        (np.zeros((4, 2), np.int8), np.ones(3)),
        (np.zeros((4, 2), np.int8), np.array([1, np.inf])),
    ],
)
def test_codes_that_do_not_fit_are_refused(codes, scale):
    with pytest.raises(FormatError, match="do not make a column"):
        QuantisedColumn(
            MemoryColumn(codes), scale.astype(np.float32), np.zeros(len(scale), np.float32)
        )


def losses(comm, graph, keys):
    trainer = gt.Trainer(
        graph=graph,
        comm=comm,
        epochs=2,
        dtype="float64",
        hidden=5,
        strategy="mini",
        batch_size=7,
        backend="reference",
        **keys,
    )
    return [trainer.train_epoch(i) for i in range(2)]


def test_batches_in_flight_read_the_same_rows(tmp_path):
    run_simulated(1, lambda comm: write_store(PLAIN, tmp_path / "s", comm))
    expected = run_simulated(2, losses, PLAIN, {"views_in_flight": 2})
    assert run_simulated(2, losses, gt.load(tmp_path / "s"), {"views_in_flight": 2}) == expected


# features of 4 times the memory that the program may allocate beside its libraries and kernels
PROGRAM = """
import faulthandler, resource, sys
import numpy as np
import graphtheta as gt

faulthandler.dump_traceback_later(240, exit=True)
def losses(graph):
    keys = dict(batch_size=64, fanout=(3,), layers=1, hidden=4, epochs=2)
    trainer = gt.Trainer(graph=graph, model="sage", strategy="mini", **keys)
    return [trainer.train_epoch(i) for i in range(2)]

rng = np.random.default_rng(0)
edges, x = rng.integers(0, 200, (2, 900)), rng.random((200, 4096))
losses(gt.Graph(edges, x=x, y=np.arange(200) % 3, train=np.ones(200, bool)))
# so many rows have several orders, whose kernels are compiled here as well
few = np.zeros((9000, 4), np.float32)
losses(gt.Graph(edges, x=few, y=np.arange(9000) % 3, train=np.arange(9000) < 200))
status = [line.split() for line in open("/proc/self/status")]
used = next(int(words[1]) << 10 for words in status if words[0] == "VmData:")
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_DATA, (used + limit,) * 2)
print(*losses(gt.load(sys.argv[1])))
try:
    np.ones(limit // 4)
except MemoryError:
    print("limited")
"""


@pytest.mark.second
@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="RLIMIT_DATA counts memory on Linux only"
)
def test_features_of_four_times_the_memory_train_from_disk(tmp_path, rng):
    n = 16_384
    width = 4096
    limit = 64 << 20
    # a file of zeros takes no space before it is imported
    assert (
        np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (n, width)).nbytes
        == 4 * limit
    )
    ends = np.stack((rng.integers(0, n, 30_000), rng.integers(0, n, 30_000)))
    g = gt.Graph(
        ends,
        x=gt.MappedColumn(tmp_path / "x.npy"),
        y=rng.integers(0, 3, n),
        train=np.arange(n) < 512,
    )
    run_simulated(1, lambda comm: write_store(g, tmp_path / "s", comm))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "s"), str(limit)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    *found, limited = done.stdout.split() or [done.stderr]
    assert limited == "limited" and np.isfinite(np.array(found, float)).all(), done.stderr
