"""``gt.to_torch``: a trained network as a PyTorch module with layers of PyTorch Geometric or DGL."""
from __future__ import annotations

from typing import Any

from graphtheta.engine.layer.layer import Layer
from graphtheta.errors import ConfigError
from graphtheta.exporting.layers import ACTIVATIONS, LIBRARIES, Counterpart, counterpart
from graphtheta.models.gat import GAT
from graphtheta.models.gat_e import GATE
from graphtheta.models.gcn import GCN, NORMALISATIONS
from graphtheta.models.gine import GINE
from graphtheta.models.network import Network


def counterparts(model: Network, library: str) -> dict[str, Any]:
    """The counterparts of the parts of a network, under the names that they have in it; no other library is needed.

    Args:
        model: A published network of gcn, sage, gin, gine, gat, gat_e or mlp layers, for nodes.
        library: "pyg" or "dgl".

    Returns:
        ``embed`` and ``head`` (None if the network has none), and lists ``layers`` and ``norms``.

    Raises:
        ConfigError: A part has no counterpart.
    """
    if not isinstance(model, Network) or model.decoder is not None:
        raise ConfigError(f"{type(model).__name__} cannot be exported; expected a published network for nodes, without a decoder of edges "
                          "or links. gt.counterpart exports single layers")

    def of(part: Any) -> Counterpart | None:
        return None if part is None else counterpart(part, library)

    return {"embed": of(model.embed), "layers": [of(layer) for layer in model.layers], "norms": [of(norm) for norm in model.norms],
            "head": of(model.head)}


def to_torch(model: Network, library: str = "pyg") -> Any:
    """A trained network as a ``torch.nn.Module`` that predicts the same.

    The module is called as ``module(x, edge_index, edge_weight=None, edge_attr=None)``, for DGL with a ``DGLGraph`` instead of
    ``edge_index``. The graph must have the self loops that the trainer added. Dropout is left out.

    Args:
        model: The model of a trainer.
        library: "pyg" or "dgl".

    Raises:
        ConfigError: A layer has no counterpart, or the library is not installed.
    """
    parts = counterparts(model, library)
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

        def forward(self, x: Any, graph: Any, edge_weight: Any = None, edge_attr: Any = None) -> Any:
            ends = graph if library == "pyg" else graph.edges()
            h, reached = x if self.embed is None else self.activation(self.embed(x)), []
            for i, layer in enumerate(self.layers):
                z = _run(model.layers[i], layer, h, graph, ends, edge_weight, edge_attr)
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


def _run(layer: Any, module: Any, h: Any, graph: Any, ends: Any, edge_weight: Any, edge_attr: Any) -> Any:
    """The result of a layer of another library, in the shape of ours."""
    if not isinstance(layer, Layer):
        return module(h)
    pyg = graph is ends
    if isinstance(layer, GCN):
        weight = _normalised(layer.norm, ends, len(h), h, edge_weight)
        return module(h, graph, weight) if pyg else module(graph, h, edge_weight=weight)
    if isinstance(layer, (GATE, GINE)):
        return module(h, graph, edge_attr)
    out = module(h, graph) if pyg else module(graph, h)
    if pyg or out.dim() == 2:
        return out
    # attention of DGL returns heads, [n, heads, d]
    return out.flatten(1) if isinstance(layer, GAT) and layer.concat else out.mean(1)


def _normalised(norm: str, ends: Any, n: int, like: Any, edge_weight: Any) -> Any:
    """Weights of edges after normalisation by numbers of in-edges, as ``models/gcn.py`` describes it."""
    src, dst = ends
    degree = like.new_zeros(n).index_add(0, dst, like.new_ones(len(dst)))
    factor = degree.clamp(min=1) ** NORMALISATIONS[norm] * degree.clamp(max=1)
    weight = factor[dst] * (factor[src] if norm == "sym" else 1)
    return weight if edge_weight is None else weight * edge_weight
