"""The weights of our layers in the state dicts of PyTorch Geometric, DGL and torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphtheta.engine.layer.module import Module
from graphtheta.errors import ConfigError, GraphThetaError
from graphtheta.models.appnp import APPNP
from graphtheta.models.gat import GAT
from graphtheta.models.gat_e import GATE
from graphtheta.models.gatv2 import GATv2
from graphtheta.models.gcn import GCN
from graphtheta.models.gcnii import GCNII
from graphtheta.models.gin import GIN
from graphtheta.models.gine import GINE
from graphtheta.models.mlp import MLP, Dense, Linear
from graphtheta.models.norm import BatchNorm, LayerNorm
from graphtheta.models.pna import PNA
from graphtheta.models.recurrent import GRUCell
from graphtheta.models.sage import SAGE
from graphtheta.models.transformer import Transformer
from graphtheta.ops.autodiff.tape import Parameter

# arrays by name: of a state dict, or of the parameters of a layer of ours
Arrays = dict[str, np.ndarray]


class StateDict:
    """A state dict, which notes what has been read.

    Args:
        arrays: By name.
        where: What it belongs to, for messages.
        whole: That of which this is a part; None for none.
        prefix: With which the names of this part begin there.

    Attributes:
        unread: Names in the whole that have not been read.
    """

    def __init__(
        self, arrays: Arrays, where: str, whole: StateDict | None = None, prefix: str = ""
    ):
        self.arrays = arrays
        self.where = where
        self.unread: set[str] = set(arrays) if whole is None else whole.unread
        self._prefix: str = prefix if whole is None else whole._prefix + prefix

    def __contains__(self, name: str) -> bool:
        return name in self.arrays

    def take(self, *names: str) -> np.ndarray:
        """The array of the first of some names that there is.

        Raises:
            ConfigError: There is none.
        """
        name = next((name for name in names if name in self.arrays), None)
        if name is None:
            raise ConfigError(
                f"gt.from_torch: {self.where} needs {' or '.join(names)}, and the state dict has"
                f" {', '.join(self.arrays) or 'nothing'}"
            )
        self.unread.discard(self._prefix + name)
        return self.arrays[name]

    def map(self, like: Parameter, *names: str) -> np.ndarray:
        """The weight of a linear map of torch, [d_out, d_in], in the axes of ours."""
        weight = self.take(*names).T
        fits = weight.shape[:1] == like.shape[:1] and weight.size == like.value.size
        return weight.reshape(like.shape) if fits else weight

    def vector(self, like: Parameter, *names: str) -> np.ndarray:
        """An array in the axes of ours, which has one axis, or axes of length 1 before ours."""
        array = self.take(*names)
        more = max(array.ndim - len(like.shape), 0)
        return split(array[(0,) * more] if array.shape[:more] == (1,) * more else array, like)

    def under(self, prefix: str) -> StateDict:
        """The entries whose names begin with a prefix, without it."""
        where = f"{self.where} at {prefix.rstrip('.')}"
        return StateDict(within(self.arrays, prefix), where, self, prefix)

    def took(self, prefix: str) -> None:
        """Note that all entries whose names begin with a prefix have been read."""
        self.unread -= {self._prefix + name for name in self.arrays if name.startswith(prefix)}


def within(arrays: Arrays, prefix: str) -> Arrays:
    """The entries whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): x for name, x in arrays.items() if name.startswith(prefix)}


def split(x: np.ndarray, like: Parameter) -> np.ndarray:
    """An array of one axis in the axes of ours; others, and those of another size, as they are."""
    return x.reshape(like.shape) if x.ndim == 1 and x.size == like.value.size else x


def _gcn(layer: GCN, state: StateDict) -> Arrays:
    if "lin.weight" in state:
        weights = {"weight": state.map(layer.weight, "lin.weight")}
    else:
        # that of DGL is not transposed
        weights = {"weight": state.take("weight")}
    return weights if layer.bias is None else weights | {"bias": state.take("bias")}


