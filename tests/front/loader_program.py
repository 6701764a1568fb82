"""GraphSAGE of PyTorch Geometric on batches of GraphTheta, on one worker or on several."""

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.nn import SAGEConv

import graphtheta as gt


class Net(torch.nn.Module):
    def __init__(self, d_in, hidden, d_out):
        super().__init__()
        self.first = SAGEConv(d_in, hidden)
        self.last = SAGEConv(hidden, d_out)

    def forward(self, x, edge_index):
        return self.last(torch.relu(self.first(x, edge_index)), edge_index)


def main():
    comm = gt.start()
    graph = gt.load("sbm")
    # one sample for all layers, as a single edge_index has it
    train = gt.Loader(graph, fanout=[6, 6], share_sample=True, batch_size=64, prefetch=2)
    test = gt.Loader(graph, targets="test", fanout="all,all", batch_size=256, order="ids")
    torch.manual_seed(0)  # the same first weights on all workers
    model = Net(graph.n_features, 32, graph.n_classes)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(5):
        for batch in train:
            optimiser.zero_grad()
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            F.cross_entropy(out, batch.y[: batch.batch_size]).backward()
            gt.average_gradients(model, weight=batch.batch_size)
            optimiser.step()
    right = np.zeros(2, int)
    for batch in test:
        with torch.no_grad():
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
        right += int((out.argmax(dim=1) == batch.y[: batch.batch_size]).sum()), batch.batch_size
    right, total = comm.all_sum(right).tolist()
    return right / total


if __name__ == "__main__":
    accuracy = main()
    if gt.start().rank == 0:
        print(f"test accuracy {accuracy:.4f}")
