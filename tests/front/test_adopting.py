"""Layers and weights of PyTorch Geometric, DGL and torch, taken into models: the same outputs."""

from __future__ import annotations

from typing import Any

import graphs
import libraries
import numpy as np
import pytest

import graphtheta as gt
from graphtheta.errors import ConfigError
from graphtheta.models import GAT, GCN, GCNII, GINE, Transformer

D = 6
A = 3
# directed, with self loops, duplicate edges and nodes without edges
GRAPH = graphs.random_graph(40, 150, edge_weight=None)
LOOPED = GRAPH.with_self_loops()
TOLERANCES = {"float32": 1e-5, "float64": 1e-10}


def perceptron(nn: Any, *middle: Any, bias: bool = True) -> Any:
    return nn.Sequential(nn.Linear(D, 8, bias=bias), *middle, nn.ReLU(), nn.Linear(8, 5))


# from the libraries to a layer, and whether it reads edge attributes
PYG: dict[str, Any] = {
    "gcn": lambda g, nn, deg: g.GCNConv(D, 5),
    "gcn no loops": lambda g, nn, deg: g.GCNConv(D, 5, add_self_loops=False, bias=False),
    "gcn sum": lambda g, nn, deg: g.GCNConv(D, 5, add_self_loops=False, normalize=False),
    "sage": lambda g, nn, deg: g.SAGEConv(D, 5),
    "sage max": lambda g, nn, deg: g.SAGEConv(D, 5, aggr="max", bias=False),
    "sage add": lambda g, nn, deg: g.SAGEConv(D, 5, aggr="add"),
    "gat": lambda g, nn, deg: g.GATConv(D, 5, heads=3, negative_slope=0.1),
    "gat mean": lambda g, nn, deg: g.GATConv(D, 5, heads=3, concat=False, bias=False),
    "gat edges": lambda g, nn, deg: g.GATConv(
        D, 5, heads=2, edge_dim=A, residual=True, add_self_loops=False
    ),
    "gatv2": lambda g, nn, deg: g.GATv2Conv(D, 5, heads=3),
    "gatv2 shared": lambda g, nn, deg: g.GATv2Conv(D, 5, heads=2, share_weights=True),
    "gatv2 edges": lambda g, nn, deg: g.GATv2Conv(
        D, 5, heads=2, edge_dim=A, residual=True, add_self_loops=False, concat=False
    ),
    "gatv2 no bias": lambda g, nn, deg: g.GATv2Conv(D, 5, bias=False),
    "gin": lambda g, nn, deg: g.GINConv(perceptron(nn), eps=0.3),
    "gin trained": lambda g, nn, deg: g.GINConv(perceptron(nn, nn.LayerNorm(8)), train_eps=True),
    "gin norm": lambda g, nn, deg: g.GINConv(perceptron(nn, nn.BatchNorm1d(8))),
    "gin linear": lambda g, nn, deg: g.GINConv(nn.Linear(D, 5)),
    "gine": lambda g, nn, deg: g.GINEConv(perceptron(nn), eps=0.3, edge_dim=A),
    "transformer": lambda g, nn, deg: g.TransformerConv(D, 5, heads=2),
    "transformer beta": lambda g, nn, deg: g.TransformerConv(D, 5, heads=2, beta=True, edge_dim=A),
    "transformer mean": lambda g, nn, deg: g.TransformerConv(
        D, 5, heads=2, concat=False, root_weight=False, bias=False
    ),
    "appnp": lambda g, nn, deg: g.APPNP(4, 0.2),
    "gcnii": lambda g, nn, deg: g.GCN2Conv(D, 0.3, theta=0.5, layer=2),
    "gcnii star": lambda g, nn, deg: g.GCN2Conv(D, 0.1, shared_weights=False),
    "pna": lambda g, nn, deg: g.PNAConv(
        D, 6, ["mean", "min", "max", "std"], ["identity", "amplification", "attenuation"], deg
    ),
    "pna towers": lambda g, nn, deg: g.PNAConv(
        D, 6, ["max", "sum"], ["attenuation", "identity"], deg, edge_dim=A, towers=3
    ),
}
DGL: dict[str, Any] = {
    "gcn": lambda g, nn: g.GraphConv(D, 5, allow_zero_in_degree=True),
    "gcn wide": lambda g, nn: g.GraphConv(D, 9, bias=False, allow_zero_in_degree=True),
    "gcn right": lambda g, nn: g.GraphConv(D, 5, norm="right", allow_zero_in_degree=True),
    "gcn none": lambda g, nn: g.GraphConv(D, 5, norm="none", allow_zero_in_degree=True),
    "sage": lambda g, nn: g.SAGEConv(D, 5, "mean"),
    "gat": lambda g, nn: g.GATConv(D, 5, 3, allow_zero_in_degree=True),
    "gatv2": lambda g, nn: g.GATv2Conv(D, 5, 3, allow_zero_in_degree=True),
    "gatv2 shared": lambda g, nn: g.GATv2Conv(
        D, 5, 3, share_weights=True, bias=False, allow_zero_in_degree=True
    ),
    "gin": lambda g, nn: g.GINConv(perceptron(nn), "sum", init_eps=0.2, learn_eps=True),
}


