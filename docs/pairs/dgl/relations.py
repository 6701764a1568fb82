import dgl
import torch
from dgl.nn import HeteroGraphConv, SAGEConv


def graph_of(edges, x):
    """Edges by (type, relation, type), features by type."""
    back = {
        (last, f"rev_{name}", first): ends[::-1]
        for (first, name, last), ends in edges.items()
    }
    g = dgl.heterograph(
        {
            name: tuple(ends)
            for name, ends in (edges | back).items()
        },
        {name: len(value) for name, value in x.items()},
    )
    for name, value in x.items():
        g.nodes[name].data["x"] = torch.tensor(value)
    return g


class Net(torch.nn.Module):
    def __init__(self, g, d_out, hidden=16):
        super().__init__()
        self.embed = torch.nn.ModuleDict(
            {
                name: torch.nn.Linear(
                    g.nodes[name].data["x"].shape[1],
                    hidden,
                    bias=False,
                )
                for name in g.ntypes
            }
        )
        self.first, self.last = (
            HeteroGraphConv(
                {
                    name: SAGEConv(hidden, d, "mean")
                    for name in g.etypes
                },
                aggregate="sum",
            )
            for d in (hidden, d_out)
        )

    def forward(self, g):
        h = {
            name: self.embed[name](g.nodes[name].data["x"])
            for name in g.ntypes
        }
        h = self.first(g, h)
        return self.last(
            g, {name: x.relu() for name, x in h.items()}
        )
