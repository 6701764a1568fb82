"""Accuracies that other systems publish, and those of data sets.

python bench/papers/others.py
"""

from __future__ import annotations

from functools import partial
from statistics import mean

from paper import NO_GRAPH, Paper, Row, Section, absent, answer, result, results, sections

NAME = "Other systems"
row = partial(answer, NAME)
TASKS = {
    "photo": "Photo",
    "computers": "Computers",
    "cs": "Coauthor CS",
    "facebook100": "facebook100",
}
SAINT = ("saint_node", "saint_edge", "saint_walk")


def pitfalls() -> Section:
    def both(graph: str) -> str:
        found = [result("accuracy", row=f"{graph}-{model}") for model in ("gcn", "sage")]
        return " / ".join(f"{f['mean']:.1f} +- {f['deviation']:.1f}" for f in found)

    return Section(
        "Co-purchases and co-authors",
        [
            *(
                row(graph, both(graph))
                for graph in ("amazon_computers", "amazon_photo", "coauthor_cs")
            ),
            row("coauthor_physics", why=NO_GRAPH),
        ],
        "The protocol of [Shchur et al.](https://arxiv.org/abs/1811.05868): random splits with 20"
        " training nodes of each class. Ours are means of 20 splits, theirs of 100. Coauthor"
        " Physics is not at hand.",
        ["python bench/accuracy.py"],
    )


def citations() -> Section:
    def mean_of(name: str) -> str:
        found = result("accuracy", row=name)
        return f"{found['mean']:.1f} +- {found['deviation']:.1f}"

    def all_three(graph: str) -> str:
        return " / ".join(mean_of(f"{graph}-{model}") for model in ("gcn", "gat", "sage"))

    return Section(
        "Citation graphs",
        [
            row("cora-readme", all_three("cora")),
            row("citeseer-readme", all_three("citeseer")),
            row("gat-paper", f"{mean_of('cora-gat')} / {mean_of('citeseer-gat')} / -"),
            row("pubmed-readme", why=NO_GRAPH),
            row("ppi-gat", why=NO_GRAPH),
        ],
        "Ours are means of 20 seeds. SAGE is less accurate here than in DGL's README: layers"
        " average the neighbours, in DGL's example the node too.",
        ["python bench/accuracy.py"],
    )


def saint() -> Section:
    rows = absent(NAME, "saint-")
    for task, name in TASKS.items():
        found = [result("sampler_accuracy", task=task, sampler=sampler) for sampler in SAINT]
        rows.append(
            Row(
                f"{name}: difference to full neighbourhoods, in percent",
                "",
                " / ".join(f"{f['of full']:+.1f}" for f in found),
            )
        )
    return Section(
        "GraphSAINT, F1: nodes / edges / random walks",
        rows,
        "[GraphSAINT](https://arxiv.org/abs/1907.04931) trains on graphs that are not at hand. Its"
        " three samplers are compared with full neighbourhoods on four others, with a GCN of two"
        " layers and 5 seeds. On three of them edges and random walks are better than nodes, as"
        " published, if by little.",
        ["python bench/sampler_accuracy.py --samplers saint_node saint_edge saint_walk"],
    )


def clusters() -> Section:
    rows = absent(NAME, "cluster-")
    for task, name in TASKS.items():
        found = [
            result("histories", task=task, mechanism=mechanism)["mean"]
            for mechanism in ("gas:hops=1", "global")
        ]
        rows.append(Row(f"{name}: clusters / global", "", " / ".join(f"{x:.1f}" for x in found)))
    return Section(
        "Cluster-GCN",
        rows,
        "[Cluster-GCN](https://arxiv.org/abs/1905.07953) trains deep and wide networks on graphs"
        " that are not at hand. Here clusters of METIS, 25 of 100 in a batch with a boundary of one"
        " hop, are compared with global batches: GCN of two layers, 5 seeds.",
        ["python bench/histories.py --mechanisms global gas:hops=1"],
    )


def halos() -> Section:
    def lost(mechanism: str) -> str:
        found = [result("histories", task=task, mechanism=mechanism)["of exact"] for task in TASKS]
        return " / ".join(f"{x:+.1f}" for x in found)

    return Section(
        "Sampled and stale halos",
        [
            row("bns", why=NO_GRAPH),
            row("pipegcn", why=NO_GRAPH),
            Row("`bns:rate=0.1`, difference to exact training", "", lost("bns:rate=0.1")),
            Row("`pipegcn`", "", lost("pipegcn")),
            Row("`pipegcn`, smoothed", "", lost("pipegcn:feat_corr=0.95,grad_corr=0.95")),
        ],
        "[BNS-GCN](https://arxiv.org/abs/2203.10983) and"
        " [PipeGCN](https://arxiv.org/abs/2203.10428) report no loss on Reddit. Here are"
        f" differences in percent on {', '.join(TASKS.values())}, with 4 workers and 5 seeds; see"
        " [Stale exchange](staleness.md). A tenth of the halo costs about 2 percent on three of"
        " these smaller graphs, whose nodes have fewer neighbours than Reddit's 492.",
        ["python bench/histories.py"],
    )


def rest() -> Section:
    triples = {
        name: results("knowledge", run=f"fb15k_237 {name}") for name in ("distmult", "rotate")
    }
    bonds = {
        name: result("edge_attributes", task="tox21 mini", name=name)["test_accuracy"]
        for name in ("gat", "gat_e", "gipa")
    }
    edges = " / ".join(f"{100 * x:.1f}" for x in bonds.values())
    return Section(
        "Edge attributes, samplers and links",
        [
            row("proteins", why=NO_GRAPH),
            Row("mol_tox21, hidden atoms, accuracy: GAT / GAT-E / GIPA, one run", "", edges),
            *(row(key, why=NO_GRAPH) for key in ("dgl-products", "arxiv", "products", "citation2")),
            row(
                "fb15k",
                ", ".join(
                    f"{name} {mean(t['mrr'] for t in each):.3f} after {each[0]['epoch']}"
                    for name, each in triples.items()
                ),
            ),
        ],
        "OGB's graphs are not at hand; the five on products are GCN, SAGE, neighbour sampling,"
        " ClusterGCN and GraphSAINT. Models with edge attributes are compared on molecules, where"
        " they predict a hidden atom from its bonds, samplers in the tables above, and links on a"
        " knowledge graph. An MRR is the mean of several seeds; their runs end after 12 epochs, as"
        " the published one after 10, and not at convergence.",
        ["python bench/edge_attributes.py", "python bench/knowledge.py"],
    )


def paper() -> Paper:
    """All tables of other systems."""
    return Paper(
        NAME,
        "Accuracies that are published for the mechanisms and data sets of this library.",
        sections(citations, pitfalls, saint, clusters, halos, rest),
    )


if __name__ == "__main__":
    print(paper().text())
