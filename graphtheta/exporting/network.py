"""``gt.to_torch``: a trained network as a PyTorch module with layers of PyTorch Geometric or DGL."""
from __future__ import annotations

from typing import Any

from graphtheta.errors import ConfigError
from graphtheta.exporting.calls import Given, call
from graphtheta.exporting.counterpart import LIBRARIES, Counterpart
from graphtheta.exporting.layers import ACTIVATIONS, counterpart
from graphtheta.exporting.relational import Metadata
from graphtheta.models.network import Network


def counterparts(model: Network, library: str, metadata: Metadata | None = None) -> dict[str, Any]:
    """The counterparts of the parts of a network, under the names that they have in it; no other library is needed.

    Args:
        model: A published network for nodes.
        library: "pyg" or "dgl".
        metadata: As for ``counterpart``.

    Returns:
        ``embed`` and ``head`` (None if the network has none), and lists ``layers`` and ``norms``.

    Raises:
        ConfigError: A part has no counterpart.
    """
    if not isinstance(model, Network) or model.decoder is not None or model.readout is not None:
        raise ConfigError(f"{type(model).__name__} cannot be exported; expected a published network for nodes, without a decoder of edges "
                          "or links and without a readout of graphs. gt.counterpart exports single layers")

    def of(part: Any) -> Counterpart | None:
        return None if part is None else counterpart(part, library, metadata)

    return {"embed": of(model.embed), "layers": [of(layer) for layer in model.layers], "norms": [of(norm) for norm in model.norms],
            "head": of(model.head)}


def to_torch(model: Network, library: str = "pyg", metadata: Metadata | None = None) -> Any:
    """A trained network as a ``torch.nn.Module`` that predicts the same.

    The module is called as ``module(x, edge_index, edge_weight=None, edge_attr=None, edge_type=None, node_type=None)``, for DGL
    with a ``DGLGraph`` instead of ``edge_index``. Nodes of all types are in one numbering, and ``edge_type`` and ``node_type`` are
    the codes of relations and types. The graph must have the self loops that the trainer added. Dropout is left out.

    Args:
        model: The model of a trainer.
        library: "pyg" or "dgl".
        metadata: Names of node types and relations, ``(graph.node_types, graph.relations)``, by which ``HGTConv`` of PyTorch
            Geometric has weights.

    Raises:
        ConfigError: A layer has no counterpart, or the library is not installed.
    """
    parts = counterparts(model, library, metadata)
    try:
        import torch
    except ImportError:
        raise ConfigError(f"gt.to_torch needs torch and {LIBRARIES[library].partition('.')[0]}; install them, or read the weights "
                          "of layers with gt.counterpart") from None

    class Exported(torch.nn.Module):  # type: ignore[misc]
        """The network of ``models/network.py`` in evaluation mode."""

        def __init__(self) -> None:
            super().__init__()
            self.embed = None if parts["embed"] is None else parts["embed"].make()
            self.head = None if parts["head"] is None else parts["head"].make()
            self.layers = torch.nn.ModuleList(part.make() for part in parts["layers"])
            norms = (torch.nn.Identity() if part is None else part.make() for part in parts["norms"])
            self.norms = torch.nn.ModuleList(norms)
            self.activation = getattr(torch.nn, ACTIVATIONS[model.activation])()

        def forward(self, x: Any, graph: Any, edge_weight: Any = None, edge_attr: Any = None, edge_type: Any = None,
                    node_type: Any = None) -> Any:
            given = Given(graph, graph if library == "pyg" else graph.edges(), edge_weight, edge_attr, edge_type, node_type)
            h, reached = x if self.embed is None else self.activation(self.embed(x)), []
            for i, layer in enumerate(self.layers):
                z = call(model.layers[i], layer, h, given)
                h = self._finish(i, z, h) if i < len(self.norms) else z
                reached.append(h)
            if model.jumping == "concat":
                h = torch.cat(reached, dim=-1)
            elif model.jumping == "max":
                h = torch.stack(reached).amax(dim=0)
            return h if self.head is None else self.head(h)

        def _finish(self, i: int, z: Any, h: Any) -> Any:
            skips = model.residual != "none" and z.shape[1:] == h.shape[1:]
            z = self.activation(self.norms[i](z + h if skips and model.residual == "before" else z))
            return z + h if skips and model.residual == "after" else z

    return Exported().eval()