def _sage(layer: SAGE, state: StateDict) -> Arrays:
    weights = {
        "neighbour": state.map(layer.neighbour, "lin_l.weight", "fc_neigh.weight"),
        "root": state.map(layer.root, "lin_r.weight", "fc_self.weight"),
    }
    if layer.bias is not None:
        weights["bias"] = state.take("lin_l.bias", "fc_self.bias")
    return weights


def _gin(layer: GIN | GINE, state: StateDict) -> Arrays:
    at = "nn." if any(name.startswith("nn.") for name in state.arrays) else "apply_func."
    weights = {f"mlp.{name}": x for name, x in _mlp(layer.mlp, state.under(at)).items()}
    eps = state.take("eps").reshape(())
    if isinstance(layer.eps, Parameter):
        weights["eps"] = eps
    else:
        layer.eps = float(eps)
    if isinstance(layer, GINE):
        weights["weight_edge"] = state.map(layer.weight_edge, "lin.weight")
        if layer.bias_edge is not None:
            weights["bias_edge"] = state.take("lin.bias")
        elif "lin.bias" in state and state.take("lin.bias").any():
            raise ConfigError(
                "gt.from_torch: lin.bias is not 0; make the layer with GINE(..., edge_bias=True)"
            )
    return weights


def _attention(layer: GAT | GATE, state: StateDict) -> Arrays:
    weights = {
        "weight": state.map(layer.weight, "lin.weight", "lin_src.weight", "fc.weight"),
        "att_src": state.vector(layer.att_src, "att_src", "attn_l"),
        "att_dst": state.vector(layer.att_dst, "att_dst", "attn_r"),
    }
    if isinstance(layer, GATE):
        weights["weight_edge"] = state.map(layer.weight_edge, "lin_edge.weight")
        weights["att_edge"] = state.vector(layer.att_edge, "att_edge")
        if layer.root is not None:
            weights["root"] = state.map(layer.root, "res.weight")
    if layer.bias is not None:
        bias = state.take("bias")
        # DGL adds it before heads are averaged
        averaged = not layer.concat and bias.size > layer.bias.value.size
        weights["bias"] = bias.reshape(layer.att_src.shape).mean(axis=0) if averaged else bias
    return weights


def _gatv2(layer: GATv2, state: StateDict) -> Arrays:
    weights = {
        "weight": state.map(layer.weight, "lin_l.weight", "fc_src.weight"),
        "att": state.vector(layer.att, "att", "attn"),
    }
    if layer.bias_src is not None:
        weights["bias_src"] = state.vector(layer.bias_src, "lin_l.bias", "fc_src.bias")
    if layer.weight_dst is None:
        # the same numbers under the names of the other end
        state.took("lin_r.")
        state.took("fc_dst.")
    else:
        weights["weight_dst"] = state.map(layer.weight_dst, "lin_r.weight", "fc_dst.weight")
    if layer.bias_dst is not None:
        weights["bias_dst"] = state.vector(layer.bias_dst, "lin_r.bias", "fc_dst.bias")
    if layer.weight_edge is not None:
        weights["weight_edge"] = state.map(layer.weight_edge, "lin_edge.weight")
    if layer.root is not None:
        weights["root"] = state.map(layer.root, "res.weight")
    return weights if layer.bias is None else weights | {"bias": state.take("bias")}


