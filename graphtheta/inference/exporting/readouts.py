"""Counterparts of readouts: aggregations of PyTorch Geometric, and pooling of DGL."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphtheta.inference.exporting.counterpart import Counterpart, array_of, linear
from graphtheta.models.readouts import Readout, Set2Set

POOLED = {
    "pyg": {"sum": "SumAggregation", "mean": "MeanAggregation", "max": "MaxAggregation"},
    "dgl": {"sum": "SumPooling", "mean": "AvgPooling", "max": "MaxPooling"},
}
ATTENTION = {"pyg": "AttentionalAggregation", "dgl": "GlobalAttentionPooling"}
# gates in the order of an LSTM of torch: input, forget, cell, output
GATES = [0, 1, 3, 2]


def readout(layer: Readout, library: str) -> Counterpart:
    """A sum, mean or largest value; for attention a linear gate, whose softmax over the nodes of a
    graph weights them.
    """
    if layer.score is None:
        return Counterpart(library, POOLED[library][str(layer.sum)], {}, {})
    gate = Counterpart(
        "torch",
        "Linear",
        {"in_features": layer.score.shape[0], "out_features": 1, "bias": False},
        linear("", layer.score),
    )
    return Counterpart(
        library,
        ATTENTION[library],
        {"gate_nn": gate},
        {f"gate_nn.{name}": x for name, x in gate.state.items()},
    )


def set2set(layer: Set2Set, library: str) -> Counterpart:
    """``Set2Set``, whose LSTM also reads its own output; the query is in the input already, so the
    weight of this output is 0.
    """
    width = layer.width
    step = layer.step
    options: dict[str, Any] = (
        {"in_channels": width, "processing_steps": layer.steps}
        if library == "pyg"
        else {"input_dim": width, "n_iters": layer.steps, "n_layers": 1}
    )
    weight = array_of(step.weight)[:, GATES].reshape(2 * width, -1).T
    bias = array_of(step.bias)[GATES].reshape(-1)
    state = {
        "lstm.weight_ih_l0": weight,
        "lstm.weight_hh_l0": np.zeros((4 * width, width), weight.dtype),
        "lstm.bias_ih_l0": bias,
        "lstm.bias_hh_l0": np.zeros_like(bias),
    }
    return Counterpart(library, "Set2Set", options, state)
