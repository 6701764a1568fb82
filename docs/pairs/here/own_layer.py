import graphtheta as gt


class Attention(gt.Layer):
    sum = "sum"

    def __init__(self, d_in, d_out, d_edge):
        self.weight = gt.Linear(d_in, d_out)
        self.score = gt.Linear(2 * d_out + d_edge, 1)

    def transform(self, node):
        return {"z": self.weight(node.h)}

    def gather(self, edge):
        ends = gt.concat(
            [edge.src.z, edge.dst.z, edge.attr]
        )
        score = gt.leaky_relu(self.score(ends), 0.2)
        return gt.softmax(score) * edge.src.z

    def apply(self, node, total):
        return gt.elu(total) + node.z


class Net(gt.Model):
    def __init__(self, d_in, d_out, d_edge, hidden=16):
        self.first = Attention(d_in, hidden, d_edge)
        self.last = Attention(hidden, d_out, d_edge)

    def forward(self, graph):
        return self.last(graph, self.first(graph, graph.x))
