"""Models by name and models from users' files: what is accepted and what is said otherwise."""

from __future__ import annotations

from typing import get_args

import pytest

import graphtheta as gt
from graphtheta.base.described import accepted
from graphtheta.engine.layer.layer import DIRECTIONS
from graphtheta.errors import ConfigError
from graphtheta.models import MODELS, build_model, load_user
from graphtheta.models.design import NetworkOptions
from graphtheta.models.gcn import NORMALISATIONS, GCNOptions
from graphtheta.models.gipa import REDUCES, GIPAOptions
from graphtheta.models.mlp import ACTIVATIONS
from graphtheta.models.network import JUMPING
from graphtheta.models.norm import NORMS
from graphtheta.models.registry import PUBLISHED, readers, register_model
from graphtheta.models.sage import AGGREGATORS, SAGEOptions
from graphtheta.run.job.described import described

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
    model = build_model(name, 5, 3, 2, relations=3, types=2, layers=3, hidden=4)
    assert len(model.parameters()) == len({p.name for p in model.parameters()})


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("gcnn", {}, "did you mean 'gcn'"),
        ("gcn", {"hiden": 3}, "did you mean 'hidden'"),
        ("gcn", {"heads": 2}, "heads.*no meaning for gcn, only for gat, gatv2, gat_e, gipa"),
        ("gipa", {"feature_dropout": 0.2}, "no meaning for gipa, only for gat, gatv2, gat_e"),
        ("gcn", {"layers": -1}, "layers: got -1, expected at least 0"),
        (
            "gcn",
            {"layers": 0},
            "layers=0 gives the features to a decoder of links, and gcn has none",
        ),
        ("gcn", {"dropout": 1.0}, "less than 1"),
        ("gcn", {"norm": "group"}, "none, batch, layer"),
        ("gcn", {"activation": "swish"}, "relu, elu"),
        ("gcn", {"jumping": "lstm"}, "concat, max"),
        ("gcn", {"direction": "up"}, "in, out, both"),
        (
            "mlp",
            {"direction": "out"},
            "direction='out' has no effect: the layers of mlp pass no messages",
        ),
        (
            "gcn",
            {"layers": 0, "direction": "out", "decoder": "edge"},
            "direction='out' has no effect: there are no layers",
        ),
        ("gcn", {"decoder": "cosine"}, "dot, hadamard, edge"),
        ("sage", {"aggregator": "product"}, "mean, max, sum"),
        ("sage", {"aggregator": "concat"}, "give a number for 'concat'"),
        ("sage", {"neighbours": 3}, "give a number for 'concat', and none for others"),
        ("sage", {"neighbour_order": "time"}, "only with lstm, gru, concat"),
        ("gipa", {"reduce": "min"}, "sum, mean, max"),
        ("transformer", {"beta": True, "skip": False}, "skip=False leaves out; choose one"),
        ("pna", {"towers": 3}, "3 towers do not divide the width 16"),
        ("appnp", {"alpha": 1.5}, "alpha: got 1.5, expected at most 1"),
        ("appnp", {"propagations": 0}, "propagations: got 0, expected at least 1"),
        ("gcn", {"decoder": "dot"}, "one score per link"),
        (
            "gcn",
            {"layers": 0, "jumping": "max", "decoder": "edge"},
            "jumping='max' reads the values of layers, and there are none",
        ),
        (
            "gcn",
            {"layers": 0, "jumping": "concat", "decoder": "edge"},
            "jumping='concat' reads the values of layers, and there are none",
        ),
    ],
)
def test_bad_choices(name, options, said):
    with pytest.raises(ConfigError, match=said):
        build_model(name, 5, 3, 2, **options)


@pytest.mark.parametrize("name", PUBLISHED)
def test_without_layers_the_decoder_alone_is_left(name):
    sizes = {"relations": 3 * PUBLISHED[name].relational, "types": 2 * PUBLISHED[name].typed}
    made = build_model(name, 5, 1, 2, layers=0, decoder="hadamard", **sizes)
    assert (
        [p.shape for p in made.parameters()]
        == [p.shape for p in made.decoder.parameters()]
        == [(5, 5), (5, 1), (5,), (1,)]
    )


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in ("gat_e", "gine", "gipa")),
        *((name, {"edge_attributes": True}) for name in readers("edge_attributes")),
    ],
)
def test_needs_edge_attributes(name, options):
    with pytest.raises(ConfigError, match="edge_attr"):
        build_model(name, 5, 3, **options)


