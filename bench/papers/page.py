"""Writes the page of published figures beside those found here, from bench/results.

    python bench/papers/page.py                 docs/papers.md and docs/figures/papers.svg

The commands on the page measure the figures anew. A test compares the page with the results.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import batchgnn
import bgl
import distgnn_mb
import graphtheta_paper
import labor
import others
from paper import SHOWN, difference, lines, result, results, wrapped
from rows import SYSTEMS

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
PAPERS = (graphtheta_paper, batchgnn, distgnn_mb, bgl, labor, others)
INTRODUCTION = """
GraphTheta takes in the ideas of five systems. These tables have the figures that their papers
report in tables and text, as lists that were made from the papers alone (`bench/papers/published`),
and beside them what this library reaches at the scale of a machine with two cores, in measured
times or exact counts of simulated workers. A published figure has one of ours in its row only if
both are of the same kind; the rows below it have what was measured on other graphs, machines and
numbers of workers, and a figure without one of ours has the reason in its place. The tables are
made from `bench/results` by `python bench/papers/page.py`; the commands below each table measure
them anew, `python bench/papers/batchgnn.py` prints those of one paper, and `bench/papers/rows.py`
checks that every published figure is answered. `ENVIRONMENTS` is a folder with the environments
of other libraries, see [Benchmarks](bench.md).
"""
# what rows that no table shows have
ELSE = {
    "accuracy": "other models on the same graphs, and Photo, Computers and Coauthor CS with GAT",
    "bytes": "GAT and SAGE, and an earlier measurement of the same cases",
    "caches": "other sizes of caches, and workers that share what they read",
    "distributed": "the times of this library, as ratios above",
    "edge_attributes": "times, other widths, and a network that sees no bonds",
    "facebook100": "the same on 2 workers",
    "hec": "other numbers of workers, lines and pushed rows",
    "histories": "other histories, and the same ones with other options",
    "knowledge": "wn18rr and other scores",
    "macrobatch": "other sizes of macrobatches, and the proximity order",
    "minibatch": "LABOR and GAT against GraphBolt",
    "mirrors": "16 numbers a node, and growth with the width",
    "modes": "ratios of the times above",
    "ranks": "one worker with two threads",
    "sampled_sizes": "other values of kappa, and draws for each hop in turn",
    "sampler_accuracy": "12 other samplers and orders",
    "simulate": "the check of simulated against measured times, and further settings",
    "traffic": "hash, to which all others are relative",
}
# hits of the embedding cache, sampled sizes, vectors
LAYERS = {"L0": "features", "L1": "layer 1", "L2": "layer 2"}
LARGE = "rmat:scale=18,edge_factor=40,features=8,classes=8"


def behind() -> list[str]:
    """Where this library reaches less than the papers, or than it might."""

    def links(contender: str, rate: str) -> float:
        found = result("links", link=f"50us,{rate}Gbit/s", cache="40%", contender=contender)
        return float(found["least"])

    def scale(case: str, part: str) -> str:
        found = (graphtheta_paper.speed_up(case, workers, part) for workers in (512, 1024))
        return " and ".join(f"{row['of first']:.2f}" for row in found)

    def gain(contender: str) -> str:
        return " and ".join(
            f"{links('plain', rate) / links(contender, rate):.2f}" for rate in ("1", "10")
        )

    def uneven(graph: str) -> str:
        found = result("hec", graph=graph, workers=8, ls=2, **distgnn_mb.BASE)
        return f"{found['imbalance']:.0f}"

    def fusing() -> str:
        gains = [
            row["of separate"]
            for row in results("fused", direction="both")
            if row["case"].startswith("update")
        ]
        return " to ".join(f"{100 * (1 - 1 / end(gains)):.0f}" for end in (min, max))

    def stage(name: str) -> str:
        return f"{result('ablation', stage=name)['ours']:.0f}"

    photo = difference(
        *(
            result("sampler_accuracy", task="photo", sampler=f"neighbour{order}")
            for order in (", order=proximity", "")
        )
    )
    left = {
        name: result("traffic", graph="rmat", masters=masters)["expand, of hash"]
        for name, masters in (("bgl", bgl.RULE), ("metis", "metis"), ("grem", "grem"))
    }
    saved = {masters: f"{100 * (1 - share):.0f}" for masters, share in left.items()}
    return [
        f"Simulated mini-batches in the paper's setting scale {scale('mini', 'alipay')} times from"
        " 256 to 512 and 1,024 workers, the published ones 1.71 and 2.23, and a step on 1,024 takes"
        f" {graphtheta_paper.speed_up('mini', 1024)['step']:.0f} s, the published one 43 s; those"
        f" of a GCN on papers100M scale {scale('mini', 'scaling')} times.",
        "The embedding cache of DistGNN-MB, in its published form, is"
        f" {gain('hec, features cached')} times as fast as plain independent workers with links of"
        " 1 and 10 Gbit/s: no gain with the faster one.",
        f"Workers of that mode are uneven: {uneven('rmat')} % on R-MAT and"
        f" {uneven('facebook100')} % on facebook100 in edges, where the paper has at most 12 % in"
        " time.",
        f"Fusing UPDATE saves {fusing()} % of it against separate passes of this library.",
        f"Cached totals alone are {gain('precompute')} times as fast on these links; the paper's"
        " mean is 1.2.",
        "Cooperative workers send more bytes than independent ones in four of six measured cases"
        " with sampled neighbours.",
        f"BGL's partition by its published rule saves {saved['bgl']} % of the messages of R-MAT,"
        f" METIS {saved['metis']} % and restreamed Fennel {saved['grem']} %.",
        f"The proximity order changes the accuracy on Photo by {photo[0]:+.1f} +- {photo[1]:.1f}"
        " percent, and FIFO with that order has fewer hits than a static cache on two of three"
        " graphs.",
        f"Preparing a mini-batch takes {stage('preparation')} % of a step here, 7 % in the paper.",
        "Vertex-cut sends more than 1D by source for mini-batches, for which the paper finds it"
        " faster.",
        "Global-batch has not converged on facebook100 after 500 epochs.",
        "GCN on Cora and Citeseer is 0.6 to 1 percent less accurate than the paper's best of 1,000"
        " epochs, and SAGE 1 to 2 percent less than DGL's.",
        "Nothing was measured on more than one machine, on OGB's graphs, or against a GPU.",
    ]


def unshown() -> list[str]:
    """How much of each file of results no table has."""
    rows = ["| file | rows | shown | the others |", "|---|---|---|---|"]
    for name in sorted(SHOWN):
        total = len(lines(name))
        shown = len(SHOWN[name])
        others = ELSE[name] if shown < total else ""
        rows.append(f"| `bench/results/{name}.jsonl` | {total} | {shown} | {others} |")
    return rows


def text() -> str:
    """The page as Markdown."""
    papers = [module.paper() for module in PAPERS]
    page = [
        "# Published figures",
        "",
        wrapped(INTRODUCTION),
        "",
        "## Where this library falls short",
        "",
        *(wrapped(f"- {loss}", "  ") for loss in behind()),
        "",
        "## Overview",
        "",
        "| system | published | with a figure here | with a reason |",
        "|---|---|---|---|",
    ]
    for paper in papers:
        figures, reasons = paper.answered
        page.append(f"| {paper.name} | {figures + reasons} | {figures} | {reasons} |")
    page += [
        "",
        (
            "![Scaling, modes, hits of the embedding cache, sampled nodes,"
            " vectors](figures/papers.svg)"
        ),
        "",
        *("\n\n".join(paper.text() for paper in papers).splitlines()),
        "",
        "## Measured and not shown",
        "",
        wrapped(
            "Files of results of which a table above has some rows. Those of further benchmarks are"
            " in [Benchmarks](bench.md)."
        ),
        "",
        *unshown(),
    ]
    return "\n".join(page) + "\n"


def draw(path: Path) -> None:
    """Draw five of the tables; needs matplotlib."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    # the same file for the same results
    mpl.rcParams |= {"svg.hashsalt": "papers", "font.size": 9}
    # as wide as the text of a page, which would shrink a wider one until nobody can read it
    fig, grid = plt.subplots(3, 2, figsize=(7.6, 8.4), layout="constrained")
    scaling, modes, hits, sizes, vectors, unused = grid.flat
    unused.set_axis_off()
    few = 256
    for case, colour in (("mini", "C0"), ("cluster", "C1")):
        paper = map(float, SYSTEMS["GraphTheta"][f"scaling-{case}"].figure.split(" / "))
        ours = {
            workers: graphtheta_paper.speed_up(case, workers)["of first"]
            for workers in (few, 2 * few, 4 * few)
        }
        scaling.plot(list(ours), list(ours.values()), marker="o", ms=3, color=colour, label=case)
        scaling.plot(
            list(ours),
            [1, *paper],
            marker="o",
            ms=3,
            ls="--",
            color=colour,
            label=f"{case} (paper)",
        )
    _titles(scaling, "Speed-up of a step", "workers")
    for mode in graphtheta_paper.MODES:
        steps = results("simulate", part="modes", case="1,024 each", mode=mode)[-3:]
        modes.plot(
            [row["workers"] for row in steps],
            [row["step"] for row in steps],
            marker="o",
            ms=3,
            label=mode,
        )
    _titles(modes, "Step of 1,024 targets each, s", "workers")
    found = results("hec", graph="rmat", cs="all", ls=2, nc=2000, d=1)
    for key, name in LAYERS.items():
        hits.plot(
            [row["workers"] for row in found],
            [row[key] for row in found],
            marker="o",
            ms=3,
            label=name,
        )
    _titles(hits, "Hits of the embedding cache, %", "workers")
    for graph, name in labor.GRAPHS.items():
        sizes.plot(
            list(labor.PAPER),
            [result("sampled_sizes", graph=graph, sampler=s)["NS / V3"] for s in labor.PAPER],
            marker="o",
            ms=3,
            label=name,
        )
    first = 167.0
    sizes.plot(
        list(labor.PAPER),
        [first / float(labor.published_nodes(s).split(" / ")[0]) for s in labor.PAPER],
        marker="o",
        ms=3,
        ls="--",
        label="Reddit (paper)",
    )
    _titles(sizes, "Nodes of NS, times those of the sampler", "")
    for size, aggregated, name in (
        (0, False, "one by one"),
        (8, False, "macrobatches of 8"),
        (8, True, "and totals"),
    ):
        rows = results("macrobatch", graph=LARGE, size=size, aggregated=aggregated)
        vectors.plot(
            [row["workers"] for row in rows],
            [row["vectors"] / 1e6 for row in rows],
            marker="o",
            ms=3,
            label=name,
        )
    _titles(vectors, "Vectors fetched, millions", "workers")
    for axes in (scaling, modes, hits, vectors):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:.0f}")
    fig.savefig(path, metadata={"Date": None})


def _titles(axes: Any, title: str, x: str) -> None:
    axes.set_title(title, loc="left", fontsize=9)
    axes.set_xlabel(x)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)


def main() -> int:
    (DOCS / "papers.md").write_text(text(), encoding="utf-8")
    draw(DOCS / "figures" / "papers.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