def _transformer(layer: Transformer, state: StateDict) -> Arrays:
    weights = {
        "query": state.map(layer.query, "lin_query.weight"),
        "key": state.map(layer.key, "lin_key.weight"),
        "value": state.map(layer.value, "lin_value.weight"),
    }
    # the softmax cancels a bias of keys
    state.took("lin_key.")
    if layer.query_bias is not None:
        weights["query_bias"] = state.vector(layer.query_bias, "lin_query.bias")
    if layer.value_bias is not None:
        weights["value_bias"] = state.vector(layer.value_bias, "lin_value.bias")
    if layer.weight_edge is not None:
        weights["weight_edge"] = state.map(layer.weight_edge, "lin_edge.weight")
    if layer.root is None:
        # the module has weights that it does not read
        state.took("lin_skip.")
    else:
        weights["root"] = state.map(layer.root, "lin_skip.weight")
    if layer.bias is not None:
        weights["bias"] = state.take("lin_skip.bias")
    if layer.gate is not None:
        weights["gate"] = split(state.take("lin_beta.weight")[0], layer.gate)
    return weights


def _gcnii(layer: GCNII, state: StateDict) -> Arrays:
    weights = {"weight": state.take("weight1")}
    if layer.weight_start is not None:
        weights["weight_start"] = state.take("weight2")
    return weights


def _pna(layer: PNA, state: StateDict) -> Arrays:
    d_in, towers, width = layer.root.shape
    shape = (len(layer.scalers), -1, width)
    state.took("aggr_module.avg_deg_lin")
    pre = [state.take(f"pre_nns.{i}.0.weight").T for i in range(towers)]
    shift = np.stack([state.take(f"pre_nns.{i}.0.bias") for i in range(towers)])
    post = [state.take(f"post_nns.{i}.0.weight").T for i in range(towers)]
    weights = {
        "weight_dst": np.stack([w[:d_in] for w in pre], axis=1),
        "weight_src": np.stack([w[d_in : 2 * d_in] for w in pre], axis=1),
        "root": np.stack([w[:d_in] for w in post], axis=1),
        # by scaler, aggregator and column there
        "weight": np.stack([w[d_in:].reshape(shape).transpose(1, 0, 2) for w in post]),
        "mix": state.map(layer.mix, "lin.weight"),
        "log_degree": state.take("aggr_module.avg_deg_log").reshape(()),
    }
    if layer.weight_edge is not None:
        of_edges = [w[2 * d_in :] for w in pre]
        encoder = state.take("edge_encoder.weight").T
        weights["weight_edge"] = np.stack([encoder @ w for w in of_edges], axis=1)
        shift = shift + np.stack([state.take("edge_encoder.bias") @ w for w in of_edges])
    if layer.tower_bias is not None:
        weights["tower_bias"] = np.stack(
            [state.take(f"post_nns.{i}.0.bias") for i in range(towers)]
        )
    if layer.bias is not None:
        weights["bias"] = state.take("lin.bias")
    return weights | {"message_bias": shift}


def _linear(layer: Linear, state: StateDict) -> Arrays:
    weights = {"weight": state.map(layer.weight, "weight")}
    return weights if layer.bias is None else weights | {"bias": state.vector(layer.bias, "bias")}


def _mlp(layer: MLP, state: StateDict) -> Arrays:
    """The linear maps and norms of a ``Sequential`` of torch, in their order; or one linear map."""
    weights: Arrays = {}
    shift: Any = 0.0
    parts: list[tuple[str, Module | None]] = []
    for i in range(len(layer.weights)):
        parts.append((f"{i}", None))
        following = layer.norms[i] if i < len(layer.norms) else None
        parts += [] if following is None else [(f"norms.{i}", following)]
    for of_part, (name, norm) in zip(_numbered(state, len(parts)), parts, strict=True):
        if norm is not None:
            read = READERS[type(norm)](norm, of_part)
            if isinstance(norm, BatchNorm):
                # a bias in front of it moves the mean that it subtracts
                read["stats.mean"] = read["stats.mean"] - shift
            weights |= {f"{name}.{key}": x for key, x in read.items()}
            continue
        i = int(name)
        weights[f"weights.{i}"] = of_part.map(layer.weights[i], "weight")
        bias = layer.biases[i]
        if bias is not None:
            weights[f"biases.{i}"] = of_part.vector(bias, "bias")
        normed = i < len(layer.norms) and isinstance(layer.norms[i], BatchNorm)
        shift = of_part.take("bias") if normed and "bias" in of_part else 0.0
    return weights


