import dgl.function as fn
import torch
import torch.nn.functional as F
from dgl.nn.functional import edge_softmax


class Attention(torch.nn.Module):
    def __init__(self, d_in, d_out, d_edge):
        super().__init__()
        self.weight = torch.nn.Linear(d_in, d_out)
        self.score = torch.nn.Linear(2 * d_out + d_edge, 1)

    def message(self, edges):
        ends = [
            edges.src["z"],
            edges.dst["z"],
            edges.data["feat"],
        ]
        score = self.score(torch.cat(ends, dim=-1))
        return {"score": F.leaky_relu(score, 0.2)}

    def forward(self, g, x):
        with g.local_scope():
            g.ndata["z"] = self.weight(x)
            g.apply_edges(self.message)
            g.edata["a"] = edge_softmax(g, g.edata["score"])
            g.update_all(
                fn.u_mul_e("z", "a", "m"),
                fn.sum("m", "total"),
            )
            return F.elu(g.ndata["total"]) + g.ndata["z"]


class Net(torch.nn.Module):
    def __init__(self, d_in, d_out, d_edge, hidden=16):
        super().__init__()
        self.first = Attention(d_in, hidden, d_edge)
        self.last = Attention(hidden, d_out, d_edge)

    def forward(self, g):
        return self.last(g, self.first(g, g.ndata["x"]))
