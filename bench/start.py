"""Time to the first step: import, cold start with no compiled kernel, warm start with all on disk.

    python bench/start.py                            gcn, sage, gat, gat_e on the small graph
    python bench/start.py --models gcn --graph reddit

"build" is imports, partition and model, from arrays in memory; "first" is the first epoch, "steady"
the later ones. "extra" is build plus first minus steady: the cost of a start besides the step.
"processor" is what all threads used for build and first, the least of all rounds, which tells
versions apart on a machine that others use, too.
"""

from __future__ import annotations

import subprocess
import sys
from statistics import median
from time import perf_counter
from typing import Any

from harness import Contender, finish, parser, race, say, script
from inputs import HELP, graph_file

MODELS = ("gcn", "sage", "gat", "gat_e")
COLUMNS = ["model", "contender", "build", "first", "steady", "extra", "processor", "GiB", "note"]


def import_seconds(rounds: int) -> float:
    """``import graphtheta`` in a new interpreter, less the interpreter."""

    def taken(code: str) -> float:
        began = perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return perf_counter() - began

    return median(taken("import graphtheta") - taken("pass") for _ in range(rounds))


def row_of(model: str, c: Contender) -> dict[str, Any]:
    """Medians of one state of a model."""
    build, first, steady = (c.median(case) for case in ("build", "first", "steady"))
    extra = None if build is None or first is None or steady is None else build + first - steady
    return {
        "model": model,
        "contender": c.name,
        "build": build,
        "first": first,
        "steady": steady,
        "extra": extra,
        "processor": min(c.seconds.get("processor", []), default=None),
        "GiB": c.peak / 2**30,
        "note": c.error,
        "seconds": first,
        "label": f"{model} {c.name}",
        "version": c.version,
    }


def main() -> int:
    options = parser(__doc__, rounds=3)
    options.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    options.add_argument("--graph", default="small", help=f"{HELP}; small")
    options = options.parse_args()
    graph = graph_file(options.graph, options.folder)
    rows = []
    findings = [{"finding": "import graphtheta, seconds", "value": import_seconds(options.rounds)}]
    cache = options.folder / "kernels"
    for model in options.models:
        cold, warm = (
            Contender(state, script("own", "start", state, model, graph, cache))
            for state in ("cold", "warm")
        )
        say(f"{model} on {graph.stem}")
        # its only purpose is to leave the kernels on disk
        Contender("filling", warm.command).run(options.threads)
        race([cold, warm], options.rounds, options.threads)
        rows += [row_of(model, cold), row_of(model, warm)]
    return finish(options, rows, COLUMNS, [], findings, bench="start", graph=graph.stem)


if __name__ == "__main__":
    sys.exit(main())
