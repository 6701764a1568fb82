"""What users get wrong: one clear error that says what, where and what to do, on all workers
together.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.cli import doctor
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import (
    ColumnError,
    ConfigError,
    DataError,
    FormatError,
    GraphThetaError,
    PartitionError,
    ShapeError,
    UserFunctionError,
)

pytestmark = pytest.mark.reference

MPIEXEC = doctor.find_mpiexec()
N, E = 30, 120
TINY = (
    "--dataset",
    "sbm:n_nodes=60,n_edges=300,classes=3,features=4",
    "--epochs",
    "1",
    "--backend",
    "reference",
)


def graph(**changes: Any) -> gt.Graph:
    """A small graph with everything, and one thing changed."""
    rng = np.random.default_rng(0)
    part = np.arange(N) % 3
    fields = dict(
        x=rng.standard_normal((N, 4)),
        y=rng.integers(0, 3, N),
        n_classes=3,
        train=part == 0,
        val=part == 1,
        test=part == 2,
    )
    edges = changes.pop("edge_index", rng.integers(0, N, (2, E)))
    return gt.Graph(edges, N, **{**fields, **changes})


def fit(model: Any = "gcn", on: Any = None, **keys: Any) -> Callable[..., Any]:
    """Train for an epoch, later."""
    keys = {"epochs": 1, "backend": "reference", **keys}
    return lambda comm=None: gt.Trainer(
        model, graph() if on is None else on(), comm=comm, **keys
    ).fit()


def layer(**functions: Any) -> Callable[..., Any]:
    """Train a model of one layer of a user's functions, later."""
    mine = type("Mine", (gt.Layer,), functions)

    class Net(gt.Model):
        def __init__(self, d_in, d_out):
            self.layer = mine()
            self.weight = gt.Parameter.glorot(d_in, d_out)

        def forward(self, g):
            return gt.matmul(self.layer(g, g.x), self.weight)

    return fit(Net)


class Good(gt.Model):
    """A model that works."""

    def __init__(self, d_in, d_out, hidden=8):
        self.weight = gt.Parameter.glorot(d_in, d_out)
        self.layer = gt.Layer()

    def forward(self, g):
        return self.layer(g, gt.matmul(g.x, self.weight))


class Deep(Good):
    """Runs two layers more than it says."""

    def forward(self, g):
        return self.layer(g, self.layer(g, super().forward(g)))


class Wide(Good):
    def __init__(self, d_in):
        super().__init__(d_in, 9)


class Silent(Good):
    def forward(self, g):
        self.layer(g, g.x)


class NoForward(gt.Model):
    def __init__(self, d_in):
        pass


class Needs(Good):
    def __init__(self, temperature):
        pass


class Plain(Good):
    """Leaves the features as they are."""

    def forward(self, g):
        return gt.matmul(self.layer(g, g.x), self.weight)


class Fickle(Good):
    """Runs more layers when it is trained than in the dry run."""

    def __init__(self, d_in, d_out):
        super().__init__(d_in, d_out)
        self.calls = 0

    def forward(self, g):
        self.calls += 1
        h = super().forward(g)
        return h if self.calls == 1 else self.layer(g, h)


Case = tuple[Callable[..., Any], type[GraphThetaError], list[str]]

