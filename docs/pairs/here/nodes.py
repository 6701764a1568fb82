import graphtheta as gt

LAYERS = {
    "gcn": gt.models.GCN,
    "sage": gt.models.SAGE,
    "gat": gt.models.GAT,
}


def graph_of(edge_index, x, y, train):
    return gt.Graph(
        edge_index, len(x), x=x, y=y, train=train
    )


class Net(gt.Model):
    def __init__(self, layer, d_in, d_out, hidden=16):
        self.first = LAYERS[layer](d_in, hidden)
        self.last = LAYERS[layer](hidden, d_out)

    def forward(self, graph):
        return self.last(
            graph, gt.relu(self.first(graph, graph.x))
        )


def train(model, graph, epochs):
    trainer = gt.Trainer(
        model,
        graph,
        epochs=epochs,
        lr=0.01,
        weight_decay=5e-4,
    )
    return [row["loss"] for row in trainer.fit().history]


def predict(model, graph):
    return gt.Trainer(model, graph).predict()[1]
