"""Reference values of relational layers in float64: writes relational.npz beside it.

    python make_relational.py

Needs torch 2.13 and torch_geometric 2.8. Arrays are named CASE/NAME: every parameter as param/NAME,
the output, and the gradients of sum(output * probe) as grad/x and grad/param/NAME. Inputs are
common to all cases: edge_index [2, E], relation [E], x [N, D]. The graph has self loops, duplicate
edges, isolated nodes, a hub, and a relation without edges. The case hgt has edges of its own,
between nodes of three types.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch_geometric.nn import HGTConv, RGATConv, RGCNConv
from torch_geometric.utils import scatter, softmax

N = 40
E = 200
D = 8
R = 5
torch.set_default_dtype(torch.float64)


def graph() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    src = rng.integers(0, N - 4, E)
    dst = rng.integers(0, N - 4, E)
    dst[:50] = 3
    src[50:56] = dst[50:56]
    src[60:70], dst[60:70] = src[70:80], dst[70:80]
    # no edge has relation 3
    return np.stack((src, dst)), rng.choice([0, 1, 2, 4], E)


class SimpleHGN(nn.Module):
    """Two layers of https://arxiv.org/abs/2112.14936, equations 5 to 7; the second reads the
    attention weights of the first.
    """

    def __init__(self, heads: int = 2, width: int = 3, d_relation: int = 4, beta: float = 0.1):
        super().__init__()
        self.heads = heads
        self.width = width
        self.beta = beta
        for i, (d, concat) in enumerate(((D, True), (heads * width, False))):
            shapes = {
                "weight": (d, heads, width),
                "weight_edge": (d_relation, heads, d_relation),
                "relations": (R, d_relation),
                "att_src": (heads, width),
                "att_dst": (heads, width),
                "att_edge": (heads, d_relation),
                "root": (d, heads * width if concat else width),
            }
            for name, shape in shapes.items():
                self.register_parameter(f"{name}{i}", nn.Parameter(torch.empty(shape)))

    def forward(self, x: torch.Tensor, edges: torch.Tensor, relation: torch.Tensor) -> torch.Tensor:
        (src, dst), before = edges, None
        for i in range(2):
            p = {
                name[:-1]: value for name, value in self.named_parameters() if name.endswith(str(i))
            }
            z = torch.einsum("nd,dhf->nhf", x, p["weight"])
            of_relation = (
                torch.einsum("rd,dhf->rhf", p["relations"], p["weight_edge"]) * p["att_edge"]
            ).sum(-1)
            score = (
                (z * p["att_src"]).sum(-1)[src]
                + (z * p["att_dst"]).sum(-1)[dst]
                + of_relation[relation]
            )
            alpha = softmax(nn.functional.leaky_relu(score, 0.2), dst, num_nodes=len(x))
            alpha = alpha if before is None else (1 - self.beta) * alpha + self.beta * before
            out = scatter(alpha[..., None] * z[src], dst, dim_size=len(x))
            x = (out.flatten(1) if i == 0 else out.mean(1)) + x @ p["root"]
            before = alpha
        return x


CASES = {
    "rgcn": lambda: RGCNConv(D, 6, R),
    "rgcn_sum": lambda: RGCNConv(D, 6, R, aggr="sum"),
    "rgcn_bases": lambda: RGCNConv(D, 6, R, num_bases=3),
    "rgcn_many_blocks": lambda: RGCNConv(D, 8, R, num_blocks=4),
    "rgcn_few_blocks": lambda: RGCNConv(D, 6, R, num_blocks=2),
    "rgat": lambda: RGATConv(D, 3, R, heads=2),
    "rgat_bases": lambda: RGATConv(D, 3, R, heads=2, num_bases=3, concat=False),
    "simple_hgn": SimpleHGN,
}


# nodes of each type in one numbering, and the types that relations lead from and to
TYPES = {"a": (0, 12), "b": (12, 30), "c": (30, N)}
TRIPLES = [
    ("a", "to", "b"),
    ("b", "to", "a"),
    ("b", "to", "c"),
    ("c", "to", "a"),
    ("a", "near", "a"),
]


class HGT(nn.Module):
    """HGTConv on nodes in one numbering."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = HGTConv(D, D, (list(TYPES), TRIPLES), heads=2)

    def forward(self, x: torch.Tensor, edges: torch.Tensor, relation: torch.Tensor) -> torch.Tensor:
        first = {name: bounds[0] for name, bounds in TYPES.items()}
        by_relation = {
            triple: edges[:, relation == r] - torch.tensor([[first[triple[0]]], [first[triple[2]]]])
            for r, triple in enumerate(TRIPLES)
        }
        out = self.layer({name: x[a:b] for name, (a, b) in TYPES.items()}, by_relation)
        return torch.cat([out[name] for name in TYPES])


def typed_graph() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    relation = np.sort(np.random.default_rng(9).integers(0, len(TRIPLES), E))
    ends = [[rng.integers(*TYPES[TRIPLES[r][end]]) for r in relation] for end in (0, 2)]
    return np.array(ends), relation


def main() -> None:
    edges, relation = graph()
    torch.manual_seed(1)
    inputs = torch.randn(N, D)
    arrays = {
        "edge_index": edges.astype(np.int16),
        "relation": relation.astype(np.int8),
        "x": inputs.numpy(),
    }
    for name, make in {**CASES, "hgt": HGT}.items():
        if name == "hgt":
            edges, relation = typed_graph()
            arrays |= {
                "hgt/edge_index": edges.astype(np.int16),
                "hgt/relation": relation.astype(np.int8),
            }
        layer = make()
        x = inputs.clone().requires_grad_()
        for p in layer.parameters():
            nn.init.normal_(p, std=0.4)
        out = layer(x, torch.from_numpy(edges), torch.from_numpy(relation))
        probe = torch.randn_like(out)
        (out * probe).sum().backward()
        arrays |= {
            f"{name}/output": out.detach().numpy(),
            f"{name}/probe": probe.numpy(),
            f"{name}/grad/x": x.grad.numpy(),
        }
        # parameters of other modes of attention are not read
        for which, p in layer.named_parameters():
            if p.grad is not None:
                arrays |= {
                    f"{name}/param/{which}": p.detach().numpy(),
                    f"{name}/grad/param/{which}": p.grad.numpy(),
                }
    np.savez_compressed(Path(__file__).with_name("relational.npz"), **arrays)


if __name__ == "__main__":
    main()
