import torch
import torch.nn.functional as F
from dgl.dataloading import DataLoader, NeighborSampler
from dgl.nn import SAGEConv


class Net(torch.nn.Module):
    def __init__(self, d_in, d_out, hidden=16):
        super().__init__()
        self.first = SAGEConv(d_in, hidden, "mean")
        self.last = SAGEConv(hidden, d_out, "mean")

    def forward(self, blocks):
        h = F.relu(
            self.first(blocks[0], blocks[0].srcdata["x"])
        )
        return self.last(blocks[1], h)


def train(
    model,
    g,
    epochs,
    fanout=(10, 5),
    batch_size=32,
    shuffle=True,
):
    targets = g.ndata["train"].nonzero().flatten()
    loader = DataLoader(
        g,
        targets,
        NeighborSampler(list(fanout)),
        batch_size=batch_size,
        shuffle=shuffle,
    )
    optimiser = torch.optim.Adam(
        model.parameters(), lr=0.01, weight_decay=5e-4
    )
    losses = []
    for _ in range(epochs):
        total = 0.0
        for _, _, blocks in loader:
            optimiser.zero_grad()
            y = blocks[-1].dstdata["y"]
            loss = F.cross_entropy(model(blocks), y)
            loss.backward()
            optimiser.step()
            total += loss.item()
        losses.append(total / len(loader))
    return losses
