"""``gt.to_torch``: a trained network as a PyTorch module of PyTorch Geometric or DGL layers."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

from graphtheta.base.arguments import checked
from graphtheta.errors import ConfigError, DataError
from graphtheta.inference.exporting.calls import GraphTensors, call
from graphtheta.inference.exporting.counterpart import LIBRARIES, Counterpart
from graphtheta.inference.exporting.decoders import TensorPairs, score
from graphtheta.inference.exporting.layers import ACTIVATIONS, counterpart
from graphtheta.inference.exporting.relational import Metadata
from graphtheta.models.mlp import Dense
from graphtheta.models.network import Network


def counterparts(model: Network, library: str, metadata: Metadata | None = None) -> dict[str, Any]:
    """The counterparts of the parts of a network, under the names that they have in it; no other
    library is needed.

    Args:
        model: A published network.
        library: "pyg" or "dgl".
        metadata: As for ``counterpart``.

    Returns:
        ``embed``, ``end``, ``readout``, ``head`` and ``decoder`` (None if the network has none),
        and lists ``layers`` and ``norms``.

    Raises:
        ConfigError: A part has no counterpart.
    """
    if type(model) is not Network:
        raise ConfigError(
            f"{type(model).__name__} cannot be exported; expected a published network."
            " gt.counterpart exports single layers"
        )

    def of(part: Any) -> Counterpart | None:
        return None if part is None else counterpart(part, library, metadata)

    return {
        "embed": of(model.embed),
        "layers": [of(layer) for layer in model.layers],
        "norms": [of(norm) for norm in model.norms],
        "end": of(model.end),
        "readout": of(model.readout),
        "head": of(model.head),
        "decoder": of(model.decoder),
    }


@checked
def to_torch(model: Network, library: str = "pyg", metadata: Metadata | None = None) -> Any:
    """A trained network as a ``torch.nn.Module`` that predicts the same.

    The module is called as ``module(x, edge_index, edge_weight=None, edge_attr=None,
    edge_type=None, node_type=None)``, for DGL with a ``DGLGraph`` instead of ``edge_index``. Nodes
    of all types are in one numbering, and ``edge_type`` and ``node_type`` are the codes of
    relations and types. The graph must have the self loops that the trainer added. Dropout is left
    out.

    With a readout, the keywords ``batch``, the graph of each node, and ``batch_size``, the number
    of graphs, are those of PyTorch Geometric, and the nodes are those of the graphs only; a
    ``DGLGraph`` of ``dgl.batch`` has both. With a decoder, ``edge_label_index`` [2, n] are the
    pairs to be scored, ``edge_label_attr`` their edge attributes and ``edge_label_type`` their
    relations. ``module.encode`` and ``module.decode`` are the two steps.

    Args:
        model: The model of a trainer.
        library: "pyg" or "dgl".
        metadata: Names of node types and relations, ``(graph.node_types, graph.relations)``, by
            which ``HGTConv`` and ``HeteroConv`` of PyTorch Geometric have weights.

    Raises:
        ConfigError: A layer has no counterpart, or the library is not installed.
    """
    parts = counterparts(model, library, metadata)
    try:
        import torch
    except ImportError:
        raise ConfigError(
            f"gt.to_torch needs torch and {LIBRARIES[library].partition('.')[0]}; install them, or"
            " read the weights of layers with gt.counterpart"
        ) from None
    return _module(torch, model, parts, library).eval()


def _module(torch: Any, model: Network, parts: dict[str, Any], library: str) -> Any:
    """The module of ``to_torch``; arguments as of ``counterparts``, whose result ``parts`` is."""

    class Exported(torch.nn.Module):  # type: ignore[misc, unused-ignore]
        """The network of ``models/network.py`` in evaluation mode."""

        def __init__(self) -> None:
            super().__init__()
            for name, part in parts.items():
                if isinstance(part, list):
                    setattr(
                        self,
                        name,
                        torch.nn.ModuleList(
                            torch.nn.Identity() if one is None else one.make() for one in part
                        ),
                    )
                else:
                    setattr(self, name, None if part is None else part.make())
            self.activation = getattr(torch.nn, ACTIVATIONS[model.activation])()

        def forward(
            self,
            x: Any,
            graph: Any = None,
            *edge_values: Any,
            edge_label_index: Any = None,
            edge_label_attr: Any = None,
            edge_label_type: Any = None,
            **keywords: Any,
        ) -> Any:
            h = self.encode(x, graph, *edge_values, **keywords)
            return (
                h
                if model.decoder is None
                else self.decode(h, edge_label_index, edge_label_attr, edge_label_type)
            )

        def encode(
            self,
            x: Any,
            graph: Any = None,
            edge_weight: Any = None,
            edge_attr: Any = None,
            edge_type: Any = None,
            node_type: Any = None,
            *,
            batch: Any = None,
            batch_size: int | None = None,
        ) -> Any:
            """What the network computes before its decoder."""
            ends = graph if library == "pyg" or graph is None else graph.edges()
            given = GraphTensors(
                graph=graph,
                ends=ends,
                edge_weight=edge_weight,
                edge_attr=edge_attr,
                edge_type=edge_type,
                node_type=node_type,
                batch=batch,
                batch_size=batch_size,
            )
            return _encoded(model, self, x, given)

        def decode(
            self,
            h: Any,
            edge_label_index: Any,
            edge_label_attr: Any = None,
            edge_label_type: Any = None,
        ) -> Any:
            """What the decoder computes from the node values."""
            return _decoded(
                model=model,
                module=self,
                h=h,
                ends=edge_label_index,
                attr=edge_label_attr,
                relation=edge_label_type,
            )

    return Exported()


def _encoded(model: Network, module: Any, x: Any, given: GraphTensors) -> Any:
    """``Network.forward`` before its decoder.

    Args:
        model: Our network.
        module: Has the counterparts of its parts.
        x: Node features.
        given: The graph.

    Raises:
        DataError: The graph is missing, or lacks what a layer reads.
    """
    dense = all(isinstance(layer, Dense) for layer in model.layers) and model.end is None
    if given.graph is None and not dense:
        raise DataError("the network has layers that read edges; give edge_index, or a DGLGraph")
    h = x if module.embed is None else module.activation(module.embed(x))
    given = replace(given, start=h)
    reached = []
    for i, layer in enumerate(module.layers):
        z = call(model.layers[i], layer, h, given)
        h = _finished(model=model, module=module, i=i, z=z, h=h) if i < len(module.norms) else z
        reached.append(h)
    torch = import_module("torch")
    if model.jumping == "concat":
        h = torch.cat(reached, dim=-1)
    elif model.jumping == "max":
        h = torch.stack(reached).amax(dim=0)
    h = h if module.end is None else call(model.end, module.end, h, given)
    h = h if module.readout is None else call(model.readout, module.readout, h, given)
    return h if module.head is None else module.head(h)


def _finished(model: Network, module: Any, i: int, z: Any, h: Any) -> Any:
    """Norm, activation and residual after layer i, which computed z from h."""
    skips = model.residual != "none" and z.shape[1:] == h.shape[1:]
    z = module.norms[i](z + h if skips and model.residual == "before" else z)
    z = module.activation(z) if i < model.activated else z
    return z + h if skips and model.residual == "after" else z


def _decoded(model: Network, module: Any, h: Any, ends: Any, attr: Any, relation: Any) -> Any:
    """Scores of pairs, whose ends are rows of h.

    Raises:
        DataError: There are no pairs, or they lack what the decoder reads.
    """
    if model.decoder is None:
        raise DataError("the network has no decoder; it was not trained for edges or links")
    if ends is None:
        raise DataError("the network scores pairs of nodes; give edge_label_index, [2, n]")
    src, dst = (h.index_select(0, end) for end in ends)
    return score(model.decoder, module.decoder, TensorPairs(src, dst, attr, relation))
