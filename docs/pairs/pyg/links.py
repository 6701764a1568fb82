import torch
import torch.nn.functional as F
from torch_geometric.nn import SAGEConv
from torch_geometric.utils import negative_sampling


class Net(torch.nn.Module):
    def __init__(self, d_in, hidden=16):
        super().__init__()
        self.first = SAGEConv(d_in, hidden)
        self.last = SAGEConv(hidden, hidden)

    def encode(self, x, edge_index):
        h = F.relu(self.first(x, edge_index))
        return self.last(h, edge_index)

    def decode(self, h, pairs):
        return (h[pairs[0]] * h[pairs[1]]).sum(dim=-1)


def train(model, x, known, epochs):
    """known: training links, which carry messages."""
    optimiser = torch.optim.Adam(
        model.parameters(), lr=0.01
    )
    for _ in range(epochs):
        optimiser.zero_grad()
        h = model.encode(x, known)
        false = negative_sampling(known, len(x))
        right, wrong = (
            model.decode(h, known),
            model.decode(h, false),
        )
        loss = F.binary_cross_entropy_with_logits(
            torch.cat([right, wrong]),
            torch.cat(
                [
                    torch.ones_like(right),
                    torch.zeros_like(wrong),
                ]
            ),
        )
        loss.backward()
        optimiser.step()


def scores(model, x, known, pairs):
    with torch.no_grad():
        return (
            model.decode(model.encode(x, known), pairs)
            .sigmoid()
            .numpy()
        )