def test_needs_node_features():
    with pytest.raises(ConfigError, match="give it x"):
        build_model("gcn", 0, 3)


def made(path, **offered):
    """What a file makes of what it is offered."""
    found = load_user(path)
    return found(**accepted(path, found, {"d_in": 5, "d_out": 3, "d_edge": 2, **offered}))


def test_user_model_gets_what_it_names(file):
    model = made(f"{file}:Net", hidden=9, dropout=0.5)
    assert model.w.shape == (5, 3) and model.hidden == 9
    assert made(f"{file}:Everything", heads=4).options == {
        "d_in": 5,
        "d_out": 3,
        "d_edge": 2,
        "heads": 4,
    }
    assert made(f"{file}:Bare").parameters() == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (":Nets", "has no class Nets; it has Net, Everything, Bare, Greedy"),
        (":Lonely", "a layer runs inside a model"),
        (":NotAModel", "derive it from"),
        (":Greedy", "needs temperature"),
        ("", "FILE.py:Class"),
        (":not a name", "FILE.py:Class"),
    ],
)
def test_bad_user_classes(file, name, said):
    with pytest.raises(ConfigError, match=said):
        made(f"{file}{name}")


def test_bad_user_files(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        load_user(f"{tmp_path}/none.py:Net")
    broken = tmp_path / "broken.py"
    broken.write_text("def f(:\n")
    with pytest.raises(ConfigError, match="SyntaxError"):
        load_user(f"{broken}:Net")
    broken.write_text("import nothing_of_that_name\n")
    with pytest.raises(ConfigError, match="ModuleNotFoundError"):
        load_user(f"{broken}:Net")


class Spy:
    """Options that remember which of them were asked for."""

    def __init__(self, options):
        self.options = options
        self.seen = set()

    def __getattr__(self, name):
        self.seen.add(name)
        return getattr(self.options, name)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_model_declares_the_options_that_it_reads(name):
    design = PUBLISHED[name]
    spy = Spy(design.options())
    for last in (False, True):
        design.layer(
            4,
            4,
            4,
            last,
            spy,
            **({"relations": 3} if design.relational else {}),
            **({"types": 2} if design.typed else {}),
            **({"log_degree": 1.0} if design.reads_degrees else {}),
            **({"number": 1} if design.starts else {}),
        )
    if design.end is not None:
        design.end(spy)
    assert set(design.options.own()) == spy.seen - {*NetworkOptions.model_fields, "has_bias"}


@pytest.mark.parametrize(
    "options, name, known",
    [
        (NetworkOptions, "norm", NORMS),
        (NetworkOptions, "jumping", JUMPING),
        (NetworkOptions, "direction", DIRECTIONS),
        (NetworkOptions, "activation", {"auto", *ACTIVATIONS} - {"none"}),
        (GCNOptions, "normalisation", NORMALISATIONS),
        (SAGEOptions, "aggregator", AGGREGATORS),
        (GIPAOptions, "reduce", REDUCES),
    ],
)
def test_choices_are_those_that_are_known(options, name, known):
    assert set(get_args(options.model_fields[name].annotation)) == set(known)


def test_an_option_of_several_models_is_the_same_in_all():
    for design in PUBLISHED.values():
        for name, field in design.options.own().items():
            kinds = [PUBLISHED[other].options for other in readers(name) if other in PUBLISHED]
            found = {
                (repr(o.annotation), o.default, repr(o.metadata))
                for o in (kind.model_fields[name] for kind in kinds)
            }
            assert found == {(repr(field.annotation), field.default, repr(field.metadata))}
            assert len({described(kind)[name] for kind in kinds}) == 1


@pytest.mark.parametrize(
    ("name", "design", "said"),
    [
        ("gcn", gt.Design(PUBLISHED["gcn"].layer), "published model"),
        ("my gcn", gt.Design(PUBLISHED["gcn"].layer), "letters, digits"),
        ("mine", PUBLISHED["gcn"].layer, "design is .*; expected an object of type Design"),
        ("mine", gt.Design(PUBLISHED["gcn"].layer, dict), "gt.NetworkOptions"),
    ],
)
def test_bad_registrations(name, design, said):
    with pytest.raises(ConfigError, match=said):
        register_model(name, design)
