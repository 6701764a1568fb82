import graphtheta as gt


def graph_of(edges, x):
    """Edges by (type, relation, type), features by type."""
    sizes = {name: len(value) for name, value in x.items()}
    return gt.Graph(
        edges, sizes, x=x
    ).with_inverse_relations()


class Net(gt.Model):
    def __init__(
        self,
        d_in,
        d_out,
        relation_names,
        type_names,
        hidden=16,
    ):
        self.embed = gt.Linear(d_in, hidden, bias=False)
        self.first, self.last = (
            gt.per_relation(
                lambda name, d=d: gt.models.SAGE(hidden, d),
                relation_names,
                type_names,
            )
            for d in (hidden, d_out)
        )

    def forward(self, graph):
        h = self.embed(graph.x)
        return self.last(
            graph, gt.relu(self.first(graph, h))
        )
