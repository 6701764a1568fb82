import dgl
import torch
import torch.nn.functional as F
from dgl.nn import GATConv, GraphConv, SAGEConv

LAYERS = {
    "gcn": GraphConv,
    "sage": lambda d_in, d_out: SAGEConv(
        d_in, d_out, "mean"
    ),
    "gat": lambda d_in, d_out: GATConv(
        d_in, d_out, num_heads=1
    ),
}


def graph_of(edge_index, x, y, train):
    g = dgl.graph(tuple(edge_index), num_nodes=len(x))
    g.ndata["x"], g.ndata["y"] = (
        torch.tensor(x),
        torch.tensor(y),
    )
    g.ndata["train"] = torch.tensor(train)
    return g


class Net(torch.nn.Module):
    def __init__(self, layer, d_in, d_out, hidden=16):
        super().__init__()
        self.loops = layer in ("gcn", "gat")
        self.first = LAYERS[layer](d_in, hidden)
        self.last = LAYERS[layer](hidden, d_out)

    def forward(self, g):
        if self.loops:
            g = dgl.add_self_loop(g)
        h = F.relu(self.first(g, g.ndata["x"]).flatten(1))
        return self.last(g, h).flatten(1)


def train(model, g, epochs):
    optimiser = torch.optim.Adam(
        model.parameters(), lr=0.01, weight_decay=5e-4
    )
    mask, y = g.ndata["train"], g.ndata["y"]
    losses = []
    for _ in range(epochs):
        optimiser.zero_grad()
        loss = F.cross_entropy(model(g)[mask], y[mask])
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def predict(model, g):
    with torch.no_grad():
        return model(g).softmax(dim=-1).numpy()
