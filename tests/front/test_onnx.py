"""Dense parts of models as ONNX: the numbers of onnxruntime are those of this package. Skipped
without both packages.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphtheta as gt
import graphtheta.models as models
from graphtheta.errors import ColumnError, ConfigError
from graphtheta.ops import Tape, Var, dtype_scope
from graphtheta.ops.autodiff.init import init_scope
from graphtheta.ops.autodiff.space import RowSpace

ROWS = 7


def run(model: Any, **given: np.ndarray) -> list[np.ndarray]:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    # inputs of decoders have names such as "src.h"
    return list(session.run(None, {name.replace("_", "."): x for name, x in given.items()}))


def exported(*args: Any, **keys: Any) -> Any:
    pytest.importorskip("onnx")
    return gt.to_onnx(*args, **keys)


def values(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((ROWS, *shape)).astype(dtype)


def close(found: np.ndarray, wanted: Any) -> None:
    wanted = np.asarray(wanted)
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    np.testing.assert_allclose(
        found,
        wanted,
        atol=(1e-5 if found.dtype == np.float32 else 1e-12) * max(1, np.abs(wanted).max()),
    )


def randomised(module: Any, dtype: str = "float32") -> Any:
    rng = np.random.default_rng(1)
    for p in module.parameters():
        p.value = (0.5 * rng.standard_normal(p.shape) + p.name.endswith("gamma")).astype(dtype)
    return module


@pytest.mark.second
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "keys",
    [
        {"norm": "layer", "activation": "gelu"},
        {"activation": "elu"},
        {"activation": "tanh"},
        {"activation": "leaky_relu", "norm": "layer", "dropout": 0.5},
    ],
    ids=str,
)
def test_perceptrons(keys: dict[str, Any], dtype: str) -> None:
    with dtype_scope(dtype), init_scope(0):
        mlp = randomised(gt.MLP(5, (6, 4), (2, 3), **keys), dtype)
    if dtype == "float64" and keys["activation"] == "gelu":
        pytest.skip("onnxruntime has no Erf of float64")
    x = values(5, dtype=dtype)
    with Tape(record=False, training=False):
        wanted = mlp(x)
    (out,) = run(exported(mlp, 5, dtype=dtype), x=x)
    close(out, getattr(wanted, "value", wanted))


@pytest.mark.second
@pytest.mark.parametrize(
    "keys",
    [{}, {"norm": "batch", "residual": True, "layers": 3}, {"norm": "layer", "jumping": "concat"}],
    ids=str,
)
def test_a_trained_network_without_edges_predicts_the_same(
    keys: dict[str, Any], tmp_path: Any
) -> None:
    graph = gt.load("sbm:n_nodes=60,n_edges=200")
    trainer = gt.Trainer("mlp", graph, epochs=3, hidden=6, scores="logits", **keys)
    trainer.fit()
    predicted = trainer.predict()
    assert predicted is not None
    model = exported(trainer.model, graph.n_features, tmp_path / "model.onnx")
    (out,) = run(model, x=np.asarray(graph.x, np.float32))
    close(out, predicted[1])
    assert (tmp_path / "model.onnx").stat().st_size > 0


@pytest.mark.second
def test_decoders_score_pairs() -> None:
    src = values(4)
    dst = values(4, seed=1)
    attr = values(3, seed=2)
    dot = exported(models.DotDecoder(), {"src.h": 4, "dst.h": 4})
    close(run(dot, src_h=src, dst_h=dst)[0], (src * dst).sum(-1))
    with dtype_scope("float32"), init_scope(0):
        edge = randomised(models.EdgeDecoder(4, 2, 3, hidden=(5,)))
        hadamard = randomised(models.HadamardDecoder(4, hidden=(5,)))
    weights = [p.value for p in edge.mlp.weights]
    biases = [p.value for p in edge.mlp.biases]
    hidden = np.maximum(
        src @ weights[0] + dst @ edge.weight_dst.value + attr @ edge.weight_edge.value + biases[0],
        0,
    )
    found = run(
        exported(edge, {"src.h": 4, "dst.h": 4, "edge.attr": 3}),
        src_h=src,
        dst_h=dst,
        edge_attr=attr,
    )[0]
    close(found, hidden @ weights[1] + biases[1])
    weights = [p.value for p in hadamard.mlp.weights]
    biases = [p.value for p in hadamard.mlp.biases]
    found = run(exported(hadamard, {"src.h": 4, "dst.h": 4}), src_h=src, dst_h=dst)[0]
    close(found, (np.maximum(src * dst @ weights[0] + biases[0], 0) @ weights[1] + biases[1])[:, 0])


@pytest.mark.second
def test_stages_of_layers() -> None:
    with dtype_scope("float32"), init_scope(0):
        gat = models.GAT(5, 3, heads=2)
        gin = models.GIN(gt.MLP(5, (6,), 4, norm="batch"))
    gin.mlp.norms[0].stats.mean = np.linspace(-1, 1, 6).astype(np.float32)
    gin.mlp.norms[0].stats.var = np.linspace(0.5, 2, 6).astype(np.float32)
    h = values(5)
    z, s, t = run(exported(gat, {"h": 5}, stage="transform"), h=h)
    wanted = np.einsum("nd,dhw->nhw", h, gat.weight.value)
    close(z, wanted)
    close(s, (wanted * gat.att_src.value).sum(-1))
    close(t, (wanted * gat.att_dst.value).sum(-1))
    z, total, (norm,), stats = (
        values(6, seed=4),
        values(6, seed=3),
        gin.mlp.norms,
        gin.mlp.norms[0].stats,
    )
    normed = (z + total - stats.mean) / np.sqrt(
        stats.var + 1e-5
    ) * norm.gamma.value + norm.beta.value
    (out,) = run(exported(gin, {"z": 6, "total": 6}, stage="apply"), z=z, total=total)
    close(out, np.maximum(normed, 0) @ gin.mlp.weights[1].value + gin.mlp.biases[1].value)


@pytest.mark.second
def test_a_column_with_the_name_of_an_input() -> None:
    """GINE returns h as it is, and it is no output of that name twice."""
    with dtype_scope("float32"), init_scope(0):
        gine = models.GINE(gt.MLP(5, (6,), 4), 5, 2)
    h = values(5)
    model = exported(gine, {"h": 5}, stage="transform")
    assert [output.name for output in model.graph.output] == ["h_out"]
    close(run(model, h=h)[0], h)


class Many(gt.Module):
    """Most operations that work on rows."""

    def __init__(self) -> None:
        self.w = gt.Parameter.normal(4, std=1.0)
        self.p = gt.Parameter.ones(4)

    def __call__(self, x: Any) -> Any:
        a = x * self.w
        parts = [
            gt.exp(-gt.absolute(a)),
            gt.log(gt.square(a) + 1.0),
            gt.sqrt(gt.absolute(a) + 0.5),
            gt.sin(a) * gt.cos(a),
            gt.softmax(a, axis=-1),
            gt.where(a > 0, a, gt.softplus(a)),
            gt.clip(a, -0.5, 0.5),
            gt.clip(a, None, 0.1),
            gt.sigmoid(a) ** 2.0,
            (gt.absolute(a) + 0.1) ** self.p,
            gt.maximum(a, 0.2) + gt.minimum(a, self.w),
            (a <= 0.1) * a,
            gt.where((a > 0) & ~(a > 1), 1.0, a),
            gt.layer_norm(a, self.p, self.w),
            gt.cumsum(gt.silu(a)) + gt.std(a, keepdims=True),
        ]
        joined = gt.stack(parts, axis=-2)  # [n, 15, 4]
        taken = [joined[..., 1:9:2, :], joined[..., [0, 3, 3], :], joined[:, -2:, ::-1]]
        small = gt.concat([gt.flatten(t) for t in taken])
        return gt.concat(
            [
                small,
                joined.max(-1),
                joined.mean(-2),
                joined[..., 3, 1:],
                a[..., None, 0],
                self.w,
                joined.min((-1, -2))[..., None],
            ]
        )


@pytest.mark.second
def test_operations() -> None:
    with dtype_scope("float64"), init_scope(0):
        module = Many()
    x = values(4, dtype=np.float64)
    with Tape(record=False, training=False):
        wanted = module(Var(x, RowSpace(np.arange(ROWS), "node"))).value
    close(run(exported(module, 4, dtype="float64"), x=x)[0], wanted)


def test_errors() -> None:
    with dtype_scope("float32"):
        gcn = models.build_model("gcn", 4, 3)
    with pytest.raises(
        ConfigError, match="the network has GCN, which reads edges; export its parts"
    ):
        gt.to_onnx(gcn, 4)
    with pytest.raises(ConfigError, match=r"sums over edges.*stage='transform'"):
        gt.to_onnx(gcn.layers[0], 4)
    with pytest.raises(ColumnError, match="give its width"):
        gt.to_onnx(models.SAGE(4, 3), {"h": 4}, stage="apply")
    with pytest.raises(ColumnError, match="reads h, whose width is not given"):
        gt.to_onnx(models.SAGE(4, 3), {"x": 4}, stage="transform")
    with pytest.raises(ConfigError, match="layers have the dense stages"):
        gt.to_onnx(gt.Linear(3, 2), 3, stage="gather")
    with pytest.raises(ConfigError, match=r"HGT has an operation .* no counterpart in ONNX"):
        gt.to_onnx(models.HGT(4, 4, 2, 2, 2), {"h": 4, "type": ()}, stage="transform")
