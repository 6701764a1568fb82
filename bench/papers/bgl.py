"""BGL: caches, proximity order, partitions by blocks, a pipeline with profiled stages.

python bench/papers/bgl.py
"""

from __future__ import annotations

from functools import partial

from paper import NO_MACHINES, Paper, Row, Section, answer, difference, result

row = partial(answer, "BGL")

POLICIES = ("fifo", "lru", "lfu", "degree", "belady")
TASKS = {
    "photo": "Photo",
    "computers": "Computers",
    "cs": "Coauthor CS",
    "facebook100": "facebook100",
}
GRAPHS = {"rmat": "R-MAT", "facebook100": "facebook100", "cnr_2000": "cnr_2000"}


def percent(part: float, whole: float) -> str:
    """A change in percent."""
    return f"{100 * (part / whole - 1):+.0f} %"


def hits() -> Section:
    rows = []
    plain = []
    policies = []
    more = {}
    for graph, name in GRAPHS.items():
        fifo = result(
            "caches", graph=graph, workers=1, cache="10 %", order="proximity:sequences=1"
        )["fifo"]
        random = result("caches", graph=graph, workers=1, cache="10 %", order="random")
        rows.append(
            Row(
                f"{name}, cache of 10 %",
                "",
                f"{100 * fifo:.0f} / {100 * random['degree']:.0f} / {100 * random['fifo']:.0f} %",
            )
        )
        each = " / ".join(f"{100 * random[policy]:.0f}" for policy in POLICIES)
        policies.append(Row(f"{name}, random order: {' / '.join(POLICIES)}", "", f"{each} %"))
        plain.append(f"{fifo / random['fifo']:.1f}x")
        more[graph] = fifo - random["degree"]
    return Section(
        "Hit rates: FIFO with proximity order / static by degree / FIFO with random order",
        [
            row("static", f"facebook100: {100 * more['facebook100']:+.0f} %"),
            row("fifo-order", " / ".join(plain) + " as many"),
            *rows,
            *policies,
        ],
        "Proximity order needs neighbourhoods that are far apart. facebook100, whose colleges are"
        " apart, has them, and cnr_2000, whose hosts are; FIFO with order is then better than a"
        " static cache, or as good. R-MAT has none: a few hubs are most of what is read, and a"
        " static cache holds them. The example's 8 and 14 hits are 1.8 times as many; factors here"
        " are for R-MAT, facebook100 and cnr_2000. Belady's optimum, which BGL has not, is above"
        " all of them; see [Caches](caching.md).",
        ["python bench/caches.py"],
    )


def data() -> Section:
    found = [
        result(
            "macrobatch",
            graph="rmat:scale=15,edge_factor=175,features=16,classes=8",
            workers=w,
            size=0,
            order="random",
        )
        for w in (2, 8)
    ]
    return Section(
        "Data of a mini-batch",
        [
            row(
                "features",
                " / ".join(
                    f"{100 * x['vectors MiB'] / (x['vectors MiB'] + x['MiB']):.0f} %" for x in found
                ),
            )
        ],
        "Of the bytes that 2 and 8 independent workers send to each other for SAGE with 15, 10 and"
        " 5 neighbours, on an R-MAT graph with Reddit's 602 features and a tenth of its nodes. The"
        " rest samples and deals views.",
        ["python bench/macrobatch.py --orders random"],
    )