class Alone(gt.Model):
    """One layer on the features."""

    def __init__(self, layer: Any, dtype: str):
        self.layer = layer
        # of a layer without parameters, it gives the float type
        self.one = gt.Parameter(np.ones((), dtype))

    def forward(self, graph: Any) -> Any:
        x = graph.node("features")
        given = {"start": graph.node("start")} if isinstance(self.layer, GCNII) else {}
        return self.layer(graph, x, **given) * self.one


def ours(layer: Any, graph: gt.Graph, x: np.ndarray, start: np.ndarray) -> np.ndarray:
    given = graph.replace(node_columns={"features": x, "start": start})
    return gt.forward(Alone(layer, str(x.dtype)), given)


def randomised(torch: Any, layer: Any, dtype: str) -> Any:
    """All weights drawn, also those that begin as 0, in evaluation."""
    torch.manual_seed(3)
    for p in layer.parameters():
        torch.nn.init.normal_(p, std=0.5)
    for name, b in layer.named_buffers():
        if name.endswith("running_mean"):
            torch.nn.init.normal_(b)
    return layer.to(getattr(torch, dtype)).eval()


def inputs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    # columns of a graph are float32
    x, start = rng.normal(size=(2, GRAPH.n_nodes, D)).astype(np.float32).astype(dtype)
    return x, start


@pytest.mark.second
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", PYG)
def test_a_layer_of_pytorch_geometric_has_the_same_outputs(name: str, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    pyg = pytest.importorskip("torch_geometric.nn")
    degrees = torch.bincount(torch.bincount(torch.tensor(GRAPH.dst), minlength=GRAPH.n_nodes))
    theirs = randomised(torch, PYG[name](pyg, torch.nn, degrees), dtype)
    layer = gt.from_torch(theirs)
    x, start = inputs(dtype)
    # PyTorch Geometric leaves every node one loop, also where there were two
    lone = GRAPH.keep_edges(np.flatnonzero(GRAPH.src != GRAPH.dst))
    looped = getattr(theirs, "add_self_loops", False)
    graph = lone.with_self_loops() if looped else lone
    args = [torch.tensor(x), torch.tensor(lone.edge_index)]
    if name.startswith("gcnii"):
        args.insert(1, torch.tensor(start))
    if name == "gine" or getattr(theirs, "edge_dim", None):
        args.append(torch.tensor(np.array(lone.edge_attr)).to(args[0].dtype))
    with torch.no_grad():
        expected = theirs(*args).numpy()
    found = ours(layer, graph, x, start)
    scale = max(1, np.abs(expected).max())
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCES[dtype] * scale)
    # and by its state dict, into a layer with other weights
    again = gt.from_torch(randomised(torch, PYG[name](pyg, torch.nn, degrees), dtype))
    for p in again.parameters():
        p.value = np.zeros_like(p.value)
    np.testing.assert_array_equal(
        ours(gt.from_torch(theirs.state_dict(), again), graph, x, start), found
    )


@pytest.mark.second
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", DGL)
def test_a_layer_of_dgl_has_the_same_outputs(name: str, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    dgl = libraries.dgl()
    theirs = randomised(torch, DGL[name](dgl.nn, torch.nn), dtype)
    x, start = inputs(dtype)
    made = dgl.graph((GRAPH.src, GRAPH.dst), num_nodes=GRAPH.n_nodes)
    with torch.no_grad():
        expected = theirs(made, torch.tensor(x)).flatten(1).numpy()
    found = ours(gt.from_torch(theirs), GRAPH, x, start)
    scale = max(1, np.abs(expected).max())
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCES[dtype] * scale)


ENDS = ("att_src", "att_dst")
NORM = ("1.weight", "1.bias", "1.running_mean", "1.running_var")


def perceptron_state() -> dict[str, np.ndarray]:
    return {"0.weight": np.ones((5, 4)), "2.weight": np.ones((3, 5))}


