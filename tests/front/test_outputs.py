"""Outputs in parts: the rows of ``predict`` by original id, whatever wrote them, and complete or
absent.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import pyarrow.parquet as pq
import pytest
import ranks

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError, DataError, FormatError
from graphtheta.inference.outputs import formats, parts
from graphtheta.inference.outputs.formats import OutputRows, write_csv
from graphtheta.inference.outputs.parts import MARK, PartFolder

pytestmark = pytest.mark.reference

NAMES = np.array(
    [
        *(f"n{i}" for i in np.random.default_rng(0).permutation(56)),
        "a,b",
        'say "hi"',
        "line\nend\r",
        "007 é",
    ]
)
GRAPH = graphs.random_graph(60, 260, node_ids=NAMES)
KEYS = {
    "epochs": 0,
    "hidden": 5,
    "dtype": "float64",
    "backend": "reference",
    "scores": "logits",
}
TASKS: dict[str, dict[str, Any]] = {
    "node": {},
    "link": {"task": "link", "eval_negatives": 3},
    "edge": {"task": "edge"},
}


def read_rows(folder: Path, name: str) -> dict[Any, tuple[float, ...]]:
    """The values of a whole output by id, from the files that its mark lists."""
    mark = json.loads((folder / MARK).read_text())
    files = [folder / file["name"] for file in mark["files"]]
    assert {MARK, *(file.name for file in files)} == {
        file.name for file in folder.iterdir()
    } and mark["values"] == name
    assert [(file.stat().st_size) for file in files] == [file["bytes"] for file in mark["files"]]
    found: list[tuple[Any, Any]] = []
    for file in files:
        if mark["format"] == "parquet":
            table = pq.read_table(file)
            keys = [c for c in table.column_names[:-1] if c != "class"]
            ids = list(zip(*(table[c].to_pylist() for c in keys), strict=True))
            values = [
                value if isinstance(value, list) else [value] for value in table[name].to_pylist()
            ]
        elif mark["format"] == "csv":
            with file.open(newline="", encoding="utf-8") as stream:
                head, *lines = csv.reader(stream)
            n = sum(title.startswith("id") for title in head)
            first = n + ("class" in head)
            assert all(title.startswith(name) for title in head[first:])
            ids = [tuple(line[:n]) for line in lines]
            values = [[float(x) for x in line[first:]] for line in lines]
        elif file.name.endswith(".id.npy"):
            ids = [tuple(np.atleast_1d(x).tolist()) for x in np.load(file)]
            values = [
                np.ravel(value).tolist()
                for value in np.load(file.with_name(file.name.replace(".id.", f".{name}.")))
            ]
        else:
            continue
        found += zip(ids, values, strict=True)
    assert len(found) == mark["rows"] == len(dict(found))
    return {tuple(map(str, key)): tuple(value) for key, value in found}


def as_rows(found: tuple[np.ndarray, np.ndarray]) -> dict[Any, tuple[float, ...]]:
    ids, values = found
    return {
        tuple(np.atleast_1d(i).astype(str).tolist()): tuple(np.ravel(v).tolist())
        for i, v in zip(ids, values, strict=True)
    }


def write(comm: Any, graph: gt.Graph, folder: Path, keys: dict[str, Any], form: str) -> Any:
    run = gt.Trainer("sage", graph, comm=comm, **{**KEYS, **keys})
    return (
        run.write_predictions(folder / "predictions", form),
        run.predict(),
        run.write_embeddings(folder / "embeddings", form, layer=0),
        run.embed(layer=0),
    )


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "task, form",
    [("node", "parquet"), ("node", "csv"), ("node", "npy"), ("link", "csv"), ("edge", "parquet")],
)
def test_parts_hold_what_one_worker_returns(task: str, form: str, tmp_path: Path) -> None:
    """Each output replaces that of another number of workers."""
    first = None
    for size, masters, placement in (
        (1, "hash", "1d-src"),
        (3, "block", "vertex-cut"),
        (4, "ldg", "hdrf"),
        (2, "hash", "1d-dst"),
    ):
        keys = {**TASKS[task], "masters": masters, "partitioner": placement}
        found = run_simulated(size, write, GRAPH, tmp_path, keys, form)
        _, predicted, _, embedded = found[0]
        assert [(one[0], one[2]) for one in found] == [(len(predicted[0]), GRAPH.n_nodes)] * size
        rows = [
            read_rows(tmp_path / name, name.removesuffix("s"))
            for name in ("predictions", "embeddings")
        ]
        assert rows == [as_rows(predicted), as_rows(embedded)]
        first = first or rows
        for one, other in zip(first, rows, strict=True):
            assert one.keys() == other.keys()
            np.testing.assert_allclose(
                [one[key] for key in one], [other[key] for key in one], rtol=1e-9
            )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["embeddings", "predictions"]


@pytest.mark.parametrize("masters", ["degree-block", "fennel", "metis"])
def test_every_partitioner(masters: str, tmp_path: Path) -> None:
    _, predicted, _, embedded = run_simulated(
        3, write, GRAPH, tmp_path, {"masters": masters}, "npy"
    )[0]
    assert read_rows(tmp_path / "predictions", "prediction") == as_rows(predicted)
    assert read_rows(tmp_path / "embeddings", "embedding") == as_rows(embedded)


@pytest.mark.parametrize("form", formats.FORMATS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_and_ids_are_exact(
    dtype: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "BLOCK", 7)
    values = np.random.default_rng(0).standard_normal((40, 2, 3)).astype(dtype) / 3
    ids = np.append(np.arange(39), 2**63 - 1)

    def program(comm: Any) -> int:
        # one worker has no rows
        mine = slice(comm.rank, None, 2) if comm.rank < 2 else slice(0, 0)
        return PartFolder(tmp_path / "out", form, comm).write(
            OutputRows("prediction", ids[mine], values[mine])
        )

    assert run_simulated(3, program) == [40] * 3
    found = read_rows(tmp_path / "out", "prediction")
    np.testing.assert_array_equal(
        np.array([found[str(i),] for i in ids], dtype), values.reshape(40, -1)
    )


def test_outputs_of_one_of_several_splits_are_those_of_a_graph_with_this_split(
    tmp_path: Path,
) -> None:
    part = np.random.default_rng(3).integers(0, 3, (GRAPH.n_nodes, 2))
    several, one = (
        GRAPH.replace(train=x == 0, val=x == 1, test=x == 2) for x in (part, part[:, 1])
    )
    found = []
    for name, graph, keys in (("several", several, {"split_index": 1}), ("one", one, {})):

        def program(
            comm: Any,
            graph: gt.Graph = graph,
            keys: dict[str, Any] = keys,
            folder: Path = tmp_path / name,
        ) -> None:
            trainer = gt.Trainer(
                "sage", graph, comm=comm, **{**KEYS, **keys, "epochs": 2, "keep": 0}
            )
            trainer.fit()
            trainer.write_predictions(folder / "predictions", "parquet")
            trainer.write_embeddings(folder / "embeddings", "parquet")

        run_simulated(2, program)
        found.append(
            [
                read_rows(tmp_path / name / f"{values}s", values)
                for values in ("prediction", "embedding")
            ]
        )
    assert found[0] == found[1] and len(found[0][0]) == GRAPH.n_nodes


def test_csv_has_as_few_digits_as_it_needs(tmp_path: Path) -> None:
    with (tmp_path / "x.csv").open("wb") as file:
        write_csv(
            file, OutputRows("prediction", np.array(["a", "7"]), np.array([0.1, 1e-30], np.float32))
        )
    assert (tmp_path / "x.csv").read_text() == "id,prediction\na,0.1\n7,1e-30\n"


def write_small(comm: Any, folder: Path, form: str = "csv") -> int:
    """Write four rows."""
    ids = np.arange(4)[comm.rank :: comm.size]
    return PartFolder(folder, form, comm).write(OutputRows("prediction", ids, ids / 2))


def raised(size: int, error: type[Exception], message: str, work: Any, *args: Any) -> None:
    """Every rank raises the error."""

    def program(comm: Any) -> bool:
        with pytest.raises(error, match=message):
            work(comm, *args)
        return True

    assert run_simulated(size, program) == [True] * size


def test_a_failed_output_leaves_the_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "deep" / "out"
    assert run_simulated(2, write_small, folder) == [4, 4]
    before = read_rows(folder, "prediction")

    def full(file: Any, rows: OutputRows) -> None:
        file.write(b"id,pre")
        if 1 in rows.ids:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setitem(formats.FORMATS, "csv", {".csv": full})
        raised(3, FormatError, "No space left on device; free disk space", write_small, folder)
    assert read_rows(folder, "prediction") == before
    left = folder.with_name("out.part")
    assert sorted(p.name for p in left.iterdir()) == [
        ".lock",
        "part-00000-of-00003.csv",
        "part-00002-of-00003.csv",
    ]
    (left / ".graphtheta-0123456789abcdef.part").write_text("of a worker that was killed")
    assert run_simulated(1, write_small, folder) == [4]
    assert read_rows(folder, "prediction") == before and not left.exists()


def test_parts_that_rank_0_does_not_find_are_no_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = [{"name": "part-00001-of-00002.csv", "rows": 2, "bytes": 1}]
    monkeypatch.setattr(parts.PartFolder, "_write_part", lambda folder, rows: listed)
    raised(
        2,
        FormatError,
        "which rank 0 does not find; choose a folder on a file system that all workers",
        write_small,
        tmp_path / "out",
    )
    assert not (tmp_path / "out").exists()


def test_folders_of_others_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "part-00000-of-00001.csv").write_text("of another program")
    raised(2, FormatError, "holds files and no _SUCCESS", write_small, tmp_path / "mine")
    (tmp_path / "mine" / MARK).write_text("")
    # as Spark leaves it
    raised(2, FormatError, "no _SUCCESS of graphtheta", write_small, tmp_path / "mine")
    listed = [{"name": "part-00000-of-00001.csv"}]
    (tmp_path / "mine" / MARK).write_text(json.dumps({"files": listed}))
    (tmp_path / "mine" / "notes.txt").write_text("")
    raised(
        2,
        FormatError,
        "holds notes.txt, which belongs to no output",
        write_small,
        tmp_path / "mine",
    )
    (tmp_path / "file").write_text("")
    raised(2, FormatError, "is a file; choose a folder", write_small, tmp_path / "file")
    assert {p.name for p in (tmp_path / "mine").iterdir()} == {
        "part-00000-of-00001.csv",
        MARK,
        "notes.txt",
    }


def test_formats_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raised(
        2,
        ConfigError,
        "unknown format 'parket' \\(did you mean 'parquet'",
        write_small,
        tmp_path / "out",
        "parket",
    )
    monkeypatch.setattr(formats, "find_spec", lambda name: None)
    raised(
        2,
        ConfigError,
        r"format=parquet needs pyarrow: pip install 'graphtheta\[tables\]'",
        write_small,
        tmp_path / "out",
        "parquet",
    )
    assert not any(tmp_path.iterdir())


@ranks.needs_mpi
def test_through_the_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tiny = (
        "--dataset",
        "sbm:n_nodes=90,n_edges=400,classes=3,features=4",
        "--epochs",
        "1",
        "--hidden",
        "4",
        "--backend",
        "reference",
    )
    assert main(["train", *tiny, "--out", "run"]) == 0
    done = ranks.run(
        [
            str(ranks.MPIEXEC),
            "-n",
            "2",
            ranks.sys.executable,
            "-m",
            "graphtheta",
            "predict",
            "run",
            "--format",
            "parquet",
        ]
    )
    assert (done.returncode, done.stderr) == (
        0,
        "",
    ) and "90 predictions in run/predictions" in done.stdout
    assert main(["predict", "run"]) == 0
    with np.load("run/predictions.npz") as saved:
        found = read_rows(Path("run/predictions"), "probability")
        np.testing.assert_allclose(
            [found[str(i),] for i in saved["id"]], saved["probability"], rtol=1e-4, atol=1e-6
        )
    assert main(["predict", "run", "--embed", "--format", "csv", "--to", "vectors"]) == 0
    assert main(["predict", "run", "--embed"]) == 0
    with np.load("run/embeddings.npz") as saved:
        found = read_rows(Path("vectors"), "embedding")
        np.testing.assert_array_equal(
            np.array([found[str(i),] for i in saved["id"]], np.float32), saved["embedding"]
        )
    capsys.readouterr()
    for words in (["--to", "folder"], ["--to", "x.csv", "--format", "csv"]):
        assert main(["predict", "run", *words]) == 2
        assert (
            "expected a name that ends in .npz or .csv, or a folder and --format"
            in capsys.readouterr().err
        )
    assert main(["predict", "run", "--to", "x.parquet"]) == 2
    assert "for parts in this format: --to x --format parquet" in capsys.readouterr().err


def test_features_in_files_that_are_unknown_are_not_predicted_from(tmp_path):
    graph = gt.load("ring:n=20", split="none").replace(y=np.arange(20) % 2, train=np.ones(20, bool))
    x = np.ones((20, graph.n_features), np.float32)
    trainer = gt.Trainer("sage", graph.replace(x=x), hidden=4, epochs=1)
    trainer.fit()
    x[7, 0] = np.nan
    np.save(tmp_path / "x.npy", x)
    other = trainer.on(graph.replace(x=gt.MappedColumn(tmp_path / "x.npy")))
    for call in (
        other.predict,
        lambda: other.predict([7]),
        other.embed,
        other.embeddings,
        lambda: other.write_predictions(tmp_path / "out", "csv"),
    ):
        with pytest.raises(DataError, match="is not finite"):
            call()
    assert len(other.predict([15])[0]) == 1

    # each worker has some of the wrong rows
    x[6:10, 0] = np.nan
    np.save(tmp_path / "x.npy", x)

    def program(comm):
        trainer = gt.Trainer("sage", graph.replace(x=np.ones_like(x)), comm=comm, hidden=4)
        one = trainer.on(graph.replace(x=gt.MappedColumn(tmp_path / "x.npy")))
        with pytest.raises(DataError) as caught:
            one.predict()
        return str(caught.value)

    messages = [message for n in (1, 2, 3) for message in run_simulated(n, program)]
    assert len(set(messages)) == 1 and "number 4 is not finite (8 such rows of 20)" in messages[0]
