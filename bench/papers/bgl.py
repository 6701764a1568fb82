"""BGL: caches, proximity order, partitions by blocks, a pipeline with profiled stages.

    python bench/papers/bgl.py
"""
from __future__ import annotations

from paper import Paper, Row, Section, result

GRAPHS = {"rmat": "R-MAT", "facebook100": "facebook100", "cnr_2000": "cnr_2000"}


def percent(part: float, whole: float) -> str:
    """A change in percent."""
    return f"{100 * (part / whole - 1):+.0f} %"


def hits() -> Section:
    rows = []
    for graph, name in GRAPHS.items():
        fifo = result("caches", graph=graph, workers=1, cache="10 %", order="proximity:sequences=1")["fifo"]
        random = result("caches", graph=graph, workers=1, cache="10 %", order="random")
        rows.append(Row(f"{name}, cache of 10 %", "", f"{100 * fifo:.0f} / {100 * random['degree']:.0f} / {100 * random['fifo']:.0f} %"))
    return Section(
        "Hit rates: FIFO with proximity order / static by degree / FIFO with random order",
        [Row("products and papers100M", "+20 % over static", ""), *rows],
        "Proximity order needs neighbourhoods that are far apart. facebook100, whose colleges are apart, has them, and cnr_2000, whose "
        "hosts are; FIFO with order is then better than a static cache. R-MAT has none: a few hubs are most of what is read, and a static "
        "cache holds them. Belady's optimum, which BGL has not, is above all of them; see [Caches](caching.md).",
        ["python bench/caches.py"])


def traffic() -> Section:
    rows = []
    for graph, name in GRAPHS.items():
        own, hashed = (result("traffic", graph=graph, masters=masters) for masters in ("bgl", "hash"))
        rows += [Row(f"{name}: messages that expand batches", "", percent(own["expand"], hashed["expand"])),
                 Row(f"{name}: values of cooperative workers", "", percent(own["values"], hashed["values"]))]
    return Section(
        "Traffic with BGL's partition against random placement",
        [Row("cross-partition sampling requests", "-25 .. -44 %", ""), Row("sampling time", "-10 .. -20 %", ""), *rows],
        "On 4 simulated workers, fan-out 5, 10, 15, in bytes. Graphs with communities save more than the paper's, R-MAT as much. Workers "
        "are threads of two cores, so there is no sampling time to compare.",
        ["python bench/traffic.py"])


def speed() -> Section:
    small = result("minibatch", model="sage", sampler="neighbour", contender="graphbolt")
    own = result("minibatch", model="sage", sampler="neighbour", contender="graphtheta")
    far = result("distributed", case="sampled", contender="distdgl")
    return Section(
        "Speed against other systems",
        [Row("PaGraph / PyG / DGL / Euler, geometric mean", "1.91 / 3.02 / 7.04 / 20.68x", ""),
         Row("sampled SAGE against GraphBolt (DGL)", "", f"{small['seconds'] / own['seconds']:.1f}x"),
         Row("sampled GCN on 2 workers against DistDGL", "", f"{far['times faster']:.1f}x"),
         Row("feature time against Euler / DGL / PaGraph", "-98 / -88 / -57 %", ""), Row("scaling, of linear", "76 %", "")],
        "BGL's figures are of GPUs, whose features cross a network and a bus; here the processor computes next to its memory, and time is "
        "in products. Scaling needs more machines than are at hand.",
        ["python bench/minibatch.py --models sage --samplers neighbour --envs ENVIRONMENTS",
         "python bench/distributed.py --envs ENVIRONMENTS"])


def pipeline() -> Section:
    one, auto = (result("pipeline", case="stale", contender=name) for name in ("1", "auto"))
    return Section(
        "Profiled pipeline against free contention",
        [Row("GPU cluster, isolated stages", "2.7x", ""),
         Row("2 workers, links of 1 ms, chosen against one view at a time", "", f"{one['seconds'] / auto['seconds']:.1f}x")],
        "No core belongs to a stage here; threads take what can continue, and the profile chooses how many batches are in flight. Where "
        "cores are full and no link is slow, nothing can be gained, and `--pipeline auto` says so.",
        ["python bench/pipeline.py"])


def paper() -> Paper:
    """All tables of this paper."""
    return Paper("BGL", "[Caches](caching.md), the proximity order, `--masters bgl` and `--pipeline auto`; published in "
                 "[arXiv:2112.08541](https://arxiv.org/abs/2112.08541).", [hits(), traffic(), speed(), pipeline()])


if __name__ == "__main__":
    print(paper().text())
