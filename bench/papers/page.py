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
from paper import result, results, wrapped
from rows import SYSTEMS

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
PAPERS = (graphtheta_paper, batchgnn, distgnn_mb, bgl, labor, others)
INTRODUCTION = """
GraphTheta takes in the ideas of five systems. These tables have the figures that their papers
report, and beside them what this library reaches at the scale of a machine with two cores, in
measured times or exact counts of simulated workers. Each says why figures differ; a published
figure without one of ours has the reason in its place, and where there are figures on other
graphs, they are in the rows below it. The last tables have figures of further systems and of data
sets. They are made from `bench/results` by `python bench/papers/page.py`; the commands below each
table measure them anew, `python bench/papers/batchgnn.py` prints those of one paper, and
`bench/papers/rows.py` checks that every published figure is answered. `ENVIRONMENTS` is a folder
with the environments of other libraries, see [Benchmarks](bench.md).
"""
# hits of the embedding cache, sampled sizes, vectors
LAYERS = {"L0": "features", "L1": "layer 1", "L2": "layer 2"}
LARGE = "rmat:scale=18,edge_factor=40,features=8,classes=8"


def text() -> str:
    """The page as Markdown."""
    papers = [module.paper() for module in PAPERS]
    lines = [
        "# Published figures",
        "",
        wrapped(INTRODUCTION),
        "",
        "| system | published | with a figure here | with a reason |",
        "|---|---|---|---|",
    ]
    for paper in papers:
        figures, reasons = paper.answered
        lines.append(f"| {paper.name} | {figures + reasons} | {figures} | {reasons} |")
    lines += [
        "",
        (
            "![Scaling, modes, hits of the embedding cache, sampled nodes,"
            " vectors](figures/papers.svg)"
        ),
        "",
    ]
    return "\n".join(lines) + "\n" + "\n\n".join(paper.text() for paper in papers) + "\n"


def draw(path: Path) -> None:
    """Draw five of the tables; needs matplotlib."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    # the same file for the same results
    mpl.rcParams |= {"svg.hashsalt": "papers", "font.size": 9}
    fig, (scaling, modes, hits, sizes, vectors) = plt.subplots(
        1, 5, figsize=(16.2, 3.2), layout="constrained"
    )
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
