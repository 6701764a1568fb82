"""A model from outside: registered, or named as FILE.py:NAME, with an option of its own that is a
key and a flag.
"""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError
from graphtheta.models.registry import MODELS
from graphtheta.run.job.flag import Parser

FILE = Path(__file__).parent / "model.py"
SMALL = "sbm:n_nodes=60,n_edges=300,classes=3,features=4"
KEYS = {"dataset": SMALL, "epochs": 3, "backend": "reference", "dtype": "float64", "keep": 0}
NET = """
import graphtheta as gt
class Net(gt.Model):
    def __init__(
        self, d_in, d_out, hidden=4, scale=1.0, twice: bool = False, name="a", extra=None,
        copy=False, _own=1,
    ):
        self.weight, self.factor = gt.Parameter.glorot(d_in, d_out), scale * (2 if twice else 1)
    def forward(self, graph):
        return self.factor * gt.matmul(graph.x, self.weight)
"""


@pytest.fixture
def plugin(monkeypatch):
    """The plug-in as a module; the registry forgets it afterwards."""
    spec = spec_from_file_location("plugin_model", FILE)
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "plugin_model", module)
    monkeypatch.setitem(MODELS, "lazy", None)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def net(tmp_path):
    path = tmp_path / "net.py"
    path.write_text(NET)
    return f"{path}:Net"


def parsed(*words):
    parser = Parser("train", "", "")
    parser.add_job_keys()
    return gt.Job(**parser.read(list(words))[1])


def losses(comm=None, **keys):
    return [row["loss"] for row in gt.Trainer(comm=comm, **{**KEYS, **keys}).fit().history]


def test_layer_passes_the_check(plugin):
    gt.check(plugin.Lazy(4, 3, stay=0.3))


@pytest.mark.parametrize("strategy", [{}, {"strategy": "mini", "batch_size": 20, "fanout": 3}])
def test_equal_on_one_and_three_workers(plugin, strategy):
    alone = losses(model="lazy", stay=0.3, **strategy)
    together = run_simulated(
        3, lambda comm: losses(comm, model="lazy", stay=0.3, partitioner="vertex-cut", **strategy)
    )[0]
    np.testing.assert_allclose(alone, together, rtol=1e-9)
    assert losses(model="lazy", stay=0.6, **strategy) != alone


def test_option_is_a_key(plugin, tmp_path):
    job = gt.Job(model="lazy", stay="0.25")
    assert job.stay == 0.25 and "stay: 0.25" in job.to_yaml() and job.change(seed=1).stay == 0.25
    (tmp_path / "job.yaml").write_text(job.to_yaml())
    assert (
        gt.Job.from_yaml(tmp_path / "job.yaml")
        == job
        == parsed("--model", "lazy", "--stay", "0.25")
    )
    assert gt.Trainer(job=gt.Job(model="lazy", **KEYS)).model.layers[0].stay == 0.5


@pytest.mark.parametrize(
    "keys, said",
    [
        ({"model": "lazy", "stay": 2}, ["stay: got 2, expected less than 1"]),
        ({"model": "lazy", "sty": 0.1}, ["unknown key 'sty'", "did you mean 'stay'"]),
        (
            {"model": "lazy", "heads": 3},
            [
                "heads=3 has no meaning with model=lazy, only with gat, gatv2, gat_e, gipa",
                "--heads",
            ],
        ),
        ({"model": "gcn", "stay": 0.1}, ["stay has no meaning with model=gcn, only with lazy"]),
        ({"model": "lazzy"}, ["'lazzy' is not known", "did you mean 'lazy'"]),
        ({"model": "lazy", "stay": [1]}, ["stay: got [1]", "number"]),
    ],
)
def test_bad_options(plugin, keys, said):
    with pytest.raises(ConfigError) as caught:
        gt.Trainer(**{**KEYS, **keys})
    assert [part for part in said if part not in str(caught.value)] == []