def order() -> Section:
    pairs = {
        name: [
            result("sampler_accuracy", task=task, sampler=f"neighbour{order}")
            for order in (", order=proximity", "")
        ]
        for task, name in TASKS.items()
    }
    found = {name: difference(*both) for name, both in pairs.items()}
    rows = [
        Row(
            f"{name}: proximity / random order",
            "",
            " / ".join(f"{x['mean']:.1f} +- {x['deviation']:.1f}" for x in both),
        )
        for name, both in pairs.items()
    ]
    return Section(
        "Accuracy with proximity order",
        [
            row("order-accuracy", "; ".join(f"{x:+.1f} +- {e:.1f}" for x, e in found.values())),
            *rows,
        ],
        f"Differences to random order in percent, on {', '.join(TASKS.values())}, with their"
        " standard errors over 5 seeds: a GCN of two layers with sampled neighbours, batches of 50"
        " targets. Batches of near targets have less mixed labels, which can slow down learning."
        " The difference on Photo is more than two standard errors: an epoch of its 160 training"
        " nodes is four batches, and two of the five seeds lose 5 and 7 percent. Here 5 sequences"
        " are interleaved; the paper chooses as many as keep the labels of batches even, on graphs"
        " with many more batches. See [macrobatches](macrobatch.md).",
        ["python bench/sampler_accuracy.py --samplers neighbour 'neighbour, order=proximity'"],
    )


def traffic() -> Section:
    rows = []
    for graph, name in GRAPHS.items():
        own, hashed = (
            result("traffic", graph=graph, masters=masters) for masters in ("bgl", "hash")
        )
        rows += [
            Row(
                f"{name}: messages that expand batches",
                "",
                percent(own["expand"], hashed["expand"]),
            ),
            Row(
                f"{name}: values of cooperative workers",
                "",
                percent(own["values"], hashed["values"]),
            ),
        ]
    saved = rows[0].ours
    return Section(
        "Traffic with BGL's partition against random placement",
        [row("requests", f"R-MAT: {saved}"), row("sampling", why="workers share 2 cores"), *rows],
        "On 4 simulated workers, fan-out 5, 10, 15, in bytes. Graphs with communities save more"
        " than the paper's, R-MAT as much. Workers are threads of two cores, so there is no"
        " sampling time to compare.",
        ["python bench/traffic.py"],
    )


def speed() -> Section:
    small = result(
        "minibatch", fanout="15,10,5", model="sage", sampler="neighbour", contender="graphbolt"
    )
    own = result(
        "minibatch", fanout="15,10,5", model="sage", sampler="neighbour", contender="graphtheta"
    )
    far = result("distributed", case="sampled", graph="reddit", contender="distdgl")
    return Section(
        "Speed against other systems",
        [
            row("systems", f"DGL (GraphBolt): {small['seconds'] / own['seconds']:.1f}x"),
            Row("sampled GCN on 2 workers against DistDGL", "", f"{far['times faster']:.1f}x"),
            row("feature-time", why="no GPU"),
            row("scaling", why=NO_MACHINES),
        ],
        "BGL's figures are of GPUs, whose features cross a network and a bus; here the processor"
        " computes next to its memory, and time is in products. Scaling needs more machines than"
        " are at hand.",
        [
            "python bench/minibatch.py --models sage --samplers neighbour --envs ENVIRONMENTS",
            "python bench/distributed.py --envs ENVIRONMENTS",
        ],
    )


def pipeline() -> Section:
    one, auto = (result("pipeline", case="stale", contender=name) for name in ("1", "auto"))
    return Section(
        "Profiled pipeline against free contention",
        [row("pipeline", f"{one['seconds'] / auto['seconds']:.1f}x")],
        "Ours is the number of batches in flight that was chosen, against one at a time, on 2"
        " workers with links of 1 ms. No core belongs to a stage here; threads take what can"
        " continue, and the profile chooses how many batches are in flight. Where cores are full"
        " and no link is slow, nothing can be gained, and `--pipeline auto` says so.",
        ["python bench/pipeline.py"],
    )


def paper() -> Paper:
    """All tables of this paper."""
    return Paper(
        "BGL",
        "[Caches](caching.md), the proximity order, `--masters bgl` and `--pipeline auto`;"
        " published in [arXiv:2112.08541](https://arxiv.org/abs/2112.08541).",
        [hits(), data(), order(), traffic(), speed(), pipeline()],
    )


if __name__ == "__main__":
    print(paper().text())
