"""What newcomers get wrong on the way from their tables to predictions.

Each mistake is told in a line with its cause, and what the line advises works.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.base.other_names import INSTEAD
from graphtheta.cli import doctor
from graphtheta.errors import GraphThetaError

pytestmark = pytest.mark.reference

MPIEXEC = doctor.find_mpiexec()
N = 24
TINY = "--epochs 1 --hidden 4 --backend reference"
EDGES = "import --edges transfers.csv --src from --dst to"
NODES = f"{EDGES} --nodes accounts.csv"
FILES = {
    "accounts.csv": "id,city,age,kind\n"
    + "".join(
        f"A{i},{('Bern', 'Rome')[i % 2]},{20 + i},{('good', 'bad')[i % 3 == 0]}\n" for i in range(N)
    ),
    "transfers.csv": "from,to,amount\n"
    + "".join(f"A{i},A{(i * 7 + j) % N},{i + j}\n" for i in range(N) for j in (1, 2, 3)),
    "semicolons.csv": "from;to\nA1;A2\nA2;A3\n",
    "no_header.csv": "A1,A2\nA2,A3\n",
    "e.csv": "src,dst\n1,2\n2,3\n3,1\n",
    "zeros.csv": "id,x\n001,2\n002,3\n003,5\n",
    "plain.csv": "id,x\n1,2\n2,3\n3,5\n",
    "floats.csv": "src,dst\n1.0,2.0\n2.0,3.0\n",
    "spaces.csv": "id,x\nA 1,2\nA 2,3\n",
    "spaced_edges.csv": "src,dst\nA 1, A 2\n",
    "unknown.csv": "src,dst\n1,2\n2,9\n",
    "one_class.csv": "id,x,y\n1,2,a\n2,3,a\n3,5,a\n",
    "no_class.csv": "id,x,y\n1,2,\n2,3,\n3,5,\n",
    "decimal.csv": 'id,x\n1,"2,5"\n2,3\n3,4\n',
    "twice.csv": "id,x\n1,2\n1,3\n3,4\n",
    "net.py": (
        "import graphtheta as gt\n\n\nclass Net(gt.Model):\n    def __init__(self, d_in, d_out):\n"
        "        self.last = gt.Linear(d_in, d_out)\n\n    def forward(self, graph):\n"
        "        return self.last(graph.x)\n"
    ),
    "broken.py": "import graphteta as gt\n",
    "keys.yaml": "epochs = 3\n",
    "train.py": "import graphtheta as gt\n",
}


class Mistake(NamedTuple):
    """A command that fails, and one that works.

    Attributes:
        wrong: The words after ``graphtheta``.
        told: Of the message, a regular expression.
        right: The words that follow its advice; none if it says what is wrong with a file.
    """

    wrong: str
    told: str
    right: str = ""


IMPORTS = {
    "a wrong path": Mistake(
        f"{EDGES.replace('transfers', 'transfer')} --to a.store",
        r"transfer\.csv: the file does not exist; check the path",
        f"{EDGES} --to a.store",
    ),
    "a table as a graph": Mistake(
        "import transfers.csv --to b.store",
        r"for a table of edges: graphtheta import --edges transfers\.csv --to transfers\.store",
        f"{EDGES} --to b.store",
    ),
    "nodes without edges": Mistake(
        "import --nodes accounts.csv --to c.store",
        r"--edges is missing; give the table of edges",
        f"{NODES} --to c.store",
    ),
    "no names of the ends": Mistake(
        "import --edges transfers.csv --to d.store",
        r"no column 'src'; the columns are from, to, amount; choose one with --src",
        f"{EDGES} --to d.store",
    ),
    "a separator of its own": Mistake(
        "import --edges semicolons.csv --separator , --src from --dst to --to e.store",
        r"no column 'from'",
        "import --edges semicolons.csv --src from --dst to --to e.store",
    ),
    "no header": Mistake(
        "import --edges no_header.csv --to f.store",
        r"read a file without a header with --no-header",
        "import --edges no_header.csv --no-header --src 0 --dst 1 --to f.store",
    ),
    "leading zeros": Mistake(
        "import --edges e.csv --nodes zeros.csv --features x --to g.store",
        r"e\.csv, line 2: column 'src': no node has the id '1', but one has '001'.*"
        r"(?s:.*)zeros in front of ids are lost where they are read as numbers; read the ids",
        "import --edges e.csv --nodes plain.csv --features x --to g.store",
    ),
    "spaces in ids": Mistake(
        "import --edges spaced_edges.csv --nodes spaces.csv --features x --to h.store"
        " --on-bad-row explode",
        r"on.bad.row.*'explode'",
        "import --edges spaced_edges.csv --nodes spaces.csv --features x --to h.store",
    ),
    "an unknown node": Mistake(
        "import --edges unknown.csv --nodes plain.csv --features x --to j.store",
        r"(?s)1 bad row.*--on-bad-row skip.*line 3: column 'dst': no node has the id '9'",
        "import --edges unknown.csv --nodes plain.csv --features x --to j.store --on-bad-row skip",
    ),
    "an id twice": Mistake(
        "import --edges e.csv --nodes twice.csv --features x --to k.store",
        r"line 3: column 'id': an earlier row has the id '1' too",
    ),
    "a column mistyped": Mistake(
        f"{NODES} --label knd --to l.store",
        r"no column 'knd' \(did you mean 'kind'\?\)",
        f"{NODES} --label kind --to l.store",
    ),
    "a flag mistyped": Mistake(
        f"{NODES} --lable kind --to m.store",
        r"unknown flag --lable \(did you mean '--label'\?\)",
        f"{NODES} --label kind --to m.store",
    ),
    "columns with spaces": Mistake(
        f"{NODES} --features age id --to n.store",
        r"several values are separated by commas: --features age,id",
    ),
    "a comma in numbers": Mistake(
        "import --edges e.csv --nodes decimal.csv --features x --to o.store",
        r"line 2: column 'x': '2,5' is not a number",
    ),
    "shares as the split": Mistake(
        f"{NODES} --split 0.8,0.1,0.3 --to p.store",
        r"no column '0.8'.*choose one with --split",
        f"{NODES} --label kind --to p.store",
    ),
    "no label anywhere": Mistake(
        "import --edges e.csv --nodes no_class.csv --features x --label y --to q.store",
        r"the column 'y' has no values at the beginning; state its type with --types y:int",
        "import --edges e.csv --nodes no_class.csv --features x --label y --to q.store"
        " --types y:int",
    ),
    "no store to write": Mistake(
        f"{EDGES}", r"--to is missing; give the folder to write", f"{EDGES} --to r.store"
    ),
    "a store that is there": Mistake(
        f"{NODES} --to bank.store", r"exists already; choose another folder, or remove it"
    ),
}
TRAINING = {
    "no such store": Mistake(
        "train --dataset bank.stroe",
        r"bank\.stroe: the file or folder does not exist; check the path",
        f"train --dataset bank.store {TINY} --out a",
    ),
    "a folder of something else": Mistake(
        "train --dataset run",
        r"run: the folder is no store.*give the folder that graphtheta import --to has made",
        f"train --dataset bank.store {TINY} --out b",
    ),
    "the graph without its flag": Mistake(
        "train bank.store",
        r"unexpected argument 'bank.store'.*; a graph is given as --dataset bank.store",
        f"train --dataset bank.store {TINY} --out c",
    ),
    "no features": Mistake(
        f"train --dataset bare.store {TINY}",
        r"no node features.*--features COLUMNS.*--structural-features degree.*--embedding WIDTH",
        f"train --dataset bare.store {TINY} --structural-features degree --out d",
    ),
    "no features, learned": Mistake(
        f"train --dataset bare.store {TINY}",
        r"--embedding WIDTH",
        f"train --dataset bare.store {TINY} --embedding 4 --out e",
    ),
    "no labels": Mistake(
        f"train --dataset blank.store {TINY}",
        r"no node has a label, so there is nothing to train on; .*--label",
    ),
    "a task that has no labels": Mistake(
        f"train --dataset bank.store {TINY} --task edge",
        r"no labels for task 'edge'; give it edge_y, or choose another --task",
        f"train --dataset bank.store {TINY} --task node --out f",
    ),
    "negatives of nodes": Mistake(
        f"train --dataset bank.store {TINY} --negatives 3",
        r"negatives=3 has no meaning with task=node; drop --negatives, or give --task link",
        f"train --dataset bank.store {TINY} --negatives 3 --task link --out g",
    ),
    "shares as a split": Mistake(
        f"train --dataset bank.store {TINY} --split 0.8,0.1,0.3",
        r"split: unknown value '0.8,0.1,0.3'; allowed: .*fraction",
        f"train --dataset bank.store {TINY} --split fraction --out h",
    ),
    "a GPU": Mistake(
        "train --device cuda",
        r"unknown flag --device \(everything is computed on CPUs; leave it out\)",
        f"train --dataset bank.store {TINY} --out i",
    ),
    "GPUs": Mistake("train --gpus=1", r"unknown flag --gpus \(everything is computed on CPUs"),
    "workers as a flag": Mistake(
        "train --num-workers 2", r"unknown flag --num-workers \(workers are processes: .*mpiexec -n"
    ),
    "a loss": Mistake(
        "train --loss mse", r"unknown flag --loss \(the loss follows from the labels"
    ),
    "a learning rate": Mistake(
        "train --learning-rate 0.1",
        r"did you mean '--lr'\?",
        f"train --dataset bank.store {TINY} --lr 0.1 --out j",
    ),
    "a rate in words": Mistake("train --lr fast", r"lr: got 'fast', expected a number"),
    "one dash": Mistake(
        "train -epochs 1",
        r"did you mean '--epochs'\?",
        f"train --dataset bank.store {TINY} --epochs 1 --out k",
    ),
    "a batch of a whole graph": Mistake(
        f"train --dataset bank.store {TINY} --batch-size 4",
        r"batch_size=4 has no meaning with strategy=global, only with mini; .*--strategy mini",
        f"train --dataset bank.store {TINY} --batch-size 4 --strategy mini --out l",
    ),
    "a model of another library": Mistake(
        "train --model GCNConv",
        r"did you mean 'gcn'\?",
        f"train --dataset bank.store {TINY} --model gcn --out m",
    ),
    "a file without its class": Mistake(
        "train --model net.py",
        r"'net\.py' is a file; name its class too, as net\.py:Net",
        "train --dataset bank.store --epochs 1 --model net.py:Net --out n",
    ),
    "another class": Mistake(
        "train --model net.py:Model", r"net\.py has no class Model; it has Net"
    ),
    "a file that fails": Mistake(
        "train --model broken.py:Net",
        r"cannot be imported: ModuleNotFoundError: No module named 'graphteta' \(line 1\)",
    ),
    "no file of keys": Mistake(
        "train --config job.yml", r"job\.yml: the file does not exist; check the path"
    ),
    "keys with =": Mistake("train --config keys.yaml", r"expected lines of 'key: value'"),
    "a finished run": Mistake(
        f"train --dataset bank.store {TINY} --out run",
        r"run holds a finished run; go on with it with --resume .*--out .*--overwrite",
        f"train --dataset bank.store {TINY} --out run --resume",
    ),
    "a file in the way": Mistake(
        f"train --dataset bank.store {TINY} --out e.csv",
        r"e\.csv: the run cannot be written: there is a file",
    ),
    "a folder that cannot be made": Mistake(
        f"train --dataset bank.store {TINY} --out /proc/run",
        r"/proc/run: .*cannot be written: .*; choose another with --out",
        f"train --dataset bank.store {TINY} --out o",
    ),
}
AFTERWARDS = {
    "no run": Mistake(
        "predict nowhere",
        r"nowhere: the folder has no job\.yaml; give the output folder that `graphtheta train`",
        "predict run --to predictions.csv",
    ),
    "the store for the run": Mistake(
        "evaluate bank.store", r"bank\.store: the folder has no job\.yaml", "evaluate run"
    ),
    "no folder": Mistake("predict", r"required: RUN", "predict run --to more.csv"),
    "a run that has not ended": Mistake(
        "predict half",
        r"the run has not ended.*continue it with graphtheta train --config half/job\.yaml"
        r" --out half --resume",
        "train --config half/job.yaml --out half --resume",
    ),
    "a run without a report": Mistake("report nowhere", r"nowhere: the folder has no job\.yaml"),
    "no runs": Mistake("runs nowhere", r"nowhere: there is no such folder; give a folder of runs"),
    "other columns": Mistake(
        "predict run --dataset bare.store --to other.csv",
        r"unlike .*, on which the model was trained, has no node features in x; expected 1",
        "predict run --dataset later.store --to other.csv",
    ),
    "a spreadsheet": Mistake(
        "predict run --to p.xlsx",
        r"expected a name that ends in \.npz or \.csv",
        "predict run --to p.csv",
    ),
    "a folder that cannot be written": Mistake(
        "predict run --to /proc/p.csv", r"/proc/p\.csv: the file cannot be written"
    ),
    "a key of training": Mistake(
        "predict run --lr 0.1", r"lr=0\.1 has no meaning for run, whose training is over; drop --lr"
    ),
    "a split mistyped": Mistake(
        "evaluate run --on testing",
        r"invalid choice: 'testing' \(choose from",
        "evaluate run --on test",
    ),
    "a command mistyped": Mistake(
        "pred run", r"unknown command 'pred' \(did you mean 'predict'\?\)"
    ),
    "workers behind launch": Mistake(
        "launch train -n 2", r"unknown flag -n \(workers are processes"
    ),
}
COMMANDS = {**IMPORTS, **TRAINING, **AFTERWARDS}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of a bank, stores made of them, a run that has ended, and one that has not."""
    here = tmp_path_factory.mktemp("newcomer")
    for name, text in FILES.items():
        (here / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        for words in (
            f"{NODES} --features age --label kind --to bank.store",
            f"{NODES} --features age --to later.store",
            f"{NODES} --label kind --to bare.store",
            "import --edges e.csv --nodes no_class.csv --features x --label y --types y:int"
            " --to blank.store",
            f"train --dataset bank.store {TINY} --out run",
        ):
            assert main(words.split()) == 0
        Path("half").mkdir()
        shutil.copy("run/job.yaml", "half")
    return here


@pytest.fixture(autouse=True)
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


@pytest.mark.parametrize("mistake", COMMANDS.values(), ids=COMMANDS)
def test_a_mistake_at_the_command_line(
    mistake: Mistake, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(shlex.split(mistake.wrong)) in (1, 2)
    err = capsys.readouterr().err
    assert re.search(mistake.told, err), err
    assert "Traceback" not in err
    # a table may have many bad rows
    assert err.count("\n") == 1 or "bad row" in err
    if mistake.right:
        assert main(shlex.split(mistake.right)) == 0, capsys.readouterr().err


def graph(**fields: Any) -> gt.Graph:
    part = np.arange(N) % 3
    given = {
        "x": np.eye(N, 4, dtype=np.float32),
        "y": np.arange(N) % 2,
        "train": part == 0,
        "val": part == 1,
        "test": part == 2,
    }
    edges = np.arange(N), (np.arange(N) * 5 + 1) % N
    return gt.Graph(edges, N, **{**given, **fields})


def fit(model: Any = "gcn", **keys: Any) -> Any:
    return gt.Trainer(model, graph(), epochs=1, **keys).fit()


class Mean(gt.Layer):
    sum = "mean"


class Net(gt.Model):
    def __init__(self, d_in: int, d_out: int):
        self.layer = Mean()
        self.last = gt.Linear(d_in, d_out)

    def forward(self, graph: Any) -> Any:
        return self.last(self.layer(graph, graph.x))


class OfTwo(Net):
    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.last(x)


class WithoutGraph(Net):
    def forward(self, graph: Any) -> Any:
        return self.last(self.layer(graph.x))


class Wide(Net):
    def __init__(self, d_in: int, d_out: int):
        super().__init__(d_in, 7)


def of_torch() -> Any:
    torch = pytest.importorskip("torch")
    return torch.nn.Linear(4, 2)


Program = tuple[Callable[[], Any], str, Callable[[], Any] | None]
PROGRAMS: dict[str, Program] = {
    "no such file": (
        lambda: gt.load("bank.stroe"),
        r"the file or folder does not exist; check the path",
        lambda: gt.load("bank.store"),
    ),
    "no such dataset": (
        lambda: gt.load("corra"),
        r"no dataset or file 'corra'; generated: sbm",
        lambda: gt.load("sbm:n_nodes=20,n_edges=40"),
    ),
    "a run for a graph": (
        lambda: gt.load("run"),
        r"the folder is no store",
        lambda: gt.open_run("run"),
    ),
    "a graph for a run": (
        lambda: gt.open_run("bank.store"),
        r"the folder has no job\.yaml",
        lambda: gt.open_run("run"),
    ),
    "the graph first": (
        lambda: gt.Trainer(graph(), "gcn"),
        r"model is a value of type Graph",
        lambda: gt.Trainer("gcn", graph()),
    ),
    "the name of a graph": (
        lambda: gt.Trainer("gcn", "ring"),
        r"graph is 'ring'; expected a gt\.Graph, such as gt\.load\('sbm'\)",
        lambda: gt.Trainer("gcn", gt.load("ring")),
    ),
    "labels of another length": (lambda: graph(y=np.zeros(5, int)), r"y.*24 rows.*\[5\]", None),
    "texts as labels": (
        lambda: graph(y=["a", "b"] * (N // 2)),
        r"np\.unique\(values, return_inverse=True\)\[1\]",
        lambda: graph(y=np.unique(["a", "b"] * (N // 2), return_inverse=True)[1]),
    ),
    "no labels": (
        lambda: gt.Trainer("gcn", graph(y=np.full(N, -1), train=None, val=None, test=None)),
        "no node has a label",
        None,
    ),
    "a store without masks": (
        lambda: gt.Trainer("gcn", gt.load("bank.store")),
        r"no training mask; .*split=\"fraction\"",
        lambda: gt.Trainer("gcn", gt.load("bank.store", split="fraction")),
    ),
    "a device": (
        lambda: fit(device="cuda"),
        r"unknown key 'device' \(everything is computed on CPUs",
        fit,
    ),
    "a learning rate": (
        lambda: fit(learning_rate=0.1),
        r"did you mean 'lr'\?",
        lambda: fit(lr=0.1),
    ),
    "epochs of fit": (
        lambda: gt.Trainer("gcn", graph()).fit(epochs=1),
        r"no argument 'epochs', which is a key of a job: gt\.Trainer\(\.\.\., epochs=\.\.\.\)",
        lambda: gt.Trainer("gcn", graph(), epochs=1).fit(),
    ),
    "train for fit": (
        lambda: gt.Trainer("gcn", graph(), epochs=1).train(),
        r"no attribute 'train' \(did you mean 'fit'\?\)",
        fit,
    ),
    "a trainer on a device": (
        lambda: gt.Trainer("gcn", graph()).to("cuda"),
        r"no attribute 'to' \(everything is computed on CPUs",
        None,
    ),
    "eval of a model": (
        lambda: gt.Trainer("gcn", graph()).model.eval(),
        r"dropout is only applied in training",
        None,
    ),
    "a state dict": (
        lambda: gt.Trainer("gcn", graph()).model.state_dict(),
        r"did you mean 'state'\?",
        lambda: gt.Trainer("gcn", graph()).model.state(),
    ),
    "nodes of a graph": (
        lambda: graph().num_nodes,
        r"Graph has no attribute 'num_nodes' \(did you mean 'n_nodes'\?\)",
        lambda: graph().n_nodes,
    ),
    "a mask": (lambda: graph().train_mask, r"did you mean 'train'\?", lambda: graph().train.any()),
    "a metric": (
        lambda: fit().accuracy,
        r"Result has no attribute 'accuracy' \(did you mean 'metrics'\?\)",
        lambda: fit().metrics["test_accuracy"],
    ),
    "a layer of PyG": (
        lambda: gt.GCNConv,
        r"it is a model, gt\.Trainer\('gcn', graph\)",
        fit,
    ),
    "a class of PyG": (
        lambda: gt.NeighborLoader,
        r"did you mean 'Loader'\?",
        lambda: gt.Loader,
    ),
    "a job that is changed": (
        lambda: setattr(gt.Job(), "lr", 0.1),
        r"a job cannot be changed; make another one: job\.change\(lr=\.\.\.\)",
        lambda: gt.Job().change(lr=0.1).lr,
    ),
    "a layer without a graph": (
        lambda: Mean()(graph().x),
        r"called as layer\(graph, h\).*outside of one, gt\.forward\(model, graph\)",
        lambda: gt.forward(Net(4, 2), graph()).shape == (N, 2),
    ),
    "a layer without a graph, in a model": (
        lambda: fit(WithoutGraph),
        r"forward of WithoutGraph: Mean must be called as layer\(graph, h\)",
        lambda: fit(Net),
    ),
    "forward of features and edges": (
        lambda: fit(OfTwo),
        r"forward of OfTwo: it needs edge_index.*define forward\(self, graph\)",
        lambda: fit(Net),
    ),
    "outputs of another width": (
        lambda: fit(Wide),
        r"Wide returns rows of shape \[7\], but the data has 2 classes; .*width 2",
        lambda: fit(Net),
    ),
    "a module of PyTorch": (
        lambda: fit(of_torch()),
        r"the model Linear is one of PyTorch; expected a gt\.Model; .*gt\.from_torch\(layer\)",
        lambda: gt.from_torch(of_torch()),
    ),
    "a run that is there": (
        lambda: fit(out="run"),
        r"holds a finished run; .*out=.*overwrite=True",
        lambda: fit(out="of_python"),
    ),
    "a node that is not there": (
        lambda: gt.Trainer("gcn", graph()).predict([99]),
        r"no node 99; give original ids",
        lambda: gt.Trainer("gcn", graph()).predict([9]),
    ),
    "weights that are none": (
        lambda: gt.Trainer("gcn", graph()).load("accounts.csv"),
        r"give the weights\.safetensors that 'graphtheta train' wrote",
        None,
    ),
}


@pytest.mark.parametrize(
    "program",
    [
        # PyTorch takes seconds to import
        pytest.param(program, id=name, marks=[pytest.mark.second] * ("PyTorch" in name))
        for name, program in PROGRAMS.items()
    ],
)
def test_a_mistake_in_python(program: Program) -> None:
    wrong, told, right = program
    with pytest.raises((GraphThetaError, AttributeError)) as caught:
        wrong()
    message = str(caught.value)
    assert re.search(told, message), message
    assert "\n" not in message
    if right is not None:
        right()


def test_labels_of_one_class_are_noticed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = "import --edges e.csv --nodes one_class.csv --features x --label y --to one.store"
    assert main(words.split()) == 0
    assert main(f"train --dataset one.store {TINY} --out one".split()) == 0
    assert (
        "all labels are of one class, 'a', so there is nothing to learn" in capsys.readouterr().err
    )


def test_a_run_that_measures_nothing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split("import --edges e.csv --nodes plain.csv --features x --to t.store")
    assert main(words) == 0
    assert main(f"train --dataset t.store --task link {TINY} --out t".split()) == 0
    assert "best epoch 1: no mrr, as no split has anything to measure" in capsys.readouterr().out


def test_what_is_done_without_has_no_name_here() -> None:
    public = {name.casefold() for name in dir(gt)}
    assert not public & INSTEAD.keys()
    assert not set(gt.Job.model_fields) & INSTEAD.keys()


def test_unknown_names_are_unknown() -> None:
    """Programs that ask whether there is an attribute are told as before."""
    for one in (graph(), gt.Trainer("gcn", graph()), Net(4, 2), gt.Result()):
        assert not hasattr(one, "num_nodes") and not hasattr(one, "_repr_svg_")
        assert getattr(one, "device", None) is None
    with pytest.raises(AttributeError, match=r"has no attribute '_ipython_display_'$"):
        gt._ipython_display_  # noqa: B018


class Fails(gt.Model):
    """A property with a mistake of its own."""

    @property
    def width(self) -> int:
        return self.neurons


def test_a_property_that_fails_says_why() -> None:
    with pytest.raises(AttributeError, match="no attribute 'neurons'"):
        Fails().width  # noqa: B018


@pytest.fixture
def on_two() -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    if MPIEXEC is None:
        pytest.skip("MPI is not installed")
    yield lambda *words: subprocess.run(
        [str(MPIEXEC), "-n", "2", sys.executable, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        stdin=subprocess.DEVNULL,
    )


TOGETHER = [
    "a GPU",
    "no such store",
    "no features",
    "a finished run",
    "other columns",
    "an unknown node",
    "a folder that cannot be made",
    "a run that has not ended",
]


@pytest.mark.second
@pytest.mark.parametrize("name", TOGETHER)
def test_a_mistake_on_two_workers_is_told_once(
    name: str, on_two: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    if name == "a run that has not ended":
        shutil.rmtree("half")
        Path("half").mkdir()
        shutil.copy("run/job.yaml", "half")
    mistake = COMMANDS[name]
    done = on_two("-m", "graphtheta", *shlex.split(mistake.wrong))
    assert done.returncode in (1, 2), done
    assert len(re.findall(mistake.told, done.stderr)) == 1, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.second
def test_a_script_without_a_main_guard_runs(
    on_two: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """Workers are started by MPI and not by importing the script again."""
    Path("unguarded.py").write_text(
        "import graphtheta as gt\n"
        "graph = gt.load('bank.store', split='fraction')\n"
        "trainer = gt.Trainer('gcn', graph, epochs=1, hidden=4, backend='reference')\n"
        "print(trainer.fit())\n"
    )
    done = on_two("unguarded.py")
    assert done.returncode == 0 and done.stdout.count("Result(") == 2, done


@pytest.mark.second
def test_more_workers_than_nodes_are_refused() -> None:
    if MPIEXEC is None:
        pytest.skip("MPI is not installed")
    words = shlex.split(f"-m graphtheta train --dataset blank.store --task link {TINY} --out many")

    def on(ranks: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(MPIEXEC), "-n", str(ranks), sys.executable, *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
            stdin=subprocess.DEVNULL,
        )

    refused = on(5)
    assert refused.returncode == 1 and refused.stderr.count("\n") == 1, refused
    assert "the graph has 3 nodes and the job 5 ranks; start at most 3 ranks" in refused.stderr
    assert on(3).returncode == 0
