"""Errors whose remedy is followed: what the message says to do works."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.errors import GraphThetaError

pytestmark = pytest.mark.reference

EDGES = ([0, 1, 2], [1, 2, 0])
SMALL = [
    "--dataset",
    "sbm:n_nodes=60,n_edges=300,classes=3,features=4",
    "--hidden",
    "4",
    "--epochs",
    "2",
]
STAGED = dict(strategy="mini", batch_size=2)


class Case(NamedTuple):
    """A mistake, the words of its error, and what then works.

    Attributes:
        wrong: Raises.
        words: Of the message, a regular expression.
        right: Follows the remedy; its result is true.
    """

    wrong: Callable[[], Any]
    words: str
    right: Callable[[], Any]


def graph(**fields: Any) -> gt.Graph:
    given = {"x": np.eye(3), "y": [0, 1, 0], "train": [True, True, False], **fields}
    return gt.Graph(EDGES, 3, **given)


def fit(model: Any = "gcn", on: Any = None, **keys: Any) -> Any:
    return gt.Trainer(model, graph() if on is None else on, epochs=1, **keys).fit()


def table(name: str, text: str) -> str:
    Path(name).write_text(text)
    return name


def imported(edges: Any, nodes: Any = None, **options: Any) -> gt.Graph:
    return gt.load(
        gt.import_graph(edges, nodes, to=f"store-{len(list(Path.cwd().iterdir()))}", **options)
    )


def shell(line: str) -> None:
    subprocess.run(line, shell=True, check=True)


def command(*words: str) -> None:
    """A command, whose error is raised with what it printed."""
    if main(list(words)):
        raise GraphThetaError("the command failed")


ARRAYS: dict[str, Case] = {
    "a mask of 0 and 1": Case(
        lambda: graph(train=np.array([1, 0, 1], np.uint8)),
        r"train: expected a bool mask, got dtype uint8; .*np.asarray\(mask\).astype\(bool\)",
        lambda: (
            graph(train=np.asarray(np.array([1, 0, 1], np.uint8)).astype(bool)).train.tolist()
            == [True, False, True]
        ),
    ),
    "node numbers for a mask": Case(
        lambda: graph(train=[0, 2]),
        r"mask = np.zeros\(3, bool\); mask\[numbers\] = True",
        lambda: graph(train=np.isin(np.arange(3), [0, 2])).train.sum() == 2,
    ),
    "edges by row": Case(
        lambda: gt.Graph([[0, 1], [1, 2], [2, 0]]),
        "transpose it",
        lambda: gt.Graph(np.transpose([[0, 1], [1, 2], [2, 0]])).n_edges == 3,
    ),
    "classes with gaps": Case(
        lambda: graph(y=[0, 10**9, 0]),
        r"number the classes 0..C-1, for example by np.unique\(y, return_inverse=True\)\[1\]",
        lambda: graph(y=np.unique([0, 10**9, 0], return_inverse=True)[1]).n_classes == 2,
    ),
    "a large integer as a feature": Case(
        lambda: graph(x=np.array([[2**24 + 1], [0], [0]])),
        r"give codes, ids and times as integers in node_columns=\{name: array\}",
        lambda: (
            graph(node_columns={"stamp": [2**24 + 1, 0, 0]}).node_columns["stamp"][0] == 2**24 + 1
        ),
    ),
    "texts as a column": Case(
        lambda: graph(node_columns={"kind": ["a", "b", "a"]}),
        r"np.unique\(values, return_inverse=True\)\[1\]",
        lambda: (
            graph(
                node_columns={"kind": np.unique(["a", "b", "a"], return_inverse=True)[1]}
            ).node_columns["kind"][1]
            == 1
        ),
    ),
    "a reserved name": Case(
        lambda: graph(node_columns={"h": [1, 2, 3]}),
        "choose another name, such as 'h_code'",
        lambda: graph(node_columns={"h_code": [1, 2, 3]}).node_columns["h_code"].sum() == 6,
    ),
    "mixed names in networkx": Case(
        lambda: gt.Graph.from_networkx(nodes_of_two_kinds()),
        r"networkx.relabel_nodes\(g, str\)",
        lambda: (
            gt.Graph.from_networkx(
                __import__("networkx").relabel_nodes(nodes_of_two_kinds(), str)
            ).n_nodes
            == 2
        ),
    ),
    "labels of unequal lengths": Case(
        lambda: graph(y=[[0], [0, 1], []]),
        "rows have different lengths; give a column of 0 and 1 for each class",
        lambda: graph(y=[[1, 0], [1, 1], [0, 0]]).multilabel,
    ),
    "a wrong keyword": Case(
        lambda: graph(train_mask=[True, False, False]),
        r"no argument 'train_mask' \(did you mean 'train'\?\)",
        lambda: graph(train=[True, False, False]).train.sum() == 1,
    ),
    "a graph of another library": Case(
        lambda: fit(on=__import__("networkx").path_graph(3)),
        r"gt.load\(gt.import_graph\(graph, to='my.store'\)\)",
        lambda: (
            gt.load(gt.import_graph(__import__("networkx").path_graph(3), to="my.store")).n_nodes
            == 3
        ),
    ),
    "training without a mask": Case(
        lambda: fit(on=graph(train=None)),
        "no training mask.*split",
        lambda: fit(on=gt.load("sbm:n_nodes=60,n_edges=300", split="fraction")),
    ),
    "a value of added loops": Case(
        lambda: graph(edge_columns={"kind": [1, 2, 3]}).with_self_loops(columns={"kind": 0.5}),
        "edge column 'kind'.*expected an integer",
        lambda: (
            graph(edge_columns={"kind": [1, 2, 3]}).with_self_loops(columns={"kind": 9}).n_edges
            == 6
        ),
    ),
}

KEYS: dict[str, Case] = {
    "a fanout without mini-batches": Case(
        lambda: fit(fanout="2,2"), "--strategy mini", lambda: fit(fanout="2,2", **STAGED)
    ),
    "heads of a model without": Case(lambda: fit(heads=2), "drop --heads", lambda: fit()),
    "a model object and an option": Case(
        lambda: fit(small_model(), hidden=3),
        r"give the class, gt.Trainer\(",
        lambda: fit(type(small_model()), hidden=3),
    ),
    "several seeds": Case(
        lambda: fit(seeds=2),
        "make one trainer for each seed=",
        lambda: [fit(seed=seed) for seed in (0, 1)],
    ),
    "no features": Case(
        lambda: fit(on=graph(x=None)),
        "learn them with --embedding WIDTH",
        lambda: fit(on=graph(x=None), embedding=4),
    ),
    "a loss that diverges": Case(
        lambda: fit(on=graph(x=np.full((3, 1), 3e38))),
        "lower --lr, or check features",
        lambda: fit(on=graph(x=np.full((3, 1), 3e38)).with_row_normalised_features()),
    ),
    "a fanout of another depth": Case(
        lambda: fit(fanout="2,2,2", **STAGED),
        "give one for each",
        lambda: fit(fanout="2,2", **STAGED),
    ),
    "a typing error": Case(
        lambda: fit(strategy="minibatch"), "allowed: global, mini, cluster", lambda: fit(**STAGED)
    ),
    "a schedule without a number": Case(
        lambda: fit(lr_schedule="cosine"),
        "give --lr-decay-updates",
        lambda: fit(lr_schedule="cosine", lr_decay_updates=5),
    ),
    "a policy without a cache": Case(
        lambda: fit(cache_policy=list(gt.CACHE_POLICIES)[-1], **STAGED),
        "drop --cache-policy",
        lambda: fit(**STAGED),
    ),
}

TABLES: dict[str, Case] = {
    "several spaces": Case(
        lambda: imported(table("old.txt", "src  dst\n1  2\n2   3\n")),
        r"several spaces; make it one: sed 's/\^ \*//; s/  \*/ /g' < OLD > NEW, and give"
        r" --separator ' '",
        lambda: (
            shell("sed 's/^ *//; s/  */ /g' < old.txt > new.txt")
            or imported("new.txt", separator=" ").n_edges == 2
        ),
    ),
    "old Macs": Case(
        lambda: imported(table("old.csv", "src,dst\r1,2\r2,3\r")),
        r"tr '\\r' '\\n' < OLD > NEW",
        lambda: shell(r"tr '\r' '\n' < old.csv > new.csv") or imported("new.csv").n_edges == 2,
    ),
    "a very long line": Case(
        lambda: imported(table("long.csv", "src,dst,text\n1,2," + "x" * (5 << 20) + "\n2,3,y\n")),
        "line 2: the line has more than 1 MiB; .*give the table as Parquet",
        lambda: (
            pq.write_table(
                csv.read_csv("long.csv", csv.ReadOptions(block_size=8 << 20)), "long.parquet"
            )
            or imported("long.parquet").n_edges == 2
        ),
    ),
    "a comment": Case(
        lambda: imported(table("note.csv", "src,dst\n1,2\n# a note\n2,3\n")),
        "leave bad rows out with --on-bad-row skip",
        lambda: imported("note.csv", on_bad_row="skip").n_edges == 2,
    ),
    "a value that begins as a comment": Case(
        lambda: imported(table("hash.csv", "src,dst\n1,2\n#3,2\n")),
        "quote its first value if it is none",
        lambda: imported(table("hash.csv", 'src,dst\n1,2\n"#3",2\n')).n_edges == 2,
    ),
    "a file without a header": Case(
        lambda: imported(table("bare.csv", "1,2\n2,3\n")),
        r"read a file without a header with --no-header \(header=False\)",
        lambda: imported("bare.csv", header=False, src="0", dst="1").n_edges == 2,
    ),
    "a column of another name": Case(
        lambda: imported(table("names.csv", "from,to\n1,2\n")),
        "the columns are from, to; choose one with --src",
        lambda: imported("names.csv", src="from", dst="to").n_edges == 1,
    ),
    "a keyword of Python": Case(
        lambda: imported(table("key.csv", "src,dst,class\n1,2,3\n"), edge_columns="class"),
        "rename it to a Python identifier that is no keyword",
        lambda: (
            imported(table("key.csv", "src,dst,kind\n1,2,3\n"), edge_columns="kind").n_edges == 1
        ),
    ),
    "a column without values": Case(
        lambda: imported(table("null.csv", "src,dst,w\n1,2,\n2,3,\n"), edge_columns="w"),
        "state its type with --types w:int",
        lambda: (
            imported(
                table("null.csv", "src,dst,w\n1,2,1\n2,3,4\n"), edge_columns="w", types={"w": "int"}
            ).n_edges
            == 2
        ),
    ),
    "texts as attributes": Case(
        lambda: imported(table("kind.csv", "src,dst,w\n1,2,a\n2,3,b\n"), edge_attr="w"),
        "--edge-columns",
        lambda: imported("kind.csv", edge_columns="w").n_edges == 2,
    ),
    "two columns of a name": Case(
        lambda: imported(table("twice.csv", "src,dst,w,w\n1,2,3,4\n")),
        "read the file without a header|rename one",
        lambda: imported(table("twice.csv", "src,dst,w,v\n1,2,3,4\n")).n_edges == 1,
    ),
    "a store that is there": Case(
        lambda: (
            imported({"src": [0], "dst": [1]}),
            gt.import_graph({"src": [0], "dst": [1]}, to=sorted(Path.cwd().glob("store-*"))[0]),
        ),
        "choose another|another folder|--to",
        lambda: gt.import_graph({"src": [0], "dst": [1]}, to="another"),
    ),
}


def nodes_of_two_kinds() -> Any:
    import networkx as nx

    g = nx.DiGraph()
    g.add_edge(1, "a")
    return g


def small_model() -> gt.Model:
    class Small(gt.Model):
        def __init__(self, d_in=3, d_out=2, hidden=2):
            self.first = gt.Linear(d_in, hidden)
            self.last = gt.Linear(hidden, d_out)
            self.layer = gt.Layer()

        def forward(self, g):
            return self.layer(g, self.last(self.first(g.x)))

    return Small()


CASES = {**ARRAYS, **KEYS, **TABLES}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.filterwarnings("ignore")
def test_a_remedy_works(case: Case) -> None:
    with pytest.raises(GraphThetaError, match=case.words):
        case.wrong()
    assert case.right()


def test_a_run_that_stopped_is_continued(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *SMALL, "--checkpoint-every", "1", "--out", "run"]) == 0
    for name in ("weights.safetensors", "metrics.jsonl", "result.json"):
        Path("run", name).unlink()
    for words in (["evaluate", "run"], ["report", "run"]):
        capsys.readouterr()
        assert main(words) == 2
        told = capsys.readouterr().err
        assert "the run has not ended" in told
        remedy = told.strip().partition("continue it with graphtheta ")[2].split()
    assert main(remedy) == 0
    assert main(["evaluate", "run"]) == 0 and json.loads(Path("run/result.json").read_text())


def test_a_graph_that_does_not_fit_is_no_fault_of_the_layers() -> None:
    with pytest.raises(
        GraphThetaError, match=r"the graph does not fit into memory.*import it as a store"
    ):
        gt.Trainer(job=gt.Job(dataset=f"sbm:n_nodes={2**40}"))
