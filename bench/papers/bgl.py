"""BGL: caches, proximity order, partitions by blocks, a pipeline with profiled stages.

python bench/papers/bgl.py
"""

from __future__ import annotations

from functools import partial

from paper import (
    NO_MACHINES,
    Paper,
    Row,
    Section,
    answer,
    difference,
    result,
    results,
    sections,
)

NAME = "BGL"
row = partial(answer, NAME)

# the partitioner as it is published
RULE = "bgl:blocks=512,passes=1,second=1"
POLICIES = ("fifo", "lru", "lfu", "degree", "belady")
TASKS = {
    "photo": "Photo",
    "computers": "Computers",
    "cs": "Coauthor CS",
    "facebook100": "facebook100",
}
PARTITIONERS = (RULE, "metis", "grem", "fennel", "ldg", "block")
GRAPHS = {"rmat": "R-MAT", "facebook100": "facebook100", "cnr_2000": "cnr_2000"}


def percent(part: float, whole: float) -> str:
    """A change in percent."""
    return f"{100 * (part / whole - 1):+.0f} %"


def hits() -> Section:
    rows = []
    plain = []
    policies = []
    more = []
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
        more.append(fifo - random["degree"])
    return Section(
        "Hit rates: FIFO with proximity order / static by degree / FIFO with random order",
        [
            row("static", " / ".join(f"{100 * x:+.0f}" for x in more) + " %"),
            row("fifo-order", " / ".join(plain) + " as many"),
            *rows,
            *policies,
        ],
        "The first two rows have R-MAT, facebook100 and cnr_2000; a cache holds a tenth of the"
        " nodes. FIFO with the proximity order loses to a static cache on R-MAT and cnr_2000: on"
        " R-MAT a few hubs are most of what is read. It wins on facebook100, whose colleges are"
        " apart. The example's 8 and 14 hits are 1.8 times as many. Belady's optimum, which BGL"
        " has not, is above all of them; see [Caches](caching.md).",
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
    saved = [
        percent(result("traffic", graph=graph, masters=RULE)["expand, of hash"], 1.0)
        for graph in GRAPHS
    ]
    for graph, name in GRAPHS.items():
        for kind, what in (("expand", "messages"), ("values", "values")):
            each = [
                percent(result("traffic", graph=graph, masters=masters)[f"{kind}, of hash"], 1.0)
                for masters in PARTITIONERS
            ]
            rows.append(Row(f"{name}, {what}: {' / '.join(PARTITIONERS)}", "", " / ".join(each)))
    return Section(
        "Traffic with BGL's partition against random placement",
        [
            row("requests", " / ".join(saved)),
            row("sampling", why="workers share 2 cores"),
            row("gminer", why="GMiner not at hand"),
            *rows,
        ],
        "On 4 simulated workers, fan-out 5, 10, 15: bytes of messages that expand batches, and of"
        " values that cooperative workers exchange, against placement by hash; the first row is of"
        " R-MAT, facebook100 and cnr_2000, with the published rule; the defaults of `bgl`"
        " [cut fewer edges](partition.md#what-bgl-cuts). BGL's partition is not the best on any"
        " of them: METIS"
        " and restreamed Fennel (`grem`) save more. Colleges of facebook100 are components, and"
        " pages of cnr_2000 are numbered by host, so that blocks of consecutive numbers do as well"
        " as BGL's partition, or better. Workers are threads of two cores, so there is no sampling"
        " time to compare.",
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
            row("systems", f"{small['seconds'] / own['seconds']:.1f}x of GraphBolt"),
            Row("sampled GCN on 2 workers against DistDGL", "", f"{far['times faster']:.1f}x"),
            *(row(key, why="no GPU") for key in ("preprocessing", "utilisation", "feature-time")),
            row("scaling", why=NO_MACHINES),
            row("parameters", why=NO_MACHINES),
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
    def seconds(case: str, start: int) -> str:
        """Of the first or the second measurement of a case."""
        each = [
            results("pipeline", case=case, contender=name)[start]["seconds"]
            for name in ("1", "2", "4", "8", "auto")
        ]
        return " / ".join(f"{s:.2f}" for s in each)

    free, own = (
        results("pipeline", case="contention", contender=name)[-1]["seconds"]
        for name in ("free", "own threads")
    )
    return Section(
        "Profiled pipeline against free contention",
        [
            row("pipeline", why="not measured: needs more than two cores"),
            Row("the same on two cores, one of which computes", "", f"{free / own:.2f}x"),
            *(
                Row(f"{name}, seconds of an epoch with 1 / 2 / 4 / 8 / auto", "", seconds(case, n))
                for case, name in (("updates", "updates in order"), ("stale", "stale values"))
                for n in (0, 1)
            ),
        ],
        "The paper gives each stage cores of its own, as `--stage-threads auto` does by the same"
        " minimax; `python bench/pipeline.py --cases contention` compares that with threads that"
        " take what can continue. On two cores all of compute has one, so that it is slower. The"
        " other rows are of another mechanism: `--pipeline auto` chooses by a profile how"
        " many batches are in flight, and its gain over one batch at a time hides the 1 ms of a"
        " link between 2 workers. Both measurements of a case are shown. Batches in flight with"
        " stale values change results. Where cores are full and no link is slow, nothing can be"
        " gained, and `--pipeline auto` says so.",
        ["python bench/pipeline.py", "python bench/pipeline.py --cases contention"],
    )


def paper() -> Paper:
    """All tables of this paper."""
    return Paper(
        "BGL",
        "[Caches](caching.md), the proximity order, `--masters bgl`, `--pipeline auto` and"
        " `--stage-threads`; published in [arXiv:2112.08541](https://arxiv.org/abs/2112.08541).",
        sections(hits, data, order, traffic, speed, pipeline),
    )


if __name__ == "__main__":
    print(paper().text())
