"""LABOR, cooperative and dependent minibatching.

    python bench/papers/labor.py
"""
from __future__ import annotations

from paper import Paper, Row, Section, result

GRAPHS = {"rmat:scale=17,edge_factor=40,features=8,classes=4": "R-MAT", "facebook100:colleges=20": "facebook100"}
PAPER = {"neighbour": "167 / 68.3 / 10.1", "LABOR-0": "36 / 17.8 / 6.8", "LABOR-1": "27 / 14.4 / 6.1", "LABOR-*": "24 / 13.7 / 6.0"}
TASKS = {"photo": "Photo", "computers": "Computers", "cs": "Coauthor CS"}


def sizes() -> Section:
    rows = [Row(f"Reddit: {name}", figures, "") for name, figures in PAPER.items()]
    for graph, name in GRAPHS.items():
        for sampler in PAPER:
            found = result("sampled_sizes", graph=graph, sampler=sampler)
            rows.append(Row(f"{name}: {sampler}", "", f"{found['V3']:.0f} / {found['V2']:.1f} / {found['V1']:.1f}"))
    return Section(
        "Nodes of a batch, in thousands: 3 / 2 / 1 hops from 1,000 targets", rows,
        "The order NS > LABOR-0 > LABOR-1 > LABOR-* holds on both graphs. The ratio grows with the mean degree, which is 492 on Reddit, "
        "80 on this R-MAT graph and 77 on facebook100: targets share more neighbours where they have more.",
        ["python bench/sampled_sizes.py"])


def dependent() -> Section:
    rows = [Row("DGL's example, kappa 1 / 32", "38 / 78 % hits", "")]
    for graph, name in GRAPHS.items():
        found = [result("sampled_sizes", graph=graph, kappa=kappa, **{"mega-batch": False})["hits"] for kappa in (1, 16, 64)]
        rows.append(Row(f"{name}, kappa 1 / 16 / 64", "", " / ".join(f"{100 * x:.0f}" for x in found) + " % hits"))
    return Section("Hits of a cache with dependent batches", rows,
                   "The cache holds twice the input rows of a batch of LABOR-0, and evicts the row read longest ago. Hits grow with kappa "
                   "as published; they begin higher here, since the graphs are smaller than the example's.",
                   ["python bench/sampled_sizes.py"])


def cooperative() -> Section:
    rows = [Row("papers100M, GCN, LABOR-0 on 4 / 8 / 16", "14.5 / 25.3 / 64.2 %", ""),
            Row("papers100M, GCN, NS", "21.4 / 36.4 / 61.1 %", ""),
            Row("mag240M, R-GCN, LABOR-0", "17.7 / 31.2 / 63.0 %", ""), Row("mag240M, R-GCN, NS", "12.1 / 21.7 / 47.3 %", "")]
    for fanout in ("10,10", "10,10,10"):
        edges = [result("modes", case="counts", fanout=fanout, workers=w)["more edges"] for w in (2, 4, 8)]
        rows.append(Row(f"R-MAT, {fanout}, edges of 2 / 4 / 8 more by", "", " / ".join(f"{100 * x:.0f}" for x in edges) + " %"))
    both = [result("modes", fanout="10,10,10", case=case)["seconds"] for case in ("independent", "one batch")]
    rows.append(Row("R-MAT, 10,10,10, 2 workers, faster by", "", f"{100 * (both[0] / both[1] - 1):.0f} %"))
    return Section(
        "Cooperative against independent batches: gain", rows,
        "The paper's gains are of time on GPUs that are linked by NVLink; here the work that independent workers do twice is counted, and "
        "the time of one batch of 512 targets compared with two of 256 on two workers. R-MAT of 32,768 nodes is small, so that batches "
        "overlap more than on papers100M.",
        ["python bench/modes.py"])


def accuracy() -> Section:
    rows = [Row("Reddit: LADIES / LABOR-0 / NS", "96.20 / 96.25 / 96.24", ""), Row("products", "78.59 / 78.76 / 78.48", ""),
            Row("Yelp", "61.89 / 61.55 / 61.50", ""), Row("Flickr", "50.79 / 51.65 / 51.70", "")]
    for task, name in TASKS.items():
        chosen = [result("sampler_accuracy", task=task, sampler=sampler)["mean"] for sampler in ("ladies", "labor", "neighbour")]
        rows.append(Row(f"{name}: LADIES / LABOR-0 / NS", "", " / ".join(f"{x:.1f}" for x in chosen)))
    return Section("Test accuracy of samplers", rows,
                   "The paper's graphs are not at hand. As there, samplers differ by less than their standard errors; the table of all "
                   "18 samplers is in the [benchmarks](bench.md).", ["python bench/sampler_accuracy.py"])


def paper() -> Paper:
    """All tables of these papers."""
    return Paper("LABOR, cooperative and dependent minibatching",
                 "[Samplers](sampling.md) and modes; published in [arXiv:2210.13339](https://arxiv.org/abs/2210.13339) and "
                 "[arXiv:2310.12403](https://arxiv.org/abs/2310.12403).", [sizes(), dependent(), cooperative(), accuracy()])


if __name__ == "__main__":
    print(paper().text())
