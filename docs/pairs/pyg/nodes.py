import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GATConv, GCNConv, SAGEConv

LAYERS = {"gcn": GCNConv, "sage": SAGEConv, "gat": GATConv}


def graph_of(edge_index, x, y, train):
    data = Data(
        edge_index=torch.tensor(edge_index),
        x=torch.tensor(x),
    )
    data.y, data.train_mask = (
        torch.tensor(y),
        torch.tensor(train),
    )
    return data


class Net(torch.nn.Module):
    def __init__(self, layer, d_in, d_out, hidden=16):
        super().__init__()
        self.first = LAYERS[layer](d_in, hidden)
        self.last = LAYERS[layer](hidden, d_out)

    def forward(self, data):
        h = F.relu(self.first(data.x, data.edge_index))
        return self.last(h, data.edge_index)


def train(model, data, epochs):
    optimiser = torch.optim.Adam(
        model.parameters(), lr=0.01, weight_decay=5e-4
    )
    losses = []
    for _ in range(epochs):
        optimiser.zero_grad()
        mask = data.train_mask
        loss = F.cross_entropy(
            model(data)[mask], data.y[mask]
        )
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def predict(model, data):
    with torch.no_grad():
        return model(data).softmax(dim=-1).numpy()
