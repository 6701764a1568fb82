"""Trained networks as modules of PyTorch Geometric and DGL. What needs these libraries is skipped
without them.
"""

from __future__ import annotations

from typing import Any

import graphs
import libraries
import numpy as np
import pytest

import graphtheta as gt
from graphtheta.errors import ConfigError

KEYS: dict[str, Any] = {
    "scores": "logits",
    "epochs": 3,
    "hidden": 6,
    "backend": "reference",
    "lr": 0.05,
    "dropout": 0.2,
}
GRAPH = graphs.random_graph(50, 220)
MODELS = {
    "gcn": {},
    "gcn row": {"normalisation": "row", "norm": "layer"},
    "gcn both": {"normalisation": "both"},
    "gcn none": {"normalisation": "none"},
    "gcn deep": {"layers": 3, "residual": True, "norm": "batch"},
    "sage": {"jumping": "concat"},
    "sage max": {"aggregator": "max", "jumping": "max"},
    "sage sum": {"aggregator": "sum"},
    "gin": {"norm": "batch"},
    "gin learned": {"train_eps": True},
    "gat": {"heads": 3, "out_heads": 2},
    "gatv2": {"heads": 3, "out_heads": 2},
    "gatv2 edges": {"heads": 2, "edge_attributes": True, "residual": True, "norm": "batch"},
    "gatv2 shared": {"heads": 2, "share": True, "jumping": "max", "hidden": 4},
    "transformer": {"heads": 2, "beta": True},
    "transformer edges": {"heads": 2, "edge_attributes": True, "norm": "batch", "skip": False},
    "appnp": {"propagations": 3},
    "appnp deep": {"propagations": 2, "jumping": "concat", "norm": "batch"},
    "gcnii": {"layers": 3},
    "gcnii star": {"shared_weights": False},
    "pna": {"norm": "batch"},
    "pna edges": {"edge_attributes": True, "towers": 2},
    "gat_e": {"heads": 2, "residual": True},
    "gine": {"norm": "batch"},
    "gine learned": {"train_eps": True, "jumping": "concat"},
    "mlp": {},
}
# without a counterpart in DGL
NOT_DGL = (
    *("sage max", "sage sum", "gat_e", "gine", "gine learned"),
    *("gatv2", "gatv2 edges", "gatv2 shared", "transformer", "transformer edges"),
    *("appnp", "appnp deep", "gcnii", "gcnii star", "pna", "pna edges"),
)


def trained(name: str, **keys: Any) -> gt.Trainer:
    trainer = gt.Trainer(name.split()[0], GRAPH, **{**KEYS, **MODELS.get(name, {}), **keys})
    trainer.fit()
    return trainer


def given(trainer: gt.Trainer) -> tuple[gt.Graph, np.ndarray]:
    """The graph with the self loops that the trainer added, and the predictions."""
    graph = GRAPH.with_self_loops() if trainer.partition.n_edges > GRAPH.n_edges else GRAPH
    found = trainer.predict()
    assert found is not None
    return graph, found[1]


@pytest.mark.second
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", MODELS)
def test_predictions_of_pytorch_geometric_are_the_same(name: str, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    trainer = trained(name, dtype=dtype)
    graph, expected = given(trainer)
    of = {"float32": torch.float32, "float64": torch.float64}[dtype]
    x, weight, attr = (
        torch.as_tensor(np.array(a)).to(of) for a in (graph.x, graph.edge_weight, graph.edge_attr)
    )
    with torch.no_grad():
        out = gt.to_torch(trainer.model)(x, torch.as_tensor(graph.edge_index), weight, attr)
    np.testing.assert_allclose(
        out.numpy(),
        expected,
        rtol=0,
        atol=(1e-5 if dtype == "float32" else 1e-13) * max(1, np.abs(expected).max()),
    )


@pytest.mark.second
@pytest.mark.parametrize("name", [name for name in MODELS if name not in NOT_DGL])
def test_predictions_of_dgl_are_the_same(name: str) -> None:
    torch = pytest.importorskip("torch")
    dgl = libraries.dgl()
    trainer = trained(name, dtype="float64")
    graph, expected = given(trainer)
    x, weight, attr = (
        torch.as_tensor(np.array(a)).double() for a in (graph.x, graph.edge_weight, graph.edge_attr)
    )
    with torch.no_grad():
        out = gt.to_torch(trainer.model, "dgl")(
            x, dgl.graph((graph.src, graph.dst), num_nodes=graph.n_nodes), weight, attr
        )
    np.testing.assert_allclose(
        out.numpy(), expected, rtol=0, atol=1e-13 * max(1, np.abs(expected).max())
    )


def test_weights_have_the_names_and_shapes_of_the_other_library() -> None:
    gat = trained("gat").model.layers[0]
    found = gt.counterpart(gat, "pyg")
    assert found.name == "GATConv" and not found.options["add_self_loops"]
    assert {name: x.shape for name, x in found.state.items()} == {
        "lin.weight": (18, 4),
        "att_src": (1, 3, 6),
        "att_dst": (1, 3, 6),
        "bias": (18,),
    }
    np.testing.assert_array_equal(found.state["lin.weight"], gat.weight.value.reshape(4, 18).T)
    assert set(gt.counterpart(gat, "dgl").state) == {"fc.weight", "attn_l", "attn_r", "bias"}
    gin = gt.counterpart(trained("gin").model.layers[0], "pyg")
    assert {"eps", "nn.0.weight", "nn.1.running_mean", "nn.3.weight"} <= set(gin.state)


@pytest.mark.parametrize(
    "model, library, words, keys",
    [
        ("gipa", "pyg", "GIPA has no counterpart in pyg", {}),
        ("gat_e", "dgl", "GATE has no counterpart in dgl", {}),
        ("gatv2", "dgl", "GATv2 has no counterpart in dgl, whose GATv2Conv adds no bias", {}),
        ("transformer", "dgl", "Transformer has no counterpart in dgl, which has no such", {}),
        ("appnp", "dgl", "APPNP has no counterpart in dgl, whose APPNPConv divides by out-", {}),
        ("gcnii", "dgl", "GCNII has no counterpart in dgl, whose GCN2Conv divides by out-", {}),
        ("pna", "dgl", "PNA has no counterpart in dgl, whose PNAConv scales", {}),
        ("appnp", "pyg", "APPNP runs along out edges", {"direction": "out"}),
        ("sage", "dgl", "aggregator='max' has no counterpart", {"aggregator": "max"}),
        ("sage", "pyg", "aggregator='lstm' has no counterpart", {"aggregator": "lstm"}),
        ("gat", "pyg", "separate=True has no counterpart", {"separate": True}),
        ("gcn", "pyg", "runs along out edges", {"direction": "out"}),
        ("gcn", "jax", "library 'jax' is not known", {}),
    ],
)
def test_what_has_no_counterpart_is_an_error(
    model: str, library: str, words: str, keys: dict[str, Any]
) -> None:
    trainer = gt.Trainer(model, GRAPH, **{**KEYS, **keys})
    with pytest.raises(ConfigError, match=words):
        gt.to_torch(trainer.model, library)
