"""Predictions for all nodes of facebook100 within a memory limit, against those without one.

    python bench/layerwise.py
    python bench/layerwise.py --limit 4 --hidden 16

A GAT of 3 layers in float64 runs over 870,056 nodes and 66.6 million edges, which are a store, on
one worker. With the limit, the system refuses the process more memory (RLIMIT_DATA), and
``--inference-memory`` divides the pass into blocks. "built" and "predicted" are the peaks in MiB of
what the process allocated until the graph was ready, and in the prediction; "graph" are the bytes
of the partition, and "processor" is in seconds. Both predictions must agree to 1e-9.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from disk import store_of
from harness import Contender, finish, parser, race, script

# free arrays are returned to the system at once, and not kept for threads
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20), "MALLOC_ARENA_MAX": "1"}
COLUMNS = ["contender", "by blocks", "graph", "built", "predicted", "seconds", "processor", "note"]


def row_of(c: Contender) -> dict[str, Any]:
    """Figures of a run."""
    mib = {
        name: c.figures[name] / 2**20
        for name in ("graph", "built", "predicted")
        if name in c.figures
    }
    return {
        "contender": c.name,
        "by blocks": str(c.figures.get("limited", "")),
        **mib,
        "seconds": c.median("predict"),
        "processor": c.figures.get("processor"),
        "label": c.name,
        "note": c.error,
        "version": c.version,
    }


def main() -> int:
    options = parser(__doc__, rounds=1)
    options.add_argument("--limit", type=float, default=4.0, metavar="GiB", help="4")
    options.add_argument("--hidden", type=int, default=16, help="values of a node; 16")
    options = options.parse_args()
    store = store_of("facebook100:target=year", "stored", options.folder)
    files = {name: options.folder / f"layerwise-{name}.npy" for name in ("whole", "limited")}
    runs = [
        Contender(
            name,
            script("own", "layerwise", store, gib, files[name], options.hidden),
            {"TMPDIR": str(options.folder), **MALLOC},
        )
        for name, gib in (("limited", options.limit), ("whole", 0))
    ]
    race(runs, options.rounds, options.threads)
    faults = [c.error for c in runs if c.error]
    findings = []
    if not faults:
        whole, limited = (
            np.load(file, mmap_mode="r") for file in (files["whole"], files["limited"])
        )
        error = float(np.abs(whole - limited).max() / np.abs(whole).max())
        findings = [
            {"finding": "largest difference, relative to the largest prediction", "value": error}
        ]
        faults = [f"predictions differ by {error:.1e}"] if not error <= 1e-9 else []
    return finish(
        options,
        [row_of(c) for c in runs],
        COLUMNS,
        faults,
        findings,
        bench="layerwise",
        limit=options.limit,
        hidden=options.hidden,
    )


if __name__ == "__main__":
    sys.exit(main())