def gru(d_in: int, d_out: int) -> dict[str, np.ndarray]:
    ends = {"ih": d_in, "hh": d_out}
    return {
        **{f"weight_{end}": np.ones((3 * d_out, d)) for end, d in ends.items()},
        **{f"bias_{end}": np.ones(3 * d_out) for end in ends},
    }


# what PyTorch Geometric computes with these options, no layer of ours does
PYG_REFUSED: dict[str, tuple[Any, str]] = {
    "lazy": (lambda g, nn: g.GCNConv(-1, 5), "lin.weight has no values yet"),
    "fill": (lambda g, nn: g.GATv2Conv(D, 5, edge_dim=A, fill_value=1.0), "fill_value=1.0"),
    "slope": (
        lambda g, nn: g.GINConv(nn.Sequential(nn.Linear(D, 5), nn.LeakyReLU(0.3), nn.Linear(5, 5))),
        "negative_slope=0.3",
    ),
}
SUMS: dict[str, Any] = {
    "gcn": lambda g, nn, **keys: g.GCNConv(D, 5, **keys),
    "gat": lambda g, nn, **keys: g.GATConv(D, 5, **keys),
    "gatv2": lambda g, nn, **keys: g.GATv2Conv(D, 5, **keys),
    "gin": lambda g, nn, **keys: g.GINConv(perceptron(nn), **keys),
    "gine": lambda g, nn, **keys: g.GINEConv(perceptron(nn), edge_dim=A, **keys),
    "transformer": lambda g, nn, **keys: g.TransformerConv(D, 5, **keys),
    "appnp": lambda g, nn, **keys: g.APPNP(3, 0.1, **keys),
    "gcnii": lambda g, nn, **keys: g.GCN2Conv(D, 0.1, **keys),
}
PYG_REFUSED |= {
    f"{name} {key}": (
        lambda g, nn, make=make, key=key, value=value: make(g, nn, **{key: value}),
        f"{key}='{value}'",
    )
    for name, make in SUMS.items()
    for key, value in (("aggr", "max"), ("flow", "target_to_source"))
}
PYG_REFUSED |= {
    "sage flow": (
        lambda g, nn: g.SAGEConv(D, 5, flow="target_to_source"),
        "flow='target_to_source'",
    )
}


@pytest.mark.second
@pytest.mark.parametrize("name", PYG_REFUSED)
def test_options_that_only_pytorch_geometric_has_are_refused(name: str) -> None:
    torch = pytest.importorskip("torch")
    pyg = pytest.importorskip("torch_geometric.nn")
    make, said = PYG_REFUSED[name]
    with pytest.raises(ConfigError, match=said):
        gt.from_torch(make(pyg, torch.nn))


@pytest.mark.second
@pytest.mark.parametrize("short", ["float16", "bfloat16"])
def test_weights_of_16_bits_are_taken_in_32(short: str) -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.nn.Linear(4, 3).to(getattr(torch, short))
    layer = gt.from_torch(theirs)
    np.testing.assert_array_equal(layer.weight.value, theirs.weight.detach().float().numpy().T)


def test_weights_of_a_model_are_given_by_prefixes() -> None:
    rng = np.random.default_rng(0)
    state = {
        "conv1.lin.weight": rng.normal(size=(16, 4)),
        "conv1.bias": rng.normal(size=16),
        "conv2.lin.weight": rng.normal(size=(3, 16)),
        "conv2.bias": rng.normal(size=3),
        "loss.weight": np.ones(3),
    }
    model = gt.models.build_model("gcn", 4, 3)
    gt.from_torch(state, model, {"layers.0": "conv1", "layers.1": "conv2"})
    np.testing.assert_allclose(model.layers[0].weight.value, state["conv1.lin.weight"].T, 1e-6)
    np.testing.assert_allclose(model.layers[1].bias.value, state["conv2.bias"], 1e-6)
    with pytest.raises(ConfigError, match=r"has no module 'layers\.7'"):
        gt.from_torch(state, model, {"layers.7": "conv1"})
    with pytest.raises(ConfigError, match="no weight begins with 'conv3'"):
        gt.from_torch(state, model, {"layers.1": "conv3"})