DATA: dict[str, Case] = {
    "labels of another length": (
        lambda: graph(y=np.zeros(5, int)),
        ShapeError,
        ["y", "30 rows", "[5]"],
    ),
    "features of another length": (
        lambda: graph(x=np.zeros((7, 2))),
        ShapeError,
        ["x", "30 rows", "[7, 2]"],
    ),
    "edge weights of another length": (
        lambda: graph(edge_weight=np.ones(3)),
        ShapeError,
        ["edge_weight", "120 rows"],
    ),
    "edges by row": (
        lambda: graph(edge_index=[[0, 1], [1, 2], [2, 3]]),
        ShapeError,
        ["[3, 2]", "transpose"],
    ),
    "id out of range": (
        lambda: graph(edge_index=[[0, 1], [5, 40]]),
        DataError,
        ["edge 1", "40", "0..29"],
    ),
    "negative id": (
        lambda: graph(edge_index=[[0, -1], [5, 4]]),
        DataError,
        ["edge 1", "-1", "number them from 0"],
    ),
    "ids that are floats": (
        lambda: graph(edge_index=np.zeros((2, 3))),
        DataError,
        ["float64", "integers"],
    ),
    "NaN feature": (
        lambda: graph(x=np.where(np.arange(120).reshape(30, 4) == 9, np.nan, 1)),
        DataError,
        ["node 2, column 1 is nan"],
    ),
    "infinite edge attribute": (
        lambda: graph(edge_attr=np.full((E, 1), np.inf)),
        DataError,
        ["edge_attr", "edge 0", "inf"],
    ),
    "features that are text": (
        lambda: graph(x=np.full((N, 1), "a")),
        DataError,
        ["x", "real numbers"],
    ),
    "label outside the classes": (
        lambda: graph(y=np.arange(N)),
        DataError,
        ["node 3 has label 3", "0..2"],
    ),
    "label below -1": (
        lambda: graph(y=np.full(N, -5)),
        DataError,
        ["label -5", "-1 for unlabelled"],
    ),
    "mask of indices": (
        lambda: graph(train=[0, 1]),
        DataError,
        ["train", "bool mask", "mask[numbers] = True"],
    ),
    "masks that overlap": (
        lambda: graph(val=np.ones(N, bool)),
        DataError,
        ["train and val", "in both"],
    ),
    "trained without a label": (
        lambda: graph(y=np.full(N, -1)),
        DataError,
        ["train: node 0", "no label"],
    ),
    "ids twice": (lambda: graph(node_ids=["a"] * N), DataError, ["node_ids", "unique"]),
    "empty training set": (
        fit(on=lambda: graph(train=np.zeros(N, bool))),
        DataError,
        ["empty training set"],
    ),
    "no masks": (
        fit(on=lambda: graph(train=None, val=None, test=None)),
        DataError,
        ["no training mask", "split"],
    ),
    "no features": (fit(on=lambda: graph(x=None)), DataError, ["no node features x"]),
    "no edge targets": (fit(task="edge"), DataError, ["no labels for task 'edge'", "edge_y"]),
    "no edges to hold back": (
        fit(task="link", on=lambda: graph(edge_index=np.zeros((2, 0), int))),
        DataError,
        ["edges"],
    ),
    "numbers that explode": (
        fit(on=lambda: graph(x=np.full((N, 4), 3e38))),
        DataError,
        ["loss of step 1", "lower --lr"],
    ),
}
KEYS: dict[str, Case] = {
    "unknown key": (fit(hiden=3), ConfigError, ["'hiden'", "did you mean 'hidden'"]),
    "unknown value": (fit(strategy="minibatch"), ConfigError, ["strategy", "'mini'"]),
    "unknown model": (fit("gcnn"), ConfigError, ["'gcnn'", "did you mean 'gcn'"]),
    "unknown dataset": (lambda: gt.load("corra"), ConfigError, ["'corra'", "sbm"]),
    "unknown dataset option": (lambda: gt.load("sbm:nodes=3"), ConfigError, ["'nodes'", "n_nodes"]),
    "fanout of another depth": (
        fit(strategy="mini", fanout="3,3,3"),
        ConfigError,
        ["fanout=3,3,3", "layers"],
    ),
    "fanout and a user's model": (
        fit(Deep, strategy="mini", fanout="5,5"),
        ConfigError,
        ["fanout=5,5", "3 hop(s)", "one number per hop"],
    ),
    "sampling without mini": (fit(fanout="3"), ConfigError, ["fanout=3", "--strategy mini"]),
    "metric of another task": (fit(metric="mrr"), ConfigError, ["metric=mrr", "accuracy"]),
    "negatives without links": (fit(negatives=5), ConfigError, ["negatives=5", "--task link"]),
    "heads without attention": (
        fit(heads=3),
        ConfigError,
        ["heads=3", "model=gcn", "gat_e", "drop --heads"],
    ),
    "an option the class does not name": (
        fit(Good, heads=3),
        ConfigError,
        ["heads=3", "Good", "constructor has no such parameter"],
    ),
    "an option too late": (
        fit(Good(4, 3), hidden=32),
        ConfigError,
        ["hidden=32", "a model object", "gt.Trainer(Good, ...)"],
    ),
    "precision too late": (
        fit(Good(4, 3), dtype="float64"),
        ConfigError,
        ["weight of Good", "float32", "dtype=float64", "give the class"],
    ),
    "sizes of a split that is given": (
        lambda: gt.load("sbm", train_per_class=3),
        ConfigError,
        ["train_per_class", "--split random"],
    ),
    "several seeds": (fit(seeds=3), ConfigError, ["seeds=3", "make one trainer for each seed"]),
    "more clusters than found": (
        fit(strategy="cluster", clusters=29),
        ConfigError,
        ["Louvain found", "--clusters 0", "metis"],
    ),
    "more clusters per batch than there are": (
        fit(strategy="cluster", clusters_per_batch=99),
        ConfigError,
        ["clusters_per_batch: got 99"],
    ),
    "cluster file that is missing": (
        fit(strategy="cluster", cluster_method="none.npy"),
        ConfigError,
        ["none.npy", "file"],
    ),
    "unknown split": (
        lambda: gt.Trainer("gcn", graph(), epochs=0).evaluate("testing"),
        ConfigError,
        ["'testing'", "did you mean 'test'"],
    ),
    "weights that are missing": (
        lambda: gt.Trainer("gcn", graph()).load("gone.npz"),
        FormatError,
        ["gone.npz: cannot be read"],
    ),
    "weights in a place that is not": (
        lambda: gt.Trainer("gcn", graph()).save("/dev/null/w.npz"),
        FormatError,
        ["w.npz", "be written"],
    ),
    "edge model without attributes": (fit("gat_e"), ConfigError, ["gat_e", "edge_attr"]),
}
MODELS: dict[str, Case] = {
    "a layer": (fit(gt.Layer()), ConfigError, ["Layer is a layer", "gt.Model", "forward"]),
    "a class of layers": (
        fit(type("Mine", (gt.Layer,), {})),
        ConfigError,
        ["Mine is a layer", "gt.Model"],
    ),
    "a number": (fit(3), ConfigError, ["Trainer: model is 3", "a gt.Model"]),
    "arguments swapped": (
        lambda: gt.Trainer(graph(), Good),
        ConfigError,
        ["Trainer: model is a value of type Graph"],
    ),
    "a name for the graph": (
        lambda: gt.Trainer(Good, "cora"),
        ConfigError,
        ["graph is 'cora'", "gt.load"],
    ),
    "a constructor that needs more": (
        fit(Needs),
        ConfigError,
        ["Needs needs temperature", "default"],
    ),
    "a function that makes no model": (
        fit(lambda d_in: None),
        ConfigError,
        ["returned NoneType", "gt.Model"],
    ),
    "no forward": (fit(NoForward), UserFunctionError, ["forward of NoForward is missing"]),
    "forward returns nothing": (
        fit(Silent),
        UserFunctionError,
        ["forward of Silent returned NoneType"],
    ),
    "another number of classes": (
        fit(Wide),
        ConfigError,
        ["Wide returns rows of shape [9]", "3 classes"],
    ),
    "values of nodes for links": (
        fit(Good, task="link"),
        ConfigError,
        ["Good returns values of nodes", "'link'", "decoder"],
    ),
    "more layers than in the dry run": (
        fit(Fickle),
        GraphThetaError,
        ["more layers than the 1", "same layers in every forward pass"],
    ),
    "edges read sparse features": (
        fit(Plain, on=lambda: graph(x=sp.eye_array(N, 40).tocsr())),
        ColumnError,
        ["edge.src.h", "sparse", "gt.to_dense(node.h)", "gt.matmul(node.h"],
    ),
    "gt.check of a class": (
        lambda: gt.check(gt.Layer),
        ConfigError,
        ["layer is the class Layer", "such as Layer(...)"],
    ),
}
FUNCTIONS: dict[str, Case] = {
    "gather: missing column": (
        layer(gather=lambda s, e: e.src.z),
        ColumnError,
        ["gather of Mine", "edge.src.z", "offers h"],
    ),
    "gather: missing value": (
        layer(gather=lambda s, e: e.attr * e.src.h),
        ColumnError,
        ["gather of Mine", "edge.attr", "edge.weight"],
    ),
    "gather: condition": (
        layer(gather=lambda s, e: e.src.h if e.weight else 0),
        UserFunctionError,
        ["gather of Mine", "condition"],
    ),
    "gather: comparison": (
        layer(gather=lambda s, e: e.src.h if e.weight > 0 else 0),
        UserFunctionError,
        ["gather of Mine", "gt.where"],
    ),
    "gather: NumPy": (
        layer(gather=lambda s, e: np.exp(e.src.h)),
        UserFunctionError,
        ["gather of Mine", "NumPy's exp", "use gt.exp"],
    ),
    "gather: loop": (
        layer(gather=lambda s, e: sum(v for v in e.src.h)),
        UserFunctionError,
        ["gather of Mine", "looped over", "x[..., i]"],
    ),
    "gather: float()": (
        layer(gather=lambda s, e: float(e.weight) * e.src.h),
        UserFunctionError,
        ["gather of Mine", "one Python number"],
    ),
    "gather: len()": (
        layer(gather=lambda s, e: len(e.src.h) * e.src.h),
        UserFunctionError,
        ["gather of Mine", "test_bad_input.py, line"],
    ),
    "gather: a method of arrays": (
        layer(gather=lambda s, e: e.src.h.T),
        UserFunctionError,
        ["gather of Mine", "'T'", "functions of gt"],
    ),
    "gather: nothing": (
        layer(gather=lambda s, e: None),
        UserFunctionError,
        ["gather of Mine returned NoneType"],
    ),
    "gather: a row": (
        layer(gather=lambda s, e: e.src.h[0]),
        ShapeError,
        ["gather of Mine", "row axis"],
    ),
    "transform: no dict": (
        layer(transform=lambda s, n: n.h),
        UserFunctionError,
        ["transform of Mine returned Var", "dict"],
    ),
    "transform: labels": (
        layer(transform=lambda s, n: {"h": n.y}),
        ColumnError,
        ["transform of Mine", "node.y"],
    ),
    "transform: other rows": (
        layer(transform=lambda s, n: {"h": np.ones((3, 4))}),
        UserFunctionError,
        ["h = [3, 4]", "one row for each"],
    ),
    "transform: width": (
        layer(transform=lambda s, n: {"h": gt.matmul(n.h, np.ones((7, 3)))}),
        ShapeError,
        ["transform of Mine", "[7, 3]"],
    ),
    "transform: softmax": (
        layer(transform=lambda s, n: {"h": gt.softmax(n.h)}),
        UserFunctionError,
        ["transform of Mine", "inside gather"],
    ),
    "apply: row axis": (
        layer(apply=lambda s, n, t: t.sum(0)),
        ShapeError,
        ["apply of Mine", "1 axis after the rows: use axis -1,"],
    ),
    "apply: number": (
        layer(apply=lambda s, n, t: 1.0),
        UserFunctionError,
        ["apply of Mine returned float", "one row for each node"],
    ),
    "apply: condition": (
        layer(apply=lambda s, n, t: t if t > 0 else n.h),
        UserFunctionError,
        ["apply of Mine", "gt.where"],
    ),
    "apply: several totals": (
        layer(sum=["mean", "max"]),
        UserFunctionError,
        ["apply of Mine", "gt.concat"],
    ),
    "sum: unknown": (layer(sum="avg"), ConfigError, ["Mine", "'avg'", "mean"]),
    "sum: a method": (layer(sum=lambda s, e: e), UserFunctionError, ["Mine.sum", "aggregator"]),
    "direction: unknown": (
        layer(direction="up"),
        UserFunctionError,
        ["Mine.direction", "in, out, both"],
    ),
}
CASES = {
    f"{group}: {name}": case
    for group, cases in (
        ("data", DATA),
        ("keys", KEYS),
        ("models", MODELS),
        ("functions", FUNCTIONS),
    )
    for name, case in cases.items()
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.filterwarnings("error")
def test_a_mistake_is_named(case: Case) -> None:
    attempt, kind, words = case
    with pytest.raises(kind) as caught:
        attempt()
    told = str(caught.value)
    assert [word for word in words if word not in told] == [], told
    assert "\n" not in told and " 0 nodes" not in told and told.count("forward of") <= 1


@pytest.mark.parametrize(
    ("stage", "model"),
    [
        ("transform of Mine", layer(transform=lambda s, n: [][1])),
        ("gather of Mine", layer(gather=lambda s, e: e.src.h * [][1])),
        ("apply of Mine", layer(apply=lambda s, n, t: [][1])),
        ("forward of Broken", fit(type("Broken", (Good,), {"forward": lambda s, g: [][1]}))),
        ("constructor of Broken", fit(type("Broken", (Good,), {"__init__": lambda s: [][1]}))),
    ],
)
def test_a_bug_keeps_its_class_and_is_located(stage: str, model: Callable[..., Any]) -> None:
    with pytest.raises(IndexError, match="list index out of range") as caught:
        model()
    assert caught.value.__notes__ == [f"raised in {stage}"]
    assert caught.traceback[-1].path.name == "test_bad_input.py"


# only rank 0 writes
ALONE = "keys: weights in a place that is not"


@pytest.mark.parametrize("name", [name for name in CASES if name != ALONE])
def test_all_workers_fail_alike(name: str) -> None:
    attempt, kind, words = CASES[name]

    def program(comm):
        with pytest.raises(kind) as caught:
            run_on(attempt, comm)
        return str(caught.value).removeprefix("rank 0: ")

    told = run_simulated(2, program)
    assert words[0] in told[0] and len(set(told)) == 1


def run_on(attempt: Callable[..., Any], comm: Any) -> None:
    """Make a mistake on the workers of comm, if it is one that they make together."""
    attempt(*([comm] if signature(attempt).parameters else []))


def test_more_workers_than_nodes() -> None:
    small = gt.Graph(
        ([0, 1, 2], [1, 2, 0]), x=np.eye(3), y=np.arange(3) % 2, train=np.ones(3, bool)
    )

    def program(comm):
        with pytest.raises(PartitionError, match="3 nodes and the job 5 ranks; start at most 3"):
            fit(on=lambda: small)(comm)

    run_simulated(5, program)


# ---- commands


USER_FILES = {
    "syntax.py": "import graphtheta as gt\nclass Net(gt.Model:\n",
    "raises.py": "import graphtheta as gt\n\nvalue = {}['missing']\n",
    "other.py": "import graphtheta as gt\nclass Net(gt.Layer): pass\nclass Real(gt.Model): pass\n",
    "nodes.py": (
        "import graphtheta as gt\nclass Net(gt.Model):\n    def __init__(self, d_in, d_out):\n"
        "        self.layer, self.w = gt.Layer(), gt.Parameter.glorot(d_in, d_out)\n"
        "    def forward(self, g):\n        return self.layer(g, gt.matmul(g.x, self.w))[..., 0]\n"
    ),
    "gather.py": (
        "import graphtheta as gt\nclass Mine(gt.Layer):\n    def gather(self, edge):\n       "
        " return edge.src.z\nclass Net(gt.Model):\n    def __init__(self):\n        self.layer ="
        " Mine()\n    def forward(self, g):\n        return self.layer(g, g.x)\n"
    ),
    "job.yaml": "lr: [1\n",
    "list.yaml": "- 1\n",
    "taken": "a file",
}
COMMANDS: dict[str, tuple[tuple[str, ...], int, list[str]]] = {
    "no such command": (("trian",), 2, ["did you mean 'train'"]),
    "no such flag": (
        ("train", "--batchsize", "3"),
        2,
        ["--batchsize", "did you mean '--batch-size'"],
    ),
    "not a number": (("train", "--lr", "abc"), 2, ["lr: got 'abc'"]),
    "no such preset": (("train", "--preset", "cora-gcm"), 2, ["did you mean 'cora-gcn'"]),
    "no such key in a file": (("train", "--config", "keys.yaml"), 2, ["'hiden'"]),
    "broken YAML": (("train", "--config", "job.yaml"), 1, ["job.yaml: cannot be read"]),
    "YAML of another kind": (("train", "--config", "list.yaml"), 1, ["list.yaml", "a list"]),
    "missing graph file": (("train", "--dataset", "gone.npz"), 1, ["gone.npz"]),
    "truncated graph file": (("train", "--dataset", "cut.npz"), 1, ["cut.npz", "damaged"]),
    "a file that is no graph": (
        ("info", "--dataset", "nograph.npz"),
        1,
        ["nograph.npz", "edge_index"],
    ),
    "missing model file": (("train", "--model", "gone.py:Net"), 2, ["gone.py does not exist"]),
    "model file with a syntax error": (
        ("train", "--model", "syntax.py:Net"),
        2,
        ["syntax.py", "SyntaxError", "line 2"],
    ),
    "model file that raises": (
        ("train", "--model", "raises.py:Net"),
        2,
        ["raises.py", "KeyError: 'missing' (line 3)"],
    ),
    "no such class": (("train", "--model", "other.py:Nett"), 2, ["no class Nett", "Real"]),
    "a layer for a model": (
        ("train", "--model", "other.py:Net"),
        2,
        ["a layer runs inside a model"],
    ),
    "one output for three classes": (
        ("train", *TINY, "--model", "nodes.py:Net"),
        2,
        ["Net returns", "3 classes"],
    ),
    "missing column": (
        ("train", *TINY, "--model", "gather.py:Net"),
        1,
        ["gather of Mine reads edge.src.z", "offers h"],
    ),
    "folder that is a file": (("train", *TINY, "--out", "taken"), 1, ["taken", "--out"]),
    "folder in a file": (("train", *TINY, "--out", "taken/run"), 1, ["taken/run", "--out"]),
    "heads for a model without": (("train", *TINY, "--heads", "3"), 2, ["heads=3", "drop --heads"]),
    "loss that diverges": (
        ("train", *TINY, "--lr", "1e30", "--epochs", "9", "--weight-decay", "1e10"),
        1,
        ["loss of an evaluation", "lower --lr"],
    ),
    "not a run": (("evaluate", "nowhere"), 2, ["nowhere: the folder has no job.yaml"]),
    "several runs": (("evaluate", "seeds"), 2, ["seeds holds runs of several seeds", "seed-0"]),
    "weights of another model": (
        ("evaluate", "run", "--hidden", "9"),
        2,
        ["weight", "the model needs"],
    ),
    "weights of another kind of model": (
        ("evaluate", "run", "--model", "gat"),
        2,
        ["weights do not fit the model"],
    ),
    "truncated weights": (("predict", "cut"), 1, ["weights.safetensors", "damaged"]),
    "predictions of another type": (("predict", "run", "--to", "p.xlsx"), 2, ["p.xlsx", ".csv"]),
    "predictions that cannot be written": (
        ("predict", "run", "--to", "taken/p.csv"),
        1,
        ["taken/p.csv", "cannot be written"],
    ),
    "no workers": (("info", "--ranks", "0"), 2, ["--ranks", "from 1 to"]),
}
# before the workers are joined, while they train, and when they read a run; data are among the
# mistakes in turns
ON_TWO = ["no such flag", "loss that diverges", "truncated weights"]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run and with files that are wrong in many ways."""
    here = tmp_path_factory.mktemp("bad_input")
    for name, text in {**USER_FILES, "keys.yaml": "hiden: 3\n"}.items():
        (here / name).write_text(text)
    np.savez(here / "whole.npz", edge_index=np.zeros((2, 4000), np.int64), x=np.ones((9, 2)))
    (here / "cut.npz").write_bytes((here / "whole.npz").read_bytes()[:9000])
    np.savez(here / "nograph.npz", a=np.ones(3))
    for name in ("run", "cut", "seeds/seed-0"):
        assert main(["train", *TINY, "--out", str(here / name)]) == 0
    weights = here / "cut" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-300])
    return here


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_fails_with_one_line(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words, code, told = COMMANDS[name]
    monkeypatch.chdir(folder)
    capsys.readouterr()
    assert main(list(words)) == code
    err = capsys.readouterr().err
    assert [word for word in told if word not in err] == [], err
    assert err.count("\n") == 1 and "Traceback" not in err and "Warning" not in err


def on_two(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    if MPIEXEC is None:
        pytest.skip("MPI is not installed")
    return subprocess.run(
        [str(MPIEXEC), "-n", "2", sys.executable, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ON_TWO)
def test_a_command_on_two_workers_fails_once(name: str, folder: Path) -> None:
    words, code, told = COMMANDS[name]
    done = on_two(folder, "-m", "graphtheta", *words)
    assert done.returncode == code, done.stderr
    assert [word for word in told if word not in done.stderr] == [], done.stderr
    assert (
        done.stderr.count("\n") == 1
        and "Traceback" not in done.stderr
        and "Warning" not in done.stderr
    )


def test_all_mistakes_on_two_workers_in_turns(folder: Path) -> None:
    """Each is raised on both workers with the same message, and both go on to the next."""
    done = on_two(folder, str(Path(__file__).with_name("bad_input_program.py")))
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert len(told) >= 150 and {name for name, *_ in told} >= set(CASES)
    assert [row for row in told if row[0] != ALONE and (row[1] != row[2] or not row[1])] == []


@pytest.mark.one_in(11)
@pytest.mark.parametrize(
    ("script", "code", "told"),
    [
        ("gt.load('corra')", 2, "there is no dataset or file 'corra'"),
        ("gt.Trainer('gcn', gt.load('ring'), hiden=3)", 2, "unknown key 'hiden'"),
        ("gt.Graph([[0, 9], [1, 2]], 5)", 1, "edge 1 has source 9"),
        (
            (
                "rank = gt.start().rank\nif rank == 1: gt.load('corra')\ngt.Trainer('gcn',"
                " gt.load('sbm'), epochs=1).fit()"
            ),
            2,
            "'corra'",
        ),
        (
            "if gt.start().rank == 1: [][1]\ngt.start().barrier()",
            1,
            "IndexError: list index out of range",
        ),
        ("gt.Layer\n[][1]", 1, "IndexError: list index out of range"),
    ],
)
def test_a_script_on_two_workers_fails_once(
    script: str, code: int, told: str, folder: Path
) -> None:
    done = on_two(folder, "-c", f"import graphtheta as gt\n{script}")
    assert done.returncode == code, done.stderr
    assert done.stderr.count(told) == 1, done.stderr