def _numbered(state: StateDict, n: int) -> list[StateDict]:
    """The parts of a ``Sequential`` of torch that have weights.

    Args:
        state: Its state dict, or that of a linear map.
        n: Number of the parts.

    Raises:
        ConfigError: There are others.
    """
    if n == 1 and "weight" in state:
        return [state]
    names = {name.partition(".")[0] for name in state.arrays}
    if len(names) != n or not all(map(str.isdecimal, names)):
        raise ConfigError(
            f"gt.from_torch: {state.where} has weights of {', '.join(sorted(names)) or 'nothing'};"
            f" expected {n} numbered parts of a Sequential, the linear maps and norms of the MLP"
        )
    return [state.under(f"{number}.") for number in sorted(names, key=int)]


def _dense(layer: Dense, state: StateDict) -> Arrays:
    bias = layer.mlp.biases[0]
    weights = {"mlp.weights.0": state.map(layer.mlp.weights[0], "weight")}
    return weights if bias is None else weights | {"mlp.biases.0": state.vector(bias, "bias")}


def _batch_norm(layer: BatchNorm, state: StateDict) -> Arrays:
    state.took("num_batches_tracked")
    return {
        "gamma": state.take("weight"),
        "beta": state.take("bias"),
        "stats.mean": state.take("running_mean"),
        "stats.var": state.take("running_var"),
    }


def _layer_norm(layer: LayerNorm, state: StateDict) -> Arrays:
    return {"gamma": state.take("weight"), "beta": state.take("bias")}


def _gru_cell(layer: GRUCell, state: StateDict) -> Arrays:
    d_out = layer.inner.shape[0]
    bias = state.take("bias_ih").reshape(3, d_out).copy()
    inner = state.take("bias_hh").reshape(3, d_out)
    # both biases of the gates are added to the same sums
    bias[:2] += inner[:2]
    return {
        "weight": state.map(layer.weight, "weight_ih"),
        "recurrent": state.map(layer.recurrent, "weight_hh"),
        "bias": bias,
        "inner": inner[2],
    }


READERS: dict[type, Callable[[Any, StateDict], Arrays]] = {
    GCN: _gcn,
    SAGE: _sage,
    GIN: _gin,
    GINE: _gin,
    GAT: _attention,
    GATE: _attention,
    GATv2: _gatv2,
    Transformer: _transformer,
    APPNP: lambda layer, state: {},
    GCNII: _gcnii,
    PNA: _pna,
    Linear: _linear,
    MLP: _mlp,
    Dense: _dense,
    BatchNorm: _batch_norm,
    LayerNorm: _layer_norm,
    GRUCell: _gru_cell,
}


def fill(layer: Module, arrays: Arrays, where: str) -> None:
    """Give a layer the weights of a state dict.

    Args:
        layer: A layer of ours.
        arrays: The state dict.
        where: What it belongs to, for messages.

    Raises:
        ConfigError: The layer has no reader; a weight is missing, unknown or of another shape.
    """
    if type(layer) not in READERS:
        raise ConfigError(
            f"gt.from_torch: {type(layer).__name__} cannot take weights of other libraries; layers"
            f" that can are {', '.join(kind.__name__ for kind in READERS)}"
        )
    state = StateDict(arrays, where)
    try:
        weights = READERS[type(layer)](layer, state)
    except (IndexError, ValueError) as error:
        if isinstance(error, GraphThetaError):
            raise
        raise ConfigError(
            f"gt.from_torch: weights of {where} do not have the shapes of {type(layer).__name__}"
            f" with these options: {error}"
        ) from error
    if state.unread:
        raise ConfigError(
            f"gt.from_torch: {where} has {', '.join(sorted(state.unread))}, which"
            f" {type(layer).__name__} with these options does not have"
        )
    layer.load_state(weights)
