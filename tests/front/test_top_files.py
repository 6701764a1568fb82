"""``graphtheta predict --top``: files of queries, and outputs in one file and in parts."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.cli.command import opened
from graphtheta.cli.top import add_flags, top_rows
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.inference.outputs.parts import PartFolder
from graphtheta.run.job.flag import Parser
from graphtheta.train.loop.opened import job_of

pytestmark = pytest.mark.reference

FEW = (
    "--epochs",
    "1",
    "--dtype",
    "float64",
    "--eval-negatives",
    "2",
    "--dropout",
    "0",
    "--backend",
    "reference",
)
N = 25


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run on links, whose ids are numbers, and one on triples with texts as ids."""
    here = tmp_path_factory.mktemp("top")
    rng = np.random.default_rng(3)
    ends = rng.integers(0, N, (2, 120))
    np.savez(
        here / "links.npz",
        edge_index=ends,
        x=rng.normal(size=(N, 3)),
        node_ids=rng.permutation(N) + 2**62,
    )
    np.savez(
        here / "facts.npz",
        edge_index=ends,
        node_ids=np.array([f"e{i}" for i in rng.permutation(N)]),
        meta=json.dumps({"relation_names": ["has", "is a"]}),
        n_nodes=N,
        **{"edge_columns.relation": rng.integers(0, 2, 120)},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        assert (
            main(
                [
                    "train",
                    "--dataset",
                    "links.npz",
                    "--task",
                    "link",
                    "--model",
                    "sage",
                    *FEW,
                    "--out",
                    "links",
                ]
            )
            == 0
        )
        assert (
            main(
                [
                    "train",
                    "--dataset",
                    "facts.npz",
                    "--model",
                    "mlp",
                    "--layers",
                    "0",
                    "--embedding",
                    "4",
                    *FEW,
                    "--out",
                    "facts",
                ]
            )
            == 0
        )
    return here


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    return folder


def as_rows(found: Any) -> list[tuple[Any, float]]:
    """The answers of ``top`` to one query after another."""
    return [
        pair
        for ids, scores in zip(*map(np.ndarray.tolist, found), strict=True)
        for pair in zip(ids, scores, strict=True)
    ]


def lines(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def trainer_of(run: str) -> gt.Trainer:
    return opened(job_of(run, {}), SimpleNamespace(run=run, trust=False), {}, gt.start())


def test_links_of_all_sources_and_of_some(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = trainer_of("links")
    assert main(["predict", "links", "--top", "3"]) == 0
    assert f"{3 * len(model.top(k=3)[0])} scores in links/scores.npz" in capsys.readouterr().out
    with np.load("links/scores.npz") as file:
        assert file["id"].shape == (3 * len(model.top(k=3)[0]), 2)
        assert list(zip(file["id"][:, 1].tolist(), file["score"].tolist(), strict=True)) == as_rows(
            model.top(k=3)
        )
    ids = model.setup.info.ids(np.array([4, 9, 0])).tolist()
    # Windows line ends, a mark of the encoding, and a source twice
    (here / "some.txt").write_bytes(
        b"\xef\xbb\xbf" + "\r\n".join(map(str, [*ids, ids[0]])).encode()
    )
    (here / "among.txt").write_text("\n".join(map(str, model.setup.info.ids(np.arange(20)))) + "\n")
    assert (
        main(
            [
                "predict",
                "links",
                "--top",
                "4",
                "--of",
                "some.txt",
                "--among",
                "among.txt",
                "--keep-known",
                "--to",
                "some.csv",
            ]
        )
        == 0
    )
    title, *rows = lines(here / "some.csv")
    assert (
        title == ["id_0", "id_1", "score"]
        and [int(row[0]) for row in rows] == np.repeat(ids, 4).tolist()
    )
    wanted = model.top(ids, 4, candidates=model.setup.info.ids(np.arange(20)), keep_known=True)
    assert [(int(row[1]), float(row[2])) for row in rows] == as_rows(wanted)


@pytest.mark.parametrize(
    ("text", "side"),
    [("head,relation\ne3,is a\ne1,0\n", "tail"), ('relation,tail\n"is a",e3\n0,e1\n', "head")],
)
def test_queries_of_triples(text: str, side: str, here: Path) -> None:
    model = trainer_of("facts")
    (here / "q.csv").write_text(text)
    assert main(["predict", "facts", "--top", "2", "--of", "q.csv", "--to", "top.csv"]) == 0
    wanted = as_rows(model.top(["e3", "e1"], 2, relation=["is a", "has"], side=side))
    rows = lines(here / "top.csv")[1:]
    asked, answer = (0, 2) if side == "tail" else (2, 0)
    assert [(row[answer], float(row[3])) for row in rows] == wanted
    assert [(row[asked], row[1]) for row in rows] == [("e3", "is a")] * 2 + [("e1", "has")] * 2


@pytest.mark.parametrize("form", ["csv", "parquet", "npy"])
def test_parts_have_the_rows_of_one_file(form: str, here: Path) -> None:
    """Whichever worker owns the node of a query."""
    assert main(["predict", "facts", "--top", "3", "--to", "all.csv"]) == 0
    parser = Parser("predict", "", "")
    add_flags(parser)
    options, _ = parser.read(["--top", "3"])

    def program(comm: Any) -> None:
        model = gt.open_run("facts", comm=comm)
        rows = top_rows(model, options, whole=False)
        assert rows is not None
        PartFolder("parts", form, comm).write(rows)

    run_simulated(3, program)
    found: list[tuple[str, ...]] = []
    for part in sorted((here / "parts").glob("part-*")):
        if form == "csv":
            found += [tuple(row) for row in lines(part)[1:]]
        elif form == "parquet":
            found += [tuple(map(str, row.values())) for row in pq.read_table(part).to_pylist()]
        elif part.name.endswith(".id.npy"):
            scores = np.load(part.with_name(part.name.replace(".id.", ".score."))).tolist()
            found += [
                (*row, str(score))
                for row, score in zip(np.load(part).tolist(), scores, strict=True)
            ]
    assert len(found) > 30 and sorted(row[:3] for row in found) == sorted(
        tuple(row[:3]) for row in lines(here / "all.csv")[1:]
    )


@pytest.mark.parametrize(
    ("run", "words", "text", "told"),
    [
        (
            "links",
            ["--of", "q.txt"],
            "7\n",
            "q.txt, line 1, field 'id': the graph has no node 7; give original ids",
        ),
        (
            "links",
            ["--of", "q.txt"],
            "source\n7\n",
            "q.txt, line 1, field 'id': 'source' is not a whole number of 64 bits",
        ),
        (
            "links",
            ["--of", "q.txt"],
            f"{2**62}\n\n{2**62 + 1}\n",
            "q.txt, line 2, field 'id': there is no value",
        ),
        (
            "links",
            ["--among", "q.txt"],
            f"{2**62}\n{2**63}\n",
            f"q.txt, line 2, field 'id': '{2**63}' is not a whole number of 64 bits",
        ),
        (
            "links",
            ["--among", "q.txt"],
            f"{2**62}\n-5\n",
            "q.txt, line 2, field 'id': the graph has no node -5",
        ),
        ("links", ["--of", "none.txt"], "", "none.txt: cannot be read: No such file or directory"),
        (
            "facts",
            ["--of", "q.txt"],
            "head,relation\ne1,has\ne1,was\n",
            (
                "q.txt, line 3, field 'relation': relation 'was' is not known (did you mean"
                " 'has'?); the"
            ),
        ),
        (
            "facts",
            ["--of", "q.txt"],
            "relation,tail\nhas,x\n",
            "q.txt, line 2, field 'tail': the graph has no node 'x'",
        ),
        (
            "facts",
            ["--of", "q.txt"],
            "head,tail\ne1,e2\n",
            "q.txt, line 1: the titles are head,tail; expected head,relation or relation,tail",
        ),
        (
            "facts",
            ["--of", "q.txt"],
            "head,relation\ne1,has,e2\n",
            "q.txt, line 2: 3 fields, expected head,relation",
        ),
        (
            "facts",
            ["--of", "q.txt"],
            "head,relation\ne1,\n",
            "q.txt, line 2, field 'relation': there is no value",
        ),
        ("facts", ["--of", "q.txt"], "\udce4", "q.txt: cannot be read: "),
        ("links", ["--of", "q.txt"], "", "q.txt: the file is empty; expected an id a line"),
        (
            "facts",
            ["--of", "q.txt"],
            "",
            "q.txt: the file is empty; expected the titles head,relation or relation,tail",
        ),
    ],
)
def test_a_fault_of_a_file_is_one_message(
    run: str, words: list[str], text: str, told: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "q.txt").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert main(["predict", run, "--top", "2", *words]) in (1, 2)
    err = capsys.readouterr().err
    assert told in err and err.count("\n") == 1 and not (here / "q.npz").exists()


def test_a_side_is_asked_for(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for run in ("links", "facts"):
        assert main(["predict", run, "--top", "3", "--side", "head", "--to", f"{run}.csv"]) == 0
        found = [(row[0], float(row[-1])) for row in lines(here / f"{run}.csv")[1:]]
        tails, heads = (
            [(str(a), s) for a, s in as_rows(trainer_of(run).top(k=3, side=side))]
            for side in ("tail", "head")
        )
        assert found == heads != tails
    (here / "q.txt").write_text(f"{2**62 + 3}\n")
    assert (
        main(
            [
                "predict",
                "links",
                "--top",
                "3",
                "--of",
                "q.txt",
                "--side",
                "head",
                "--to",
                "found.csv",
            ]
        )
        == 0
    )
    ids, scores = trainer_of("links").top([2**62 + 3], 3, side="head")
    assert [(int(a), int(b), float(s)) for a, b, s in lines(here / "found.csv")[1:]] == [
        (a, 2**62 + 3, s) for a, s in zip(ids[0].tolist(), scores[0].tolist(), strict=True)
    ]
    (here / "q.txt").write_text("relation,tail\nhas,e1\n")
    assert (
        main(
            [
                "predict",
                "facts",
                "--top",
                "3",
                "--of",
                "q.txt",
                "--side",
                "head",
                "--to",
                "found.csv",
            ]
        )
        == 0
    )
    capsys.readouterr()
    assert main(["predict", "facts", "--top", "3", "--of", "q.txt", "--side", "tail"]) == 2
    assert (
        "--side tail: q.txt has the titles relation,tail, which ask for a head; drop --side"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["--of", "x"],
            "--of belongs to the nodes of the highest scores; say how many with --top K",
        ),
        (["--keep-known"], "--keep-known belongs to"),
        (["--top", "0"], "--top: got 0, expected a whole number from 1"),
        (
            ["--top", "2", "--embed"],
            "--top writes the nodes of the highest scores, and --embed writes something else;",
        ),
        (["--top", "2", "--since", "x"], "and --since writes something else"),
        (["--side", "head"], "--side belongs to"),
        (
            ["--top", "2", "--columns", "id,class"],
            "--columns chooses from all predictions, and --top",
        ),
        (["--embed", "--nodes", "all"], "--nodes chooses from all predictions, and --embed"),
        (["--embed", "--scores", "logits"], "--scores says what predictions are, and --embed"),
        (["--links", "x", "--top", "2"], "--links writes predictions for given links, and --top"),
        (["--compare", "degrees"], "--compare says how to compare with an earlier graph; give"),
        (["--appended"], "--appended chooses the nodes that are not in an earlier graph; give"),
    ],
)
def test_flags_that_do_not_fit(
    words: list[str], told: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", "links", *words]) == 2
    assert told in capsys.readouterr().err


def test_ranks_by_relation_are_of_held_out_triples(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gt.Trainer(dataset="ring", out="run", epochs=1, hidden=4, backend="reference").fit()
    for words, told in (
        (["facts", "--on", "train"], "the graph of facts has no labelled nodes, edges or links in"),
        (["run", "--on", "train"], "--relations shows ranks of triples that are held out"),
        (["run", "--on", "test"], "the trainer has task=node"),
    ):
        assert main(["evaluate", *words, "--relations"]) != 0
        assert told in capsys.readouterr().err
    assert main(["evaluate", "facts", "--on", "test", "--relations"]) == 0
    assert "relation" in capsys.readouterr().out
