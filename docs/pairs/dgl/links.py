import dgl
import dgl.function as fn
import torch
import torch.nn.functional as F
from dgl.nn import SAGEConv


class Net(torch.nn.Module):
    def __init__(self, d_in, hidden=16):
        super().__init__()
        self.first = SAGEConv(d_in, hidden, "mean")
        self.last = SAGEConv(hidden, hidden, "mean")

    def encode(self, g, x):
        return self.last(g, F.relu(self.first(g, x)))

    def decode(self, pairs, h):
        with pairs.local_scope():
            pairs.ndata["h"] = h
            pairs.apply_edges(fn.u_dot_v("h", "h", "score"))
            return pairs.edata["score"][:, 0]


def train(model, known, epochs):
    """known: a graph of the training links."""
    optimiser = torch.optim.Adam(
        model.parameters(), lr=0.01
    )
    negatives = (
        dgl.dataloading.negative_sampler.GlobalUniform(1)
    )
    for _ in range(epochs):
        optimiser.zero_grad()
        h = model.encode(known, known.ndata["x"])
        ends = negatives(
            known, torch.arange(known.num_edges())
        )
        false = dgl.graph(ends, num_nodes=known.num_nodes())
        right, wrong = (
            model.decode(known, h),
            model.decode(false, h),
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


def scores(model, known, pairs):
    with torch.no_grad():
        h = model.encode(known, known.ndata["x"])
        return model.decode(pairs, h).sigmoid().numpy()
