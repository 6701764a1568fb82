"""``graphtheta explain`` and ``gt.explain``: what they say of published models and a user's own."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from traced import trace

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError
from graphtheta.ops import PRIMITIVES
from graphtheta.ops.edge.cost import Cost, edge_cost, node_cost, operation_flops
from graphtheta.ops.kernels.products import shapes

TINY = ("--dataset", "sbm:n_nodes=200,n_edges=1200,classes=3,features=8", "--hidden", "8")
MINE = """
import graphtheta as gt


class Mine(gt.Layer):
    def __init__(self, d_in, d_out, d_edge):
        self.w, self.a = gt.Parameter.glorot(2 * d_in + d_edge, d_out), gt.Parameter.glorot(d_in, 1)

    def gather(self, edge):
        score = gt.tanh(edge.src.h @ self.a + edge.dst.h @ self.a)
        ends = gt.concat([edge.src.h, edge.dst.h, edge.attr])
        return gt.softmax(score[..., 0]) * gt.relu(ends @ self.w)


class Net(gt.Model):
    def __init__(self, d_in, d_out, d_edge):
        self.layer = Mine(d_in, d_out, d_edge)

    def forward(self, graph):
        return self.layer(graph, graph.x)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (
            "gcn",
            [
                "layer 1: GCN, direction in",
                "column_0 = node.z * node.factor",
                "src.column_0 [8], edge.weight [1]",
            ],
        ),
        (
            "gat",
            [
                "softmax weights the sum: one pass, one message",
                "softmax-sum of leaky_relu(src.s + dst.t), src.z",
                "src.s [8], src.z [64]",
            ],
        ),
        ("gat_e", ["edge.attr @ sum(layers.0.weight_edge * layers.0.att_edge)", "edge.attr [4]"]),
        ("gipa", ["layer 2: GIPA", "relu((edge.attr @ layers.0.embed) + layers.0.embed_bias)"]),
    ],
)
def test_published_models(model: str, told: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--model", model, *TINY]) == 0
    text = capsys.readouterr().out
    for part in [
        *told,
        "Network over 200 nodes",
        "back end fused",
        "transform",
        "gather and sum",
        "apply",
        "memory: at most",
    ]:
        assert part in text
    assert "None" not in text


def test_a_model_of_the_users(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "mine.py").write_text(MINE)
    assert main(["explain", "--model", "mine.py:Net", *TINY[:2], "--backend", "reference"]) == 0
    text = capsys.readouterr().out
    assert "product of parts: concat(src.h, dst.h, edge.attr) @ layer.w -> " in text
    # scores and values need three columns: one of them at both ends
    assert (
        text.count("hoisted to the nodes: column_") == 4 and "column_0 = node.h @ layer.a" in text
    )
    assert "back end reference" in text


def test_the_order_of_product_and_sum_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--model", "sage", *TINY]) == 0
    assert "order    sum before product, 8 to 8 wide\n" in (text := capsys.readouterr().out)
    assert "order    product before sum, 8 to 3 wide\n" in text
    assert (
        main(
            [
                "explain",
                "--model",
                "sage",
                *TINY,
                "--strategy",
                "mini",
                "--batch-size",
                "5",
                "--fanout",
                "4,4",
            ]
        )
        == 0
    )
    assert re.search(
        r"order    first batch: product before sum, 8 to 3 wide, \d+ nodes to 5 along \d+ edges\n",
        capsys.readouterr().out,
    )


def test_a_decoder_runs_on_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--task", "link", *TINY]) == 0
    text = capsys.readouterr().out
    assert (
        "decoder: DotDecoder" in text and "value = sum(src.h * dst.h)" in text and "pairs" in text
    )


def test_moves_are_told_on_several_workers() -> None:
    def program(comm):
        return gt.explain(
            "gat",
            gt.load("sbm:n_nodes=200,n_edges=1200,classes=3,features=8"),
            comm=comm,
            partitioner="vertex-cut",
        )

    (alone,) = run_simulated(1, program)
    texts = run_simulated(4, program)
    assert len(set(texts)) == 1
    for stage in ("move src", "move dst", "move totals"):
        assert stage in texts[0] and stage not in alone
    # 8 heads of 16: maximum, sum of exponentials and weighted sum
    assert re.search(rf"move totals .* {4 * (8 + 8 + 128)} B, 0 flops", texts[0])


def test_messages_in_order_are_told_edge_by_edge() -> None:
    graph = gt.load("sbm:n_nodes=200,n_edges=1200,classes=3,features=8")
    keys = {"aggregator": "lstm", "neighbour_order": "src.in_degree", "hidden": 16}

    def program(comm, partitioner):
        return gt.explain("sage", graph, comm=comm, partitioner=partitioner, **keys)

    beside, text = (run_simulated(3, program, p)[0] for p in ("1d-dst", "1d-src"))
    for words in (
        "in order lstm of src.column_0 + layers.0.sum.bias, by src.in_degree",
        "steps of lstm",
    ):
        assert words in text and words in beside
    # four gates of 16 numbers, and the degree
    assert re.search(rf"move messages +\d+ edges +{4 * (4 * 16 + 1)} B, 0 flops", text)
    assert "move messages" not in beside


@pytest.mark.parametrize(("order", "sent"), [("seconds", 0), ("src.seconds", 8)])
def test_keys_of_sums_in_order_are_counted_as_they_are_sent(order: str, sent: int) -> None:
    """A float64 column is not rounded on its way."""
    graph = gt.load("sbm:n_nodes=200,n_edges=1200,classes=3,features=8")
    graph = graph.replace(
        node_columns={"seconds": 1.7e9 + np.arange(graph.n_nodes) / 4},
        edge_columns={"seconds": 1.7e9 + np.arange(graph.n_edges) / 4},
    )
    keys = {"aggregator": "gru", "neighbour_order": order, "hidden": 16}
    program = partial(gt.explain, "sage", graph, **keys)
    text = run_simulated(3, lambda comm: program(comm=comm, partitioner="1d-src"))[0]
    assert re.search(rf"move messages +\d+ edges +{4 * 3 * 16 + 8} B, 0 flops", text)
    text = run_simulated(3, lambda comm: program(comm=comm, partitioner="1d-dst"))[0]
    # three gates of 16 numbers, and what is sorted by as it is read and as it was given
    each = 4 * 3 * 16 + (4 + sent) * (order == "src.seconds")
    assert re.search(rf"move src +\d+ mirrors +{each} B, 0 flops", text)


def test_a_trainer_is_explained_as_it_is() -> None:
    trainer = gt.Trainer("sage", gt.load("sbm:n_nodes=200,n_edges=1200,classes=3,features=8"))
    assert "mean of src.z" in gt.explain(trainer)
    with pytest.raises(ConfigError, match="no graph or keys: the trainer"):
        gt.explain(trainer, epochs=3)


# ---- the formulae


def test_costs_of_operations() -> None:
    assert operation_flops(PRIMITIVES["matmul"], [(8,), (8, 2, 3)], (2, 3)) == 2 * 8 * 6
    assert (
        operation_flops(PRIMITIVES["sum"], [(2, 3)], (2,))
        == operation_flops(PRIMITIVES["mul"], [(2, 3), (3,)], (2, 3))
        == 6
    )
    assert node_cost(PRIMITIVES["reshape"], [(6,)], [(2, 3)], 4) == Cost(0, 0)
    assert node_cost(PRIMITIVES["mul"], [(2, 3), (2, 1)], [(2, 3)], 4) == Cost(48, 6)
    assert (Cost(2, 3) + Cost(1, 1)).times(10) == Cost(30, 40)


def test_cost_of_an_edge() -> None:
    nodes = {"z": ((4,), np.float32, True), "s": ((), np.float32, True)}
    edges = {"weight": ((), np.float32, False)}
    (phase,) = trace(lambda e: e.src.z * e.dst.s * e.weight, nodes, edges, "sum", "Mine").phases
    assert edge_cost(phase) == Cost(4 * (4 + 1 + 1) + 8, 4 + 4 + 4)


def test_products_say_what_computes_them_and_why() -> None:
    graph = "sbm:n_nodes=3000,n_edges=9000,classes=3,features=64"
    text = gt.explain(dataset=graph, model="sage", hidden=64, layers=3, backend="reference")
    few = "BLAS, fewer than 8,388,608 multiplications"
    has_tiles = "[3,000, 64] @ [64, 64]: tiles; gradient [3,000, 64] @ [64, 64]: tiles" in text
    assert has_tiles or "a processor without fused multiply-adds" in text
    # features have no gradient
    assert re.search(r"product  \[3,000, 64\] @ \[64, 64\]: (tiles|BLAS, a processor.*)\n", text)
    assert f"[3,000, 64] @ [64, 3]: {few}; gradient [3,000, 3] @ [3, 64]: {few}" in text
    # each product is where the kernel is chosen
    counted = [line for line in text.splitlines() if line.strip().startswith("product  ")]
    assert len(counted) == 6
    wide = gt.explain(dataset=graph, model="gat", hidden=64, heads=8, backend="reference")
    assert "[3,000, 64] @ [64, 512]" in wide


@pytest.mark.parametrize("registers", ["AVX512_PAIRS", "AVX512", "AVX2"])
def test_products_of_short_features_say_how_they_are_read(
    registers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shapes, "registers", lambda: getattr(shapes, registers))
    graph = "sbm:n_nodes=3000,n_edges=9000,classes=3,features=64"
    text = gt.explain(
        dataset=graph, model="sage", hidden=64, values="bfloat16", backend="reference"
    )
    how = "in pairs" if registers == "AVX512_PAIRS" else "expanded a block of rows at a time"
    # features alone: values between layers are float32
    (first,) = {line for line in text.splitlines() if "product  [3,000, 64] @ [64, 64]" in line}
    assert first.endswith(how)
    assert "] @ [64, 3]: tiles" not in text


def test_products_of_sparse_features_are_loops() -> None:
    x = np.zeros((50, 40), np.float32)
    x[:, 3] = 1
    ends = np.arange(50)
    masks = {"y": ends % 2, "n_classes": 2, "train": np.ones(50, bool)}
    graph = gt.Graph((ends, np.roll(ends, 1)), 50, x=sp.csr_array(x), **masks)
    assert "[50, 40] @ [40, 16]: loops, sparse rows" in gt.explain("gcn", graph)
