"""Memory and time of features of types in three forms: at their own widths, as one dense matrix,
and as one sparse one.

    python bench/typed_features.py

The graph has the proportions of ogbn-mag (https://ogb.stanford.edu/docs/nodeprop/) at a tenth of
its size: 73,600 papers, 113,500 authors and 870 institutions, with features 128, 64 and 16 wide,
random ends, and inverse relations. A process each trains an R-GCN of two layers with two bases on
all nodes. "features" and "worker" are MiB of features in the graph and in the worker's part, "peak"
GiB of the process; "seconds" is processor time of an epoch, the median of five. Losses must agree.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import scipy.sparse as sp
from harness import HERE, table

import graphtheta as gt

SIZES = {"paper": 73_600, "author": 113_500, "institution": 870}
WIDTHS = {"paper": 128, "author": 64, "institution": 16}
EDGES = {
    ("author", "writes", "paper"): 714_500,
    ("paper", "cites", "paper"): 541_600,
    ("author", "at", "institution"): 104_400,
}
FORMS = ("own widths", "dense", "sparse")
COLUMNS = ["form", "features", "worker", "peak", "seconds", "loss"]
MIB, GIB = 1 << 20, 1 << 30


def graph_of(form: str) -> gt.Graph:
    rng = np.random.default_rng(0)
    edges = {
        name: (rng.integers(0, SIZES[name[0]], n), rng.integers(0, SIZES[name[2]], n))
        for name, n in EDGES.items()
    }
    x = {
        name: rng.standard_normal((SIZES[name], width), dtype=np.float32)
        for name, width in WIDTHS.items()
    }
    papers = SIZES["paper"]
    graph = gt.Graph(
        edges,
        SIZES,
        x=x,
        y={"paper": rng.integers(0, 10, papers)},
        train={"paper": np.arange(papers) % 2 == 0},
        name="mag",
    ).with_inverse_relations()
    return (
        graph
        if form == "own widths"
        else graph.replace(x=graph.x.toarray())
        if form == "dense"
        else graph
    )


def run(form: str) -> dict[str, Any]:
    graph = graph_of(form)
    features = graph.x.tocsr() if form == "sparse" else graph.x
    bytes_of = (
        features.nbytes
        if form != "sparse"
        else sum(x.nbytes for x in (features.data, features.indices, features.indptr))
    )
    if form == "sparse":
        graph = with_sparse(graph, features)
    trainer = gt.Trainer("rgcn", graph, bases=2, hidden=64, dropout=0.0, keep=0)
    del features
    losses, seconds = [], []
    for epoch in range(7):
        began = process_time()
        losses.append(trainer.train_epoch(epoch))
        seconds.append(process_time() - began)
    return {
        "form": form,
        "features": bytes_of / MIB,
        "worker": trainer.partition.node.column("x").nbytes / MIB,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB,
        "seconds": median(seconds[2:]),
        "loss": losses[-1],
        "all": seconds[2:],
    }


def with_sparse(graph: gt.Graph, x: sp.csr_array) -> gt.Graph:
    """The graph with sparse features, which ``replace`` would make dense."""
    made: gt.Graph = graph.derived(x=x)
    return made


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--form", choices=FORMS, help="run this form alone, in this process")
    parser.add_argument("--out", type=Path, help="JSON lines, one per row")
    options = parser.parse_args()
    if options.form:
        print(json.dumps(run(options.form)))
        return 0
    rows = []
    for form in FORMS:
        done = subprocess.run(
            [sys.executable, str(HERE / "typed_features.py"), "--form", form],
            capture_output=True,
            text=True,
            check=True,
        )
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        if options.out:
            with options.out.open("a", encoding="utf-8") as f:
                f.write(json.dumps(rows[-1]) + "\n")
    print(table(rows, COLUMNS))
    return 0 if np.allclose([row["loss"] for row in rows], rows[0]["loss"], rtol=1e-4) else 1


if __name__ == "__main__":
    sys.exit(main())
