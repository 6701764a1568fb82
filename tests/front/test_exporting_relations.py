"""Networks that read relations and types as modules of PyTorch Geometric and DGL. What needs these
libraries is skipped without them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import libraries
import numpy as np
import pytest
from scipy.linalg import block_diag

import graphtheta as gt
from graphtheta.base.typed_rows import TypedRows
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.layer.dry_run import probe
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.engine.partition.partition import Partition, build_partition
from graphtheta.engine.view.view import global_view
from graphtheta.errors import ConfigError, DataError
from graphtheta.inference.exporting.calls import GraphTensors, call
from graphtheta.models import (
    GAT,
    GATE,
    GCN,
    GIN,
    GINE,
    HGT,
    MLP,
    RGAT,
    RGCN,
    SAGE,
    Network,
    SimpleHGN,
)
from graphtheta.models.per_relation import PerRelation
from graphtheta.ops import Tape, dtype_scope

RNG = np.random.default_rng(0)
# venues have no features, and no message reaches a reader
SIZES = {"paper": 20, "author": 25, "venue": 6, "reader": 8}
WIDTHS = {"paper": 5, "author": 3, "reader": 2}
# the third relation has no edges
COUNTS = {
    ("author", "writes", "paper"): 90,
    ("paper", "is.in", "venue"): 30,
    ("paper", "void", "author"): 0,
    ("paper", "cites", "paper"): 60,
    ("reader", "likes", "paper"): 30,
    ("author", "knows", "author"): 50,
}


def ends(source: str, destination: str, n: int) -> np.ndarray:
    """Edges with duplicates, and without the last node of each type; half of the first of them into
    one node.
    """
    found = np.stack([RNG.integers(0, SIZES[name] - 1, n) for name in (source, destination)])
    found[1, : n // 4] = 1
    return found


EDGES = {name: ends(name[0], name[2], n) for name, n in COUNTS.items()}
FEATURES = {
    name: RNG.standard_normal((SIZES[name], d)).astype(np.float32) for name, d in WIDTHS.items()
}
GRAPH = gt.Graph(
    EDGES,
    SIZES,
    x=FEATURES,
    y={"paper": RNG.integers(0, 4, 20)},
    **{
        split: {"paper": np.arange(20) % 3 == i} for i, split in enumerate(("train", "val", "test"))
    },
)
WEIGHTED = GRAPH.replace(edge_weight=RNG.uniform(0.5, 2, GRAPH.n_edges))
METADATA = (GRAPH.node_types, GRAPH.relations)
N, D, R, T = GRAPH.n_nodes, 8, len(COUNTS), len(SIZES)
DENSE = GRAPH.x.toarray()

KEYS: dict[str, Any] = {
    "scores": "logits",
    "epochs": 3,
    "hidden": 6,
    "backend": "reference",
    "lr": 0.05,
    "dropout": 0.2,
    "normalise_features": "none",
    "dtype": "float64",
}
NETWORKS: dict[str, dict[str, Any]] = {
    "rgcn": {"norm": "layer", "residual": True, "layers": 3},
    "rgcn bases": {"bases": 3, "jumping": "concat"},
    "rgcn blocks": {"blocks": 2},
    "rgcn sum": {"relation_sum": True, "norm": "batch"},
    "rgat": {"heads": 3, "out_heads": 2},
    "rgat bases": {"heads": 2, "bases": 2},
    "simple_hgn": {"heads": 2, "residual": True},
    "simple_hgn wide": {"heads": 2, "d_relation": 3, "norm": "batch", "out_heads": 3},
    "hgt": {"heads": 2, "norm": "layer"},
    "hgt residual": {"heads": 3, "residual": True, "jumping": "max", "layers": 3},
    "hgt batch": {"heads": 2, "norm": "batch"},
}
LAYERS: dict[str, Callable[[], Layer]] = {
    "rgcn": lambda: RGCN(D, 6, R),
    "rgcn plain": lambda: RGCN(D, 6, R, aggregator="sum", root=False, bias=False),
    "rgcn bases": lambda: RGCN(D, 6, R, bases=3),
    "rgcn many blocks": lambda: RGCN(D, 8, R, blocks=4),
    "rgcn few blocks": lambda: RGCN(D, 6, R, blocks=2, root=False),
    "rgat": lambda: RGAT(D, 3, R, 2, slope=0.1),
    "rgat bases": lambda: RGAT(D, 3, R, 2, bases=3, concat=False, bias=False),
    "rgat mixed": lambda: RGAT(D, 3, R, 2, mixed_heads=True, concat=False),
    "simple_hgn": lambda: SimpleHGN(D, 3, R, 2, slope=0.1),
    "simple_hgn narrow": lambda: SimpleHGN(
        D, 5, R, 2, d_relation=2, concat=False, residual=True, bias=False
    ),
    "hgt": lambda: HGT(D, D, R, T, 2),
    "hgt narrow": lambda: HGT(D, 6, R, T, 3),
    "hgt plain": lambda: HGT(D, D, R, T, 2, bias=False),
}


class Alone(Model):
    def __init__(self, layer: Layer | PerRelation):
        self.layer = layer

    def forward(self, graph: Any) -> Any:
        return self.layer(graph, graph.x)


def made(name: str) -> Layer:
    """A layer with random numbers for all parameters."""
    rng = np.random.default_rng(1)
    with dtype_scope("float64"):
        layer = LAYERS[name]()
    for p in layer.parameters():
        p.value = rng.standard_normal(p.shape)
    return layer


def result_of(layer: Layer | PerRelation, graph: gt.Graph) -> np.ndarray:
    """What the layer computes of the features."""
    partition = build_partition(graph, SerialComm(), dtype=np.float64)
    model = Alone(layer)
    view = global_view(partition, probe(model, partition).layers)
    with Tape(record=False, training=False):
        found = np.asarray(model(view).value)
    return in_order(partition, found if view.rows is None else found[np.argsort(view.rows)])


def in_order(partition: Partition, x: np.ndarray) -> np.ndarray:
    """Rows of the masters of the only worker, in the order of the nodes."""
    return x[np.argsort(partition.masters)]


def tensors(torch: Any, *arrays: Any, dtype: str = "float64") -> list[Any]:
    """Codes as they are, and floats of a type."""
    found = (np.array(x) for x in arrays)
    return [torch.as_tensor(x.astype(dtype) if x.dtype.kind == "f" else x) for x in found]


def codes(torch: Any) -> dict[str, Any]:
    relation, kind = tensors(torch, GRAPH.edge_columns["relation"], GRAPH.node_columns["type"])
    return {"edge_type": relation, "node_type": kind}


def trained(name: str, graph: gt.Graph = GRAPH, **keys: Any) -> tuple[Any, np.ndarray]:
    """A network and its predictions."""
    trainer = gt.Trainer(name.split()[0], graph, **{**KEYS, **NETWORKS[name], **keys})
    trainer.fit()
    found = trainer.predict("all")
    assert found is not None
    return trainer.model, found[1]


def close(found: Any, expected: np.ndarray, atol: float = 1e-12) -> None:
    np.testing.assert_allclose(
        found.numpy(), expected, rtol=0, atol=atol * max(1, np.abs(expected).max())
    )


@pytest.mark.second
@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_pytorch_geometric_compute_the_same(name: str) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    layer = made(name)
    graph = GRAPH.replace(x=RNG.standard_normal((N, D)), meta={})
    x, edges = tensors(torch, graph.x, graph.edge_index)
    with torch.no_grad():
        out = call(
            layer,
            gt.counterpart(layer, "pyg", METADATA).make(),
            x,
            GraphTensors(edges, edges, **codes(torch)),
        )
    close(out, result_of(layer, graph))


# attributes of relations that have some at widths of their own
WIDTHS_APART = {"writes": 3, "is.in": 2, "void": 1}


def kinds(name: tuple[str, str, str], apart: bool = False) -> Layer:
    """A layer of another kind for each relation."""
    mlp = MLP(D, (5,), 6)
    return {
        "writes": GINE(mlp, D, WIDTHS_APART["writes"]) if apart else SAGE(D, 6),
        "cites": GAT(D, 3, 2),
        "is.in": GATE(D, 3, 2, 2),
        "void": GINE(mlp, D, WIDTHS_APART["void"] if apart else 2),
        "likes": GIN(mlp, eps=0.1),
        "knows": SAGE(D, 6, aggregator="max"),
    }[name[1]]


def by_relation(combine: str, types: bool = True, apart: bool = False) -> PerRelation:
    with dtype_scope("float64"):
        layer = gt.per_relation(
            layers=lambda name: kinds(name, apart),
            relations=GRAPH.relations,
            types=GRAPH.node_types if types else (),
            combine=combine,
        )
    for p in layer.parameters():
        p.value = np.random.default_rng(1).standard_normal(p.shape)
    return layer


@pytest.mark.second
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("combine", ["sum", "mean", "max"])
def test_layers_by_relation_are_a_layer_of_pytorch_geometric(combine: str, apart: bool) -> None:
    torch = pytest.importorskip("torch")
    pyg = pytest.importorskip("torch_geometric.nn")
    of_relations = {
        name: RNG.standard_normal((n, WIDTHS_APART.get(name[1], 0) if apart else 2), np.float32)
        for name, n in COUNTS.items()
    }
    rows = list(of_relations.values())
    graph = GRAPH.replace(
        x=RNG.standard_normal((N, D)),
        meta={"relation_widths": [x.shape[1] for x in rows]} if apart else {},
        edge_attr=block_diag(*rows) if apart else np.concatenate(rows),
    )
    assert isinstance(graph.edge_attr, TypedRows) == apart
    layer = by_relation(combine, apart=apart)
    expected = result_of(layer, graph)
    module = gt.counterpart(layer, "pyg", METADATA).make()
    assert type(module) is pyg.HeteroConv
    x, edges, attr = tensors(torch, graph.x, graph.edge_index, graph.edge_attr)
    relation, kind = codes(torch).values()
    attributes = {
        name: tensors(torch, rows)[0]
        for name, rows in of_relations.items()
        if name[1] in (WIDTHS_APART if apart else ("is.in", "void"))
    }
    pairs = {name: tensors(torch, pairs)[0] for name, pairs in EDGES.items()}
    with torch.no_grad():
        found = module(
            {name: x[kind == i] for i, name in enumerate(SIZES)}, pairs, edge_attr_dict=attributes
        )
        whole = gt.to_torch(Network([layer], [6]), metadata=METADATA)
        close(whole(x, edges, None, attr, relation, kind), expected)
        with pytest.raises(DataError, match="columns, but layers of relations read"):
            whole(x, edges, None, attr[:, :1], relation, kind)
    # no relation leads to readers
    assert (
        set(found) == {"paper", "author", "venue"} and not expected[GRAPH.nodes_of("reader")].any()
    )
    for name, out in found.items():
        close(out, expected[GRAPH.nodes_of(name)])


def test_layers_by_relation_without_a_counterpart_are_refused() -> None:
    layer = by_relation("sum")
    other = gt.per_relation(lambda _: GCN(D, 6), GRAPH.relations, GRAPH.node_types)
    for part, library, metadata, words in (
        (layer, "dgl", METADATA, "no counterpart in dgl, whose HeteroGraphConv has no converter"),
        (layer, "pyg", None, "HeteroConv of PyTorch Geometric has weights by names"),
        (
            by_relation("sum", types=False),
            "pyg",
            METADATA,
            "count at the nodes that their relation in metadata leads to",
        ),
        (layer, "pyg", (METADATA[0][::-1], METADATA[1]), "in the order of their codes"),
        (other, "pyg", METADATA, "PerRelation with GCN has no counterpart in pyg"),
        (
            gt.per_relation(kinds, GRAPH.relations, combine="attention", width=6),
            "pyg",
            METADATA,
            "combine='attention' has no",
        ),
    ):
        with pytest.raises(ConfigError, match=words):
            gt.counterpart(part, library, metadata)


@pytest.mark.second
@pytest.mark.parametrize("name", [name for name in LAYERS if name.startswith("rgcn")])
def test_layers_of_dgl_compute_the_same(name: str) -> None:
    torch = pytest.importorskip("torch")
    dgl = libraries.dgl()
    layer = made(name)
    graph = WEIGHTED.replace(x=RNG.standard_normal((N, D)), meta={})
    x, weight = tensors(torch, graph.x, graph.edge_weight)
    other = dgl.graph(tuple(tensors(torch, graph.src, graph.dst)), num_nodes=N)
    with torch.no_grad():
        out = call(
            layer,
            gt.counterpart(layer, "dgl").make(),
            x,
            GraphTensors(other, other.edges(), weight, **codes(torch)),
        )
    close(out, result_of(layer, graph))


@pytest.mark.second
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NETWORKS)
def test_predictions_of_pytorch_geometric_are_the_same(name: str, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    model, expected = trained(name, dtype=dtype)
    x, edges = tensors(torch, DENSE, GRAPH.edge_index, dtype=dtype)
    with torch.no_grad():
        out = gt.to_torch(model, metadata=METADATA)(x, edges, **codes(torch))
    close(out, expected, 1e-5 if dtype == "float32" else 1e-12)


@pytest.mark.second
@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("name", [name for name in NETWORKS if name.startswith("rgcn")])
def test_predictions_of_dgl_are_the_same(name: str, weighted: bool) -> None:
    torch = pytest.importorskip("torch")
    dgl = libraries.dgl()
    graph = WEIGHTED if weighted else GRAPH
    model, expected = trained(name, graph)
    other = dgl.graph(tuple(tensors(torch, graph.src, graph.dst)), num_nodes=N)
    weight = tensors(torch, graph.edge_weight)[0] if weighted else None
    with torch.no_grad():
        out = gt.to_torch(model, "dgl")(
            *tensors(torch, DENSE), other, weight, edge_type=codes(torch)["edge_type"]
        )
    close(out, expected)


@pytest.mark.second
def test_heterogeneous_data_has_the_same_numbering() -> None:
    torch = pytest.importorskip("torch")
    data = pytest.importorskip("torch_geometric.data").HeteroData()
    for name, n in SIZES.items():
        data[name].x = tensors(torch, FEATURES.get(name, np.zeros((n, 0))))[0]
    for relation, pairs in EDGES.items():
        data[relation].edge_index = tensors(torch, pairs)[0]
    whole = data.to_homogeneous()
    metadata = data.metadata()
    model, expected = trained("hgt")
    x = torch.block_diag(*(data[name].x for name in metadata[0]))
    with torch.no_grad():
        out = gt.to_torch(model, metadata=metadata)(
            x, whole.edge_index, edge_type=whole.edge_type, node_type=whole.node_type
        )
    close(out, expected)


@pytest.mark.second
def test_learned_features_are_given_as_features() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    trainer = gt.Trainer("rgcn", GRAPH, **KEYS, embedding=4, embedding_types="venue,reader")
    trainer.fit()
    found = trainer.predict("all")
    assert found is not None
    x, edges = tensors(
        torch, in_order(trainer.partition, trainer.partition.node.read("x")), GRAPH.edge_index
    )
    with torch.no_grad():
        close(gt.to_torch(trainer.model)(x, edges, **codes(torch)), found[1])


@pytest.mark.second
def test_means_are_those_of_relations_also_with_pyg_lib() -> None:
    torch = pytest.importorskip("torch")
    backend = pytest.importorskip("torch_geometric.backend")
    module = gt.to_torch(trained("rgcn")[0])
    seen: list[Any] = []
    for layer in module.layers:
        layer.register_forward_pre_hook(lambda *_: seen.append(backend.use_segment_matmul))
    module(*tensors(torch, DENSE, GRAPH.edge_index), **codes(torch))
    assert seen == [False] * 3 and backend.use_segment_matmul is None


@pytest.mark.second
def test_what_a_module_lacks_is_an_error() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    x, edges, weight = tensors(torch, DENSE, GRAPH.edge_index, WEIGHTED.edge_weight)
    relational = gt.to_torch(trained("rgcn")[0])
    typed = gt.to_torch(trained("hgt")[0], metadata=METADATA)
    given = codes(torch)
    for module, arguments, said in (
        (relational, {}, "give edge_type"),
        (relational, {"edge_type": given["edge_type"] + 1}, "codes from 1 to 6; the network has 6"),
        (
            relational,
            {**given, "edge_weight": weight},
            "RGCNConv of PyTorch Geometric reads no edge weights",
        ),
        (typed, {"edge_type": given["edge_type"]}, "give node_type"),
        (typed, {"node_type": given["node_type"]}, "give edge_type"),
        (
            typed,
            {**given, "node_type": given["node_type"].flip(0)},
            "ends of other types than its relation",
        ),
    ):
        with pytest.raises(DataError, match=said):
            module(x, edges, **arguments)


def shapes(layer: Layer, library: str) -> dict[str, tuple[int, ...]]:
    return {name: x.shape for name, x in gt.counterpart(layer, library, METADATA).state.items()}


def test_weights_have_the_names_and_shapes_of_pytorch_geometric() -> None:
    assert shapes(made("rgcn"), "pyg") == {"weight": (R, D, 6), "root": (D, 6), "bias": (6,)}
    assert shapes(made("rgcn bases"), "pyg") == {
        "weight": (3, D, 6),
        "comp": (R, 3),
        "root": (D, 6),
        "bias": (6,),
    }
    assert shapes(made("rgcn many blocks"), "pyg")["weight"] == (R, 4, 2, 2) and shapes(
        made("rgcn plain"), "pyg"
    ) == {"weight": (R, D, 6)}
    unread = {"w": (3,), "l1": (1, 3), "b1": (1, 3), "l2": (3, 3), "b2": (1, 3)}
    assert shapes(made("rgat"), "pyg") == {
        "weight": (R, D, 6),
        "q": (6, 2),
        "k": (6, 2),
        "bias": (6,),
        **unread,
    }
    assert shapes(made("rgat bases"), "pyg") == {
        "basis": (3, D, 6),
        "att": (R, 3),
        "q": (6, 2),
        "k": (6, 2),
        **unread,
    }
    assert shapes(made("simple_hgn narrow"), "pyg") == {
        "lin.weight": (10, D),
        "lin_edge.weight": (10, R),
        "att_src": (1, 2, 5),
        "att_dst": (1, 2, 5),
        "att_edge": (1, 2, 5),
        "res.weight": (5, D),
    }


def test_weights_of_hgt_have_the_names_of_types_and_relations() -> None:
    layer = made("hgt")
    found = gt.counterpart(layer, "pyg", METADATA)
    # readers get no messages, and HGTConv has values only for types that some relation leads to
    assert found.options["metadata"][1][R:] == [("reader", "none", "reader")]
    assert {
        name: x.shape for name, x in found.state.items() if "author" in name or "rel.weight" in name
    } == {
        "kqv_lin.lins.author.weight": (3 * D, D),
        "kqv_lin.lins.author.bias": (3 * D,),
        "out_lin.lins.author.weight": (D, D),
        "out_lin.lins.author.bias": (D,),
        "skip.author": (1,),
        "k_rel.weight": (2 * (R + 1), 4, 4),
        "v_rel.weight": (2 * (R + 1), 4, 4),
        **{
            f"p_rel.{name}": (1, 2)
            for name in ("author__writes__paper", "paper__void__author", "author__knows__author")
        },
    }
    assert "p_rel.paper__is#in__venue" in found.state
    np.testing.assert_array_equal(found.state["k_rel.weight"][R + 1 + 3], layer.key.value[1, :, 3])


def test_weights_have_the_names_and_shapes_of_dgl() -> None:
    assert shapes(made("rgcn"), "dgl") == {
        "linear_r.W": (R, D, 6),
        "loop_weight": (D, 6),
        "h_bias": (6,),
    }
    assert shapes(made("rgcn bases"), "dgl") == {
        "linear_r.W": (3, D, 6),
        "linear_r.coeff": (R, 3),
        "loop_weight": (D, 6),
        "h_bias": (6,),
    }
    assert shapes(made("rgcn few blocks"), "dgl") == {"linear_r.W": (R, 2 * 4 * 3), "h_bias": (6,)}
    assert gt.counterpart(made("rgcn few blocks"), "dgl").options["regularizer"] == "bdd"


@pytest.mark.parametrize(
    "name, library, metadata, words",
    [
        ("rgat", "dgl", METADATA, "RGAT has no counterpart in dgl"),
        ("simple_hgn", "dgl", METADATA, "SimpleHGN has no counterpart in dgl"),
        ("hgt", "dgl", METADATA, "whose HGTConv has no gelu"),
        ("hgt", "pyg", None, r"metadata=\(graph.node_types, graph.relations\)"),
        ("hgt", "pyg", (METADATA[0], METADATA[1][:-1]), "HGT has 4 types and 6 relations"),
        (
            "hgt",
            "pyg",
            (METADATA[0], ["ab", "bc", "cd", "de", "ef", "fg"]),
            r"metadata\[1\]\[0\] is 'ab'; expected a tuple of 3 values",
        ),
        (
            "hgt",
            "pyg",
            (("paper", "paper", "venue", "reader"), METADATA[1]),
            "HGT has 4 types and 6 relations",
        ),
        (
            "hgt",
            "pyg",
            (
                ("a.b", *METADATA[0][1:]),
                [tuple(x.replace("paper", "a.b") for x in r) for r in METADATA[1]],
            ),
            "have no dots",
        ),
    ],
)
def test_what_has_no_counterpart_is_an_error(
    name: str, library: str, metadata: Any, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        gt.counterpart(made(name), library, metadata)


def test_attention_of_an_earlier_layer_has_no_counterpart() -> None:
    with pytest.raises(
        ConfigError,
        match=r"beta=0\.1, which reads attention weights of an earlier layer, has no counterpart",
    ):
        gt.counterpart(SimpleHGN(D, 3, R, 2, beta=0.1), "pyg")


def test_networks_along_out_edges_are_refused() -> None:
    with pytest.raises(ConfigError, match="runs along out edges"):
        gt.to_torch(gt.Trainer("rgcn", GRAPH, **{**KEYS, "direction": "out"}).model)
