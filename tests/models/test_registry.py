"""Models by name and models from users' files: what is accepted and what is said otherwise."""
from __future__ import annotations

import pytest

from graphtheta.errors import ConfigError
from graphtheta.models import MODELS, build_model, load_user_model
from graphtheta.models.registry import READ_BY, Options

USER = """
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.ops import Parameter, matmul


class Lonely(Layer):
    pass


class Net(Model):
    def __init__(self, d_in, d_out, hidden=16):
        self.w, self.hidden = Parameter.glorot(d_in, d_out), hidden

    def forward(self, graph):
        return matmul(graph.x, self.w)


class Everything(Model):
    def __init__(self, **options):
        self.options = options


class Bare(Model):
    pass


class Greedy(Model):
    def __init__(self, d_in, temperature):
        pass


class NotAModel:
    pass
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(USER)
    return path


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_built_by_name(name):
    model = build_model(name, 5, 3, 2, layers=3, hidden=4, heads=2)
    assert len(model.parameters()) == len({p.name for p in model.parameters()})


@pytest.mark.parametrize(("name", "options", "said"), [
    ("gcnn", {}, "did you mean 'gcn'"),
    ("gcn", {"hiden": 3}, "did you mean 'hidden'"),
    ("gcn", {"layers": 0}, "layers must be at least 1"),
    ("gcn", {"dropout": 1.0}, "below 1"),
    ("gcn", {"norm": "group"}, "none, batch, layer"),
    ("gcn", {"activation": "swish"}, "relu, elu"),
    ("gcn", {"jumping": "lstm"}, "concat, max"),
    ("gcn", {"direction": "up"}, "in, out, both"),
    ("gcn", {"decoder": "cosine"}, "dot, hadamard, edge"),
    ("sage", {"aggregator": "lstm"}, "mean, max, sum"),
    ("gipa", {"reduce": "min"}, "sum, mean, max"),
    ("gcn", {"decoder": "dot"}, "one score per link"),
])
def test_bad_choices(name, options, said):
    with pytest.raises(ConfigError, match=said):
        build_model(name, 5, 3, 2, **options)


@pytest.mark.parametrize("name", ["gat_e", "gipa"])
def test_needs_edge_attributes(name):
    with pytest.raises(ConfigError, match="edge_attr"):
        build_model(name, 5, 3)


def test_needs_node_features():
    with pytest.raises(ConfigError, match="give it x"):
        build_model("gcn", 0, 3)


def test_user_model_gets_what_it_names(file):
    model = load_user_model(f"{file}:Net", 5, 3, 2, hidden=9, dropout=0.5)
    assert model.w.shape == (5, 3) and model.hidden == 9
    assert load_user_model(f"{file}:Everything", 5, 3, 2, heads=4).options == {"d_in": 5, "d_out": 3, "d_edge": 2, "heads": 4}
    assert load_user_model(f"{file}:Bare", 5, 3).parameters() == []


@pytest.mark.parametrize(("name", "said"), [
    (":Nets", "has no class Nets; it has Net, Everything, Bare, Greedy"),
    (":Lonely", "a layer runs inside a model"),
    (":NotAModel", "derive it from"),
    (":Greedy", "needs temperature"),
    ("", "FILE.py:Class"),
    (":not a name", "FILE.py:Class"),
])
def test_bad_user_classes(file, name, said):
    with pytest.raises(ConfigError, match=said):
        load_user_model(f"{file}{name}", 5, 3)


def test_bad_user_files(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        load_user_model(f"{tmp_path}/none.py:Net", 5, 3)
    broken = tmp_path / "broken.py"
    broken.write_text("def f(:\n")
    with pytest.raises(ConfigError, match="SyntaxError"):
        load_user_model(f"{broken}:Net", 5, 3)
    broken.write_text("import nothing_of_that_name\n")
    with pytest.raises(ConfigError, match="ModuleNotFoundError"):
        load_user_model(f"{broken}:Net", 5, 3)


class Spy:
    """Options that remember which of them were asked for."""

    def __init__(self):
        self.seen = set()

    def __getattr__(self, name):
        self.seen.add(name)
        return getattr(Options(), name)


@pytest.mark.parametrize("name", MODELS)
def test_options_that_concern_some_models_are_known(name):
    spy = Spy()
    for last in (False, True):
        MODELS[name].layer(4, 4, 4, last, spy)
    assert {option for option, models in READ_BY.items() if name in models} == spy.seen & set(READ_BY)
    assert spy.seen - set(READ_BY) <= {"hidden", "norm", "residual"}