@pytest.mark.parametrize(
    ("layer", "state", "said"),
    [
        (lambda: GCN(4, 3), {"lin.weight": np.ones((3, 4))}, "needs bias.*has lin.weight"),
        (
            lambda: GCN(4, 3, bias=False),
            {"lin.weight": np.ones((3, 4)), "bias": np.ones(3)},
            "has bias, which GCN with these options does not have",
        ),
        (
            lambda: GCN(4, 3, bias=False),
            {"lin.weight": np.ones((2, 4))},
            r"weight has shape \[4, 2\], the model needs \[4, 3\]",
        ),
        (
            lambda: GINE(gt.MLP(4, (), 3), 4, 2),
            {
                "nn.weight": np.ones((3, 4)),
                "nn.bias": np.ones(3),
                "eps": np.zeros(1),
                "lin.weight": np.ones((4, 2)),
                "lin.bias": np.ones(4),
            },
            r"lin.bias is not 0; make the layer with GINE\(..., edge_bias=True\)",
        ),
        (lambda: GAT(4, 3), {}, "needs lin.weight or lin_src.weight or fc.weight"),
        (lambda: Transformer(4, 3), {}, "needs lin_query.weight, and the state dict has nothing"),
        (lambda: gt.models.DotDecoder(), {}, "DotDecoder cannot take weights"),
        # as many numbers, in other axes
        (lambda: GCN(4, 3, bias=False), {"lin.weight": np.ones((4, 3))}, r"has shape \[3, 4\]"),
        (
            lambda: GAT(8, 4, 2, bias=False),
            {"lin.weight": np.ones((8, 8)), **dict.fromkeys(ENDS, np.ones((1, 4, 2)))},
            r"att_src has shape \[4, 2\], the model needs \[2, 4\]",
        ),
        (lambda: gt.GRUCell(4, 3), {**gru(4, 4)}, "do not have the shapes of GRUCell"),
        (
            lambda: gt.MLP(4, [5], 3, bias=False),
            {**perceptron_state(), "0.bias": np.ones(5)},
            "has 0.bias, which MLP with these options does not have",
        ),
        (
            lambda: gt.MLP(4, [5], 3, last_bias=False),
            {**perceptron_state(), "0.bias": np.ones(5), "2.bias": np.ones(3)},
            "has 2.bias, which MLP",
        ),
        (
            lambda: gt.MLP(4, [5], 3, norm="layer", bias=False),
            {**perceptron_state(), **dict.fromkeys(NORM, np.ones(5))},
            "has 1.running_mean, 1.running_var, which MLP",
        ),
        (
            lambda: gt.MLP(4, [5], 3),
            {"lins.0.weight": np.ones((5, 4)), "lins.1.weight": np.ones((3, 5))},
            "weights of lins; expected 2 numbered parts of a Sequential",
        ),
    ],
)
def test_weights_that_do_not_fit_are_refused(layer: Any, state: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        gt.from_torch(state, layer())


def test_what_is_no_layer_is_refused() -> None:
    with pytest.raises(ConfigError, match="a state dict does not say what its layer computes"):
        gt.from_torch({"weight": np.ones(3)})
    with pytest.raises(ConfigError, match="object has no counterpart among our layers"):
        gt.from_torch(object())
    with pytest.raises(ConfigError, match="names are those of a model"):
        gt.from_torch({}, names={"layers.0": "conv1"})


@pytest.mark.second
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda nn: nn.Sequential(nn.Linear(3, 4), nn.SiLU(), nn.Linear(4, 2)), "the parts Linear"),
        (lambda nn: nn.Sequential(nn.ReLU(), nn.Linear(3, 4)), "the parts ReLU, Linear"),
        (lambda nn: nn.Sequential(nn.ReLU(), nn.Tanh()), "the parts ReLU, Tanh"),
        (lambda nn: nn.LayerNorm((2, 3)), "normalized_shape"),
        (lambda nn: nn.LayerNorm(3, eps=1e-3), "eps=0.001"),
        (lambda nn: nn.GRUCell(3, 4, bias=False), "bias=False"),
        *(
            (lambda nn, middle=middle: perceptron(nn, *middle(nn)), said)
            for middle, said in (
                (lambda nn: [nn.BatchNorm1d(8, eps=0.1)], "eps=0.1"),
                (lambda nn: [nn.BatchNorm1d(8, affine=False)], "affine=False"),
                (lambda nn: [nn.LayerNorm(8, eps=0.1)], "eps=0.1"),
            )
        ),
        *(
            (
                lambda nn, act=act: nn.Sequential(nn.Linear(3, 4), act(nn), nn.Linear(4, 2)),
                said,
            )
            for act, said in (
                (lambda nn: nn.LeakyReLU(0.2), "negative_slope=0.2"),
                (lambda nn: nn.ELU(2.0), "alpha=2.0"),
                (lambda nn: nn.GELU("tanh"), "approximate='tanh'"),
            )
        ),
        (lambda nn: nn.Conv1d(3, 4, 1), "Conv1d has no counterpart"),
    ],
)
def test_modules_of_torch_that_are_something_else_are_refused(make: Any, said: str) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(ConfigError, match=said):
        gt.from_torch(make(torch.nn))
