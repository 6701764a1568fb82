import torch
import torch.nn.functional as F
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import softmax


class Attention(MessagePassing):
    def __init__(self, d_in, d_out, d_edge):
        super().__init__(aggr="sum")
        self.weight = torch.nn.Linear(d_in, d_out)
        self.score = torch.nn.Linear(2 * d_out + d_edge, 1)

    def forward(self, x, edge_index, edge_attr):
        z = self.weight(x)
        total = self.propagate(
            edge_index, z=z, edge_attr=edge_attr
        )
        return F.elu(total) + z

    def message(self, z_i, z_j, edge_attr, index, size_i):
        ends = torch.cat([z_j, z_i, edge_attr], dim=-1)
        score = F.leaky_relu(self.score(ends), 0.2)
        return softmax(score, index, num_nodes=size_i) * z_j


class Net(torch.nn.Module):
    def __init__(self, d_in, d_out, d_edge, hidden=16):
        super().__init__()
        self.first = Attention(d_in, hidden, d_edge)
        self.last = Attention(hidden, d_out, d_edge)

    def forward(self, data):
        h = self.first(
            data.x, data.edge_index, data.edge_attr
        )
        return self.last(h, data.edge_index, data.edge_attr)
