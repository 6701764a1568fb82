"""Networks for whole graphs, edges, links and triples as modules of PyTorch Geometric and DGL;
skipped without these libraries.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import graphs
import libraries
import numpy as np
import pytest
from covering import covering

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError, DataError, ShapeError
from graphtheta.graph.splits.links import link_split
from graphtheta.models.decoder import DotDecoder
from graphtheta.models.readouts import Readout, Set2Set

RNG = np.random.default_rng(0)
KEYS: dict[str, Any] = {
    "scores": "logits",
    "epochs": 2,
    "hidden": 6,
    "backend": "reference",
    "lr": 0.05,
    "dropout": 0.2,
    "dtype": "float64",
    "normalise_features": "none",
}
DTYPES = ("float32", "float64")
LIBRARIES = ("pyg", "dgl")

# a graph of one node, one without edges, and one without nodes
SIZES = [4, 1, 6, 0, 3, 7, 5]
OF = np.repeat(np.arange(len(SIZES)), SIZES)
FIRST = np.cumsum(SIZES) - SIZES
ENDS = np.concatenate(
    [
        a + RNG.integers(0, n, (2, 3 * n))
        for a, n in zip(FIRST, SIZES, strict=True)
        if n not in (0, 1, 3)
    ],
    axis=1,
)
NODES = gt.Graph(
    ENDS, len(OF), x=RNG.normal(size=(len(OF), 3)), edge_attr=RNG.normal(size=(ENDS.shape[1], 2))
)
WHOLE = gt.whole_graphs(
    NODES, np.arange(7) % 3, graph_of=OF, train=np.arange(7) < 5, val=np.arange(7) >= 5
)
WHOLE_MODELS: dict[str, dict[str, Any]] = {
    "gin sum": {"readout": "sum", "norm": "batch"},
    "sage mean": {"readout": "mean", "jumping": "concat"},
    "gat max": {"readout": "max", "heads": 2},
    "gcn attention": {"readout": "attention"},
    "sage set2set": {"readout": "set2set", "jumping": "max"},
    "mlp set2set": {"readout": "set2set"},
    "gine mean": {"readout": "mean", "norm": "batch", "jumping": "concat", "residual": True},
    "rgcn max": {"readout": "max"},
    "hgt sum": {"readout": "sum"},
}
NOT_DGL = ("gine mean", "hgt sum")

PAIRS = graphs.random_graph(40, 200)
N, RELATIONS = 30, 4
PART = np.arange(150) % 5
TRIPLES = gt.Graph(
    RNG.integers(0, N, (2, 150)),
    N,
    edge_columns={"relation": np.arange(150) % RELATIONS},
    edge_train=PART < 3,
    edge_val=PART == 3,
    edge_test=PART == 4,
).deduplicated()
DECODERS = ("distmult", "transe", "complex", "rotate")
SHALLOW: dict[str, Any] = {"layers": 0, "embedding": 6}


@cache
def trained(model: str, graph: gt.Graph, *keys: Any) -> gt.Trainer:
    trainer = gt.Trainer(model, graph, **{**KEYS, **dict(keys)})
    trainer.fit()
    return trainer


def tensors(torch: Any, dtype: str, *arrays: Any) -> list[Any]:
    """Codes as they are, and floats of a type."""
    found = (None if x is None else np.array(x) for x in arrays)
    return [
        x if x is None else torch.as_tensor(x.astype(dtype) if x.dtype.kind == "f" else x)
        for x in found
    ]


def looped(trainer: gt.Trainer, graph: gt.Graph) -> gt.Graph:
    """The graph with the self loops that the trainer added."""
    edges = trainer.partition.edge_ends()
    return (
        graph.with_self_loops()
        if (edges[0] == edges[1]).sum() >= trainer.partition.n_nodes
        else graph
    )


def close(found: Any, expected: np.ndarray, dtype: str = "float64") -> None:
    assert found.shape == expected.shape
    atol = 1e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(
        found.numpy(), expected, rtol=0, atol=atol * max(1, np.abs(expected).max())
    )


def of_graphs(name: str, dtype: str) -> tuple[gt.Trainer, np.ndarray]:
    trainer = trained(name.split()[0], WHOLE, *WHOLE_MODELS[name].items(), ("dtype", dtype))
    found = trainer.predict()
    assert found is not None
    assert found[0].tolist() == list(range(len(SIZES)))
    return trainer, found[1]


@pytest.mark.second
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", WHOLE_MODELS)
def test_whole_graphs_in_pytorch_geometric(name: str, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    trainer, expected = of_graphs(name, dtype)
    graph = looped(trainer, NODES)
    x, edges, attr, batch = tensors(torch, dtype, graph.x, graph.edge_index, graph.edge_attr, OF)
    # all edges are of one relation and all nodes of one type
    codes = {"edge_type": edges[0] * 0, "node_type": batch * 0}
    module = gt.to_torch(trainer.model, metadata=(WHOLE.node_types, WHOLE.relations))
    with torch.no_grad():
        close(module(x, edges, None, attr, **codes, batch=batch), expected, dtype)
        # the last graph, and another without nodes
        node = batch == 6
        edge = batch[edges[0]] == 6
        codes = {"edge_type": codes["edge_type"][edge], "node_type": codes["node_type"][node]}
        arguments = x[node], edges[:, edge] - int(FIRST[6]), None, attr[edge]
        close(module(*arguments, **codes), expected[[6]], dtype)
        close(
            module(*arguments, **codes, batch=batch[node] * 0, batch_size=2),
            expected[[6, 3]],
            dtype,
        )


@pytest.mark.second
@pytest.mark.parametrize("name", [name for name in WHOLE_MODELS if name not in NOT_DGL])
def test_whole_graphs_in_dgl(name: str) -> None:
    torch = pytest.importorskip("torch")
    dgl = libraries.dgl()
    trainer, expected = of_graphs(name, "float64")
    graph = looped(trainer, NODES)
    own = [np.flatnonzero(OF[graph.src] == i) for i in range(len(SIZES))]
    single = [
        dgl.graph(tuple(tensors(torch, "", *(graph.edge_index[:, rows] - a))), num_nodes=n)
        for rows, a, n in zip(own, FIRST, SIZES, strict=True)
    ]
    batch = dgl.batch(single)
    module = gt.to_torch(trainer.model, "dgl")
    (x,) = tensors(torch, "float64", graph.x)
    with torch.no_grad():
        close(module(x, batch, edge_type=batch.edges()[0] * 0), expected)
        with pytest.raises(DataError, match=r"give one of dgl\.batch, without batch"):
            module(x, batch, edge_type=batch.edges()[0] * 0, batch=torch.as_tensor(OF))


def scores(
    library: str,
    trainer: gt.Trainer,
    graph: gt.Graph,
    dtype: str,
    relation: np.ndarray | None = None,
    **pairs: Any,
) -> Any:
    """Scores of pairs by a module of a library, with node values along the edges of a graph."""
    torch = pytest.importorskip("torch")
    other = pytest.importorskip("torch_geometric") if library == "pyg" else libraries.dgl()
    x = graph.x if graph.x is not None else trainer.learned()
    x, edges, weight, attr, codes = tensors(
        torch, dtype, x, graph.edge_index, graph.edge_weight, graph.edge_attr, relation
    )
    given = edges if library == "pyg" else other.graph(tuple(edges), num_nodes=graph.n_nodes)
    pairs = dict(zip(pairs, tensors(torch, dtype, *pairs.values()), strict=True))
    module = gt.to_torch(trainer.model, library)
    with torch.no_grad():
        found = module(x, given, weight, attr, codes, **pairs)
        h = module.encode(x, given, weight, attr, codes)
        assert torch.equal(module.decode(h, *pairs.values()), found)
    return found


@pytest.mark.second
@pytest.mark.parametrize(
    ("decoder", "library", "dtype"), covering(("dot", "hadamard"), LIBRARIES, DTYPES)
)
def test_scores_of_links(decoder: str, library: str, dtype: str) -> None:
    trainer = trained(
        "gcn", PAIRS, ("task", "link"), ("decoder", decoder), ("dtype", dtype), ("norm", "batch")
    )
    found = trainer.predict()
    assert found is not None and len(found[0]) > 5
    messages = link_split(PAIRS, seed=trainer.job.seed).graph
    close(
        scores(library, trainer, looped(trainer, messages), dtype, edge_label_index=found[0].T),
        found[1],
        dtype,
    )


EDGES = {
    "one value": PAIRS,
    "two values": PAIRS.replace(edge_y=RNG.normal(size=(200, 2))),
    "no attributes": PAIRS.replace(edge_attr=None),
}


@pytest.mark.second
@pytest.mark.parametrize(("name", "library", "dtype"), covering(tuple(EDGES), LIBRARIES, DTYPES))
def test_values_of_edges(name: str, library: str, dtype: str) -> None:
    graph = EDGES[name]
    trainer = trained("sage", graph, ("task", "edge"), ("dtype", dtype))
    found = trainer.predict()
    assert found is not None
    np.testing.assert_array_equal(found[0], np.arange(graph.n_edges))
    attr = {} if graph.edge_attr is None else {"edge_label_attr": graph.edge_attr}
    close(
        scores(
            library,
            trainer,
            looped(trainer, graph),
            dtype,
            edge_label_index=graph.edge_index,
            **attr,
        ),
        found[1],
        dtype,
    )


def of_triples(
    decoder: str, dtype: str = "float64", **keys: Any
) -> tuple[gt.Trainer, np.ndarray, np.ndarray]:
    """A trainer, its test triples and their scores."""
    keys = {"model": "mlp", **SHALLOW, **keys}
    trainer = trained(
        keys.pop("model"), TRIPLES, ("decoder", decoder), ("dtype", dtype), *keys.items()
    )
    found = trainer.predict()
    assert found is not None and len(found[0]) > 20
    return trainer, *found


@pytest.mark.second
@pytest.mark.parametrize(
    ("encoder", "decoder", "library", "dtype"),
    covering(({}, {"model": "rgcn", "layers": 1, "bases": 2}), DECODERS, LIBRARIES, DTYPES),
    ids=str,
)
def test_scores_of_triples(encoder: dict[str, Any], decoder: str, library: str, dtype: str) -> None:
    trainer, ids, expected = of_triples(decoder, dtype, **encoder)
    train = np.flatnonzero(TRIPLES.edge_train)
    messages = gt.Graph(
        TRIPLES.edge_index[:, train],
        N,
        edge_columns={"relation": TRIPLES.edge_columns["relation"][train]},
    )
    messages = messages.with_inverse_relations()
    found = scores(
        library,
        trainer,
        messages,
        dtype,
        messages.edge_columns["relation"],
        edge_label_index=ids[:, [0, 2]].T,
        edge_label_attr=None,
        edge_label_type=ids[:, 1],
    )
    close(found, expected, dtype)


@pytest.mark.second
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("decoder", ["distmult", "complex"])
def test_learned_features_and_a_decoder_are_a_model_of_pytorch_geometric(
    decoder: str, dtype: str
) -> None:
    torch = pytest.importorskip("torch")
    kge = pytest.importorskip("torch_geometric.nn.kge")
    trainer, ids, expected = of_triples(decoder, dtype)
    module = gt.counterpart(trainer.model.decoder, "pyg", nodes=trainer.learned()).make()
    assert type(module) is {"distmult": kge.DistMult, "complex": kge.ComplEx}[decoder]
    with torch.no_grad():
        close(module(*torch.as_tensor(ids.T)), expected, dtype)


@pytest.mark.second
def test_models_of_the_same_name_compute_something_else() -> None:
    torch = pytest.importorskip("torch")
    kge = pytest.importorskip("torch_geometric.nn.kge")
    ids = torch.tensor([[0], [0], [1]])
    nodes = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    relation = torch.zeros(1, 2)
    module = kge.TransE(2, 1, 2)
    module.load_state_dict({"node_emb.weight": nodes, "rel_emb.weight": relation})
    # |(1, 0) - (0, 1)|_1, and not |(3, 0) - (0, 4)|_1
    assert module(*ids).item() == -2
    module = kge.RotatE(2, 1, 2, margin=0)
    module.load_state_dict(
        {"node_emb.weight": nodes, "node_emb_im.weight": nodes * 0, "rel_emb.weight": relation}
    )
    # the root of 3 ** 2 + 4 ** 2, and not 3 + 4
    assert module(*ids).item() == -5


def test_weights_of_decoders_and_readouts_have_the_names_of_the_other_library() -> None:
    def shapes(part: Any, library: str = "pyg", **given: Any) -> dict[str, tuple[int, ...]]:
        return {name: x.shape for name, x in gt.counterpart(part, library, **given).state.items()}

    nodes = np.arange(12.0).reshape(2, 6)
    decoder = gt.ComplEx(6, RELATIONS)
    assert shapes(decoder) == {"weight": (RELATIONS, 6)} and shapes(gt.RotatE(6, RELATIONS)) == {
        "weight": (RELATIONS, 3)
    }
    found = gt.counterpart(decoder, "pyg", nodes=nodes)
    assert {name: x.shape for name, x in found.state.items()} == {
        "node_emb.weight": (2, 3),
        "node_emb_im.weight": (2, 3),
        "rel_emb.weight": (RELATIONS, 3),
        "rel_emb_im.weight": (RELATIONS, 3),
    }
    np.testing.assert_array_equal(found.state["node_emb_im.weight"], [[3, 4, 5], [9, 10, 11]])
    assert shapes(gt.TransE(6, RELATIONS), "dgl") == {"rel_emb.weight": (RELATIONS, 6)}
    assert gt.counterpart(gt.TransE(6, RELATIONS, norm=2), "dgl").options["p"] == 2
    assert shapes(gt.models.EdgeDecoder(5, 2, 3, hidden=(4,))) == {
        "0.weight": (4, 13),
        "0.bias": (4,),
        "2.weight": (2, 4),
        "2.bias": (2,),
    }
    assert shapes(Readout("attention", 5)) == {"gate_nn.weight": (1, 5)}
    assert shapes(Set2Set(5), "dgl") == {
        "lstm.weight_ih_l0": (20, 10),
        "lstm.weight_hh_l0": (20, 5),
        "lstm.bias_ih_l0": (20,),
        "lstm.bias_hh_l0": (20,),
    }


def learned(comm: Any, **keys: Any) -> np.ndarray | None:
    trainer = gt.Trainer(
        "mlp", TRIPLES, comm=comm, **{**KEYS, **SHALLOW, "decoder": "distmult", **keys}
    )
    trainer.train_epoch(0)
    return trainer.learned()


def test_learned_features_are_in_the_order_of_the_nodes() -> None:
    whole, *others = run_simulated(3, learned, partitioner="1d-src", masters="hash")
    assert whole is not None and whole.shape == (N, 6) and others == [None, None]
    np.testing.assert_allclose(whole, run_simulated(1, learned)[0], rtol=0, atol=1e-12)
    with pytest.raises(ConfigError, match="learns no node features"):
        gt.Trainer("gcn", PAIRS, **KEYS).learned()


class Derived(DotDecoder):
    """Scores of another kind."""


@pytest.mark.parametrize(
    "part, library, nodes, error, words",
    [
        (gt.TransE(6, 2), "pyg", (3, 6), ConfigError, "whose TransE divides the vectors of nodes"),
        (gt.RotatE(6, 2), "pyg", (3, 6), ConfigError, "one Euclidean norm of all components"),
        (
            DotDecoder(),
            "pyg",
            (3, 6),
            ConfigError,
            "models of triples for DistMult and ComplEx only",
        ),
        (
            gt.DistMult(6, 2),
            "dgl",
            (3, 6),
            ConfigError,
            "which has no models that hold the features",
        ),
        (
            gt.DistMult(6, 2),
            "pyg",
            (3, 5),
            ShapeError,
            r"nodes has shape \[3, 5\]; DistMult reads a row of 6 numbers",
        ),
        (Derived(), "pyg", None, ConfigError, "Derived has no counterpart in pyg"),
    ],
    ids=["TransE", "RotatE", "dot", "dgl", "width", "derived"],
)
def test_what_has_no_counterpart_is_an_error(
    part: Any, library: str, nodes: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        gt.counterpart(part, library, nodes=None if nodes is None else np.zeros(nodes))


def test_models_of_users_are_refused() -> None:
    class Mine(gt.models.Network):
        pass

    with pytest.raises(ConfigError, match="Mine cannot be exported; expected a published network"):
        gt.to_torch(Mine([], []))


@pytest.mark.second
def test_what_a_module_lacks_is_an_error() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    triples = gt.to_torch(of_triples("distmult")[0].model)
    of_edges = gt.to_torch(trained("sage", PAIRS, ("task", "edge"), ("dtype", "float64")).model)
    ends, codes = torch.zeros(2, 3, dtype=torch.long), torch.tensor([0, 1, RELATIONS])
    x = torch.zeros(5, 6, dtype=torch.float64)
    width = PAIRS.n_features
    for call, said in (
        (lambda: triples(x), "give edge_label_index"),
        (lambda: triples(x, edge_label_index=ends), "give edge_label_type"),
        (
            lambda: triples(x, edge_label_index=ends, edge_label_type=codes),
            "codes from 0 to 4; the decoder has 4 relations",
        ),
        (lambda: of_edges(x[:, :width], edge_label_index=ends), "give edge_index, or a DGLGraph"),
        (lambda: of_edges(x[:, :width], ends, edge_label_index=ends), "give edge_label_attr"),
        (
            lambda: gt.to_torch(of_graphs("mlp set2set", "float64")[0].model).decode(x, ends),
            "the network has no decoder",
        ),
    ):
        with pytest.raises(DataError, match=said):
            call()
