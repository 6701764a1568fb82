import torch
from torch_geometric.data import HeteroData
from torch_geometric.nn import HeteroConv, SAGEConv
from torch_geometric.transforms import ToUndirected


def graph_of(edges, x):
    """Edges by (type, relation, type), features by type."""
    data = HeteroData()
    for name, value in x.items():
        data[name].x = torch.tensor(value)
    for relation, ends in edges.items():
        data[relation].edge_index = torch.tensor(ends)
    return ToUndirected()(data)


class Net(torch.nn.Module):
    def __init__(self, data, d_out, hidden=16):
        super().__init__()
        self.embed = torch.nn.ModuleDict(
            {
                name: torch.nn.Linear(
                    data[name].num_features,
                    hidden,
                    bias=False,
                )
                for name in data.node_types
            }
        )
        self.first, self.last = (
            HeteroConv(
                {
                    name: SAGEConv(hidden, d)
                    for name in data.edge_types
                },
                aggr="sum",
            )
            for d in (hidden, d_out)
        )

    def forward(self, data):
        h = {
            name: self.embed[name](x)
            for name, x in data.x_dict.items()
        }
        h = self.first(h, data.edge_index_dict)
        h = {name: x.relu() for name, x in h.items()}
        return self.last(h, data.edge_index_dict)