def test_file_brings_its_options(plugin):
    name = f"{FILE}:lazy"
    assert parsed("--model", name, "--stay", "0.25").stay == 0.25
    assert losses(model=name, stay="0.3") == losses(model="lazy", stay=0.3)
    for words, said in (
        ((f"--model={name}", "--sty=1"), "unknown flag --sty (did you mean '--stay'?)"),
        ((f"--model={name}", "--stay", "1"), "stay: got '1', expected less than 1"),
        (("--stay", "1"), "unknown flag --stay"),
        (("--model", f"{FILE}:lasy", "--stay=0"), "it has lazy"),
    ):
        with pytest.raises(ConfigError) as caught:
            parsed(*words)
        assert said in str(caught.value)


def test_parameters_of_a_class_are_options(net):
    job = parsed("--model", net, "--scale", "2.5", "--twice", "--name", "b", "--dataset", SMALL)
    assert (job.scale, job.twice, job.name) == (2.5, True, "b")
    assert gt.Trainer(job=job).model.factor == 5.0
    for keys, said in (
        ({"scal": 2}, "unknown key 'scal' (did you mean 'scale'?)"),
        ({"scale": "big"}, "scale: got 'big', expected a number"),
        ({"extra": 1}, "unknown key 'extra'"),
        ({"heads": 2}, "has no such parameter"),
        ({"folder": "a"}, "the name is reserved in jobs"),
    ):
        with pytest.raises(ConfigError) as caught:
            gt.Trainer(model=net, dataset=SMALL, **keys)
        assert said in str(caught.value)
    with pytest.raises(ConfigError, match="unknown flag --scal "):
        parsed("--model", net, "--scal", "2")


def test_parameters_of_a_class_that_is_given():
    class Net(gt.Model):
        def __init__(self, d_in, d_out, scale=1.0):
            self.weight = gt.Parameter.glorot(d_in, d_out)
            self.scale = scale

        def forward(self, graph):
            return self.scale * gt.matmul(graph.x, self.weight)

    graph = gt.load(SMALL)
    assert gt.Trainer(Net, graph, scale=3).model.scale == 3.0
    with pytest.raises(ConfigError, match="did you mean 'scale'"):
        gt.Trainer(Net, graph, scal=3)
    with pytest.raises(ConfigError, match="unknown key 'scale'"):
        gt.Trainer(Net(4, 3), graph, scale=3)


def test_an_option_that_a_command_has_already(tmp_path):
    (tmp_path / "net.py").write_text(NET.replace("scale", "preset"))
    with pytest.raises(ConfigError, match="uses the name 'preset' itself"):
        parsed("--model", f"{tmp_path}/net.py:Net", "--twice")


def test_help_lists_them(net, capsys):
    with pytest.raises(SystemExit):
        main(["train", "--model", net, "--help"])
    shown = capsys.readouterr().out
    assert f"Options of {net}" in shown and "--scale X" in shown and "--no-twice" in shown


def test_an_option_that_a_job_declares_otherwise():
    class Options(gt.NetworkOptions):
        lr: float = 3.0

    MODELS["other"] = gt.Design(MODELS["gcn"].layer, Options)
    try:
        with pytest.raises(ConfigError, match="option 'lr' of other is already a key of every job"):
            gt.Job(model="other", stay=1)
        with pytest.raises(ConfigError, match="option 'lr' of other is already a key of every job"):
            gt.Trainer(model="other", dataset=SMALL)
    finally:
        del MODELS["other"]


@pytest.mark.second
def test_a_run_goes_on_with_the_same_options_only(net, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [
        "train",
        "--model",
        net,
        "--dataset",
        SMALL,
        "--epochs",
        "2",
        "--backend",
        "reference",
        "--out",
        "run",
        "--scale",
        "2",
    ]
    assert main(words) == 0
    assert main(["evaluate", "run", "--trust"]) == 0
    assert main(["report", "run"]) == 0
    assert main([*words[:-2], "--resume", "--epochs", "3"]) != 0
    assert main([*words, "--resume", "--epochs", "3"]) == 0
