"""Parts of the time of a mini-batch step on one worker: loops, products, arrays, interpreter.

    python bench/step.py
    python bench/step.py --only cora --steps 200 --out step.jsonl
    python bench/step.py --limits --steps 5      parts beside their limits, at Reddit size

The interpreter's share is the time of a step without compiled loops, products and elementwise array
functions: making views, looking up programs, the tape, the optimiser. It is measured in processor
time of the main thread, which other programs on the machine do not increase, and must be below
--most. The other parts are wall time.

With --limits, the parts of full-batch epochs and of a sampled step are printed beside the least
time that they could take: their operations at the rate of independent multiply-adds, or their bytes
at the bandwidth of a triad, both measured in the same run, by the formulae of ``graphtheta plan``.
These assume that no cache holds anything, so sums over edges may take less. The interpreter has no
limit.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time, thread_time
from typing import Any

import numpy as np
from harness import table
from own.products import peak
from own.triad import triad

import graphtheta as gt
from graphtheta.engine.comm.ledger import Ledger
from graphtheta.inspect.planning.placement import Placement
from graphtheta.inspect.planning.skeleton import skeleton
from graphtheta.inspect.planning.work import (
    COMBINED,
    DRAWN,
    EDGES,
    LISTED,
    NODES,
    PRODUCT,
    SPARSE,
    UPDATE_PASSES,
    copies_features,
    work_of,
)

SAMPLED = {
    "strategy": "mini",
    "model": "sage",
    "layers": 2,
    "hidden": 128,
    "batch_size": 1024,
    "fanout": "10,10",
    "split": "fraction",
}
# features as wide as Reddit's; measured only if asked for, since arrays take longer than --most
WIDE = {**SAMPLED, "layers": 3, "hidden": 256, "fanout": "15,10,5"}
RUNS: dict[str, dict] = {
    "cora": {"dataset": "cora", "model": "gcn", "strategy": "mini", "batch_size": 70},
    "rmat 16": {**SAMPLED, "dataset": "rmat:scale=16,features=64"},
    "rmat 18": {**SAMPLED, "dataset": "rmat:scale=18,edge_factor=20,features=64,classes=41"},
    # GIN with bonds of the Open Graph Benchmark: batches of small graphs
    "molecules": {
        "dataset": "mol_tox21:level=graphs",
        "model": "gine",
        "layers": 5,
        "hidden": 300,
        "train_eps": True,
        "norm": "batch",
        "readout": "mean",
        "strategy": "mini",
        "batch_size": 32,
        "dropout": 0.5,
        "lr": 0.001,
        "weight_decay": 0.0,
    },
    "wide 16": {**WIDE, "dataset": "rmat:scale=16,edge_factor=20,features=602,classes=41"},
    "wide 18": {**WIDE, "dataset": "rmat:scale=18,edge_factor=20,features=602,classes=41"},
}
KINDS = ("kernels", "products", "arrays", "other")
FULL = {
    "strategy": "global",
    "layers": 2,
    "hidden": 128,
    "split": "fraction",
}
# of them the graph is given by its scale; 18 is about Reddit's size
LIMITED_GRAPH = "rmat:scale={},edge_factor=22,features=602,classes=41"
LIMITED: dict[str, dict] = {
    "gcn": {**FULL, "model": "gcn"},
    "sage": {**FULL, "model": "sage"},
    "gat": {**FULL, "model": "gat", "hidden": 32, "heads": 4},
    "sampled": SAMPLED,
}
# further kinds, which are parts of others where these are printed alone
WITHIN = {"rows": "arrays", "optimiser": "other"}
# the part of a kernel or of array functions, by the stage of the ledger
OF_STAGE = {"gather": "sums over edges", "batch": "sampling", "fetch": "feature rows"}
PARTS = (
    "products",
    "sums over edges",
    "elementwise",
    "sampling",
    "feature rows",
    "optimiser",
    "interpreter",
    "evaluation",
)
# elements of each array of the triad, more than caches hold, and times that it runs
ELEMENTS = 1 << 25
TIMES = 5


class Split:
    """Seconds of the main thread by kind and by stage of a ledger; time in a wrapped call belongs
    to the innermost one.
    """

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.clear()

    def clear(self) -> None:
        """Start anew, outside of every wrapped call."""
        self._seconds: dict[tuple[str, str], float] = {}
        self._kind = "other"
        self._stage = "other"
        self._clock = thread_time
        self._since = self._clock()

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by kind."""
        found = dict.fromkeys(KINDS, 0.0)
        for (kind, _), seconds in self._seconds.items():
            found[WITHIN.get(kind, kind)] += seconds
        return found

    @property
    def parts(self) -> dict[str, float]:
        """Seconds by part of a step."""
        found = dict.fromkeys(PARTS, 0.0)
        named = {"other": "interpreter", "rows": "feature rows"}
        for (kind, stage), seconds in self._seconds.items():
            ours = kind in ("kernels", "arrays")
            part = OF_STAGE.get(stage, "elementwise") if ours else named.get(kind, kind)
            found[part] += seconds
        return found

    def switch(self, kind: str) -> str:
        """Book the time so far and go on under another kind; returns the one before."""
        before = self._kind
        key = before, self._stage
        self._seconds[key] = self._seconds.get(key, 0.0) + self._clock() - self._since
        self._kind = kind
        self._stage = self.ledger.current
        self._clock = thread_time if kind == "other" else perf_counter
        self._since = self._clock()
        return before

    def timed(self, kind: str, call: Callable) -> Callable:
        """A function that books its time under a kind."""

        def run(*args: Any, **options: Any) -> Any:
            # these run their blocks on the pool of compiled loops
            if threading.current_thread() is not threading.main_thread() or self._kind in (
                "products",
                *WITHIN,
            ):
                return call(*args, **options)
            before = self.switch(kind)
            try:
                return call(*args, **options)
            finally:
                self.switch(before)

        return run

    def watch(self) -> None:
        """Wrap compiled loops, primitives, aggregators and sums of gradients; once all that a step
        needs is compiled.
        """
        from numba.core.dispatcher import Dispatcher

        from graphtheta.engine.store.store import ColumnStore, PrefixReader
        from graphtheta.ops.autodiff.gradients import Gradients
        from graphtheta.ops.autodiff.primitive import PRIMITIVES
        from graphtheta.ops.autodiff.stored import StoredRows
        from graphtheta.ops.edge import aggregator
        from graphtheta.ops.optimisers.optim import Optimiser
        from graphtheta.ops.parallel.pool import run_blocks, run_threads

        for module in [m for name, m in sys.modules.items() if name.startswith("graphtheta.")]:
            for name, value in list(vars(module).items()):
                if value is run_blocks or value is run_threads or isinstance(value, Dispatcher):
                    setattr(module, name, self.timed("kernels", value))
        for p in PRIMITIVES.values():
            kind = "products" if p.traits.contraction else "arrays"
            p.forward = self.timed(kind, p.forward)
            p.rules = {name: rule and self.timed(kind, rule) for name, rule in p.rules.items()}
        owners = [
            (c, ("start", "finish", "backward_state", "merge"))
            for c in vars(aggregator).values()
            if isinstance(c, type)
        ]
        for owner, names in [*owners, (Gradients, ("add",))]:
            for name in set(names) & set(vars(owner)):
                setattr(owner, name, self.timed("arrays", vars(owner)[name]))
        Optimiser.step = self.timed("optimiser", Optimiser.step)
        for reader in (ColumnStore, PrefixReader):
            reader.read = self.timed("rows", reader.read)
        StoredRows._copy = self.timed("rows", StoredRows._copy)


def trained(keys: dict, steps: int) -> tuple[gt.Trainer, Callable[[], Any]]:
    """A trainer that has compiled everything, and a function that runs its next step and returns
    the view.
    """
    trainer = gt.Trainer(job=gt.Job(**keys))
    strategy = trainer.strategy

    def step() -> Any:
        with trainer.comm.ledger.stage("batch"):
            view = strategy.batch(*divmod(trainer.step, strategy.steps_per_epoch))
        trainer.training.update(view)
        return view

    for _ in range(max(3, steps // 10)):
        step()
    return trainer, step


def measure(trainer: gt.Trainer, step: Callable[[], Any], steps: int, split: Split) -> dict:
    """Medians over some steps, in milliseconds, and the sizes and orders of products and sums of
    the last view.
    """
    rows = []
    view = None
    for _ in range(steps):
        split.clear()
        began = perf_counter()
        view = step()
        seconds = perf_counter() - began
        split.switch("other")
        rows.append({kind: 1000 * s for kind, s in {"step": seconds, **split.seconds}.items()})
    assert view is not None
    return {
        **{kind: median(row[kind] for row in rows) for kind in rows[0]},
        "nodes": [level.n_in for level in view.levels] + [view.n_targets],
        "edges": [level.n_edges for level in view.levels],
        "order": [
            layer.order(level.counts)
            for layer, level in zip(trainer.probe.summing, view.levels, strict=True)
        ],
    }


def speeds() -> tuple[float, float]:
    """Multiply-adds, two operations each, and bytes of a triad, that all threads do in a second."""
    arrays = [np.full(ELEMENTS, x, np.float32) for x in (0, 1, 2)]
    seconds = []
    for _ in range(TIMES + 1):
        began = perf_counter()
        triad(*arrays, np.float32(3))
        seconds.append(perf_counter() - began)
    return max(peak(TIMES)), 3 * arrays[0].nbytes / min(seconds)


def limits(trainer: gt.Trainer, keys: dict, rate: float, bandwidth: float) -> dict[str, float]:
    """Milliseconds that the parts of the first step take at least; parts without a limit are left
    out.

    Args:
        trainer: Of the job.
        keys: The keys of the job.
        rate: Operations in a second.
        bandwidth: Bytes in a second.
    """
    job = gt.Job(**keys)
    held = skeleton(job, gt.load(job.dataset, split=job.split))
    view = held.strategy(job).batch(0, 0)
    placed = Placement.of(held.graph, 1, "1d-src", "hash", job.seed)
    work = work_of(held, view, placed)
    total = work.load.total
    updated = UPDATE_PASSES * held.probe.parameters * np.dtype(job.dtype).itemsize
    copies = work.searched and copies_features(held, work.dry_run)
    copied = 2 * held.feature_bytes * int(work.nodes.sum()) if copies else 0
    bytes_of = {
        "sums over edges": total[EDGES],
        "elementwise": total[[NODES, DRAWN, COMBINED]].sum() - updated - copied,
        # rows, positions and marks of each listed edge
        "sampling": 40 * total[LISTED],
        "feature rows": copied,
        "optimiser": updated,
    }
    seconds = {part: n / bandwidth for part, n in bytes_of.items() if n > 0}
    seconds["products"] = total[[PRODUCT, SPARSE]].sum() / rate
    if not work.searched:
        # a pass without gradients: one of three, and the first layer has two
        seconds["evaluation"] = (sum(seconds.values()) - seconds["optimiser"]) / 3
    return {part: 1000 * s for part, s in seconds.items()}


def limited(names: list[str], scale: int, steps: int, out: Path | None) -> None:
    """Print the parts of steps beside their limits."""
    runs = {name: {**LIMITED[name], "dataset": LIMITED_GRAPH.format(scale)} for name in names}
    rate, bandwidth = speeds()
    print(f"{rate / 1e9:.0f} GF/s, {bandwidth / 1e9:.1f} GB/s", flush=True)
    ready = {name: trained(keys, steps) for name, keys in runs.items()}
    split = Split()
    split.watch()
    for name, (trainer, step) in ready.items():
        split.ledger = trainer.comm.ledger
        each = []
        used = []
        for _ in range(steps):
            split.clear()
            began = process_time()
            step()
            split.switch("other")
            used.append(process_time() - began)
            each.append(split.parts)
        parts = {part: 1000 * median(x[part] for x in each) for part in PARTS}
        # the first pass without gradients loads kernels of its own
        trainer.measure()
        began = perf_counter()
        trainer.measure()
        parts["evaluation"] = 1000 * (perf_counter() - began)
        least = limits(trainer, runs[name], rate, bandwidth)
        rows = [
            {
                "run": name,
                "part": part,
                "ms": ms,
                "limit": least.get(part),
                "of the limit": ms / least[part] if part in least else None,
            }
            for part, ms in parts.items()
        ]
        print(f"{name}: {1000 * median(used):.0f} ms of the processors a step", flush=True)
        print(table(rows, ["part", "ms", "limit", "of the limit"]), flush=True)
        if out:
            with out.open("a", encoding="utf-8") as f:
                f.writelines(
                    json.dumps({"bench": "limits", **row, "rate": rate, "bandwidth": bandwidth})
                    + "\n"
                    for row in rows
                )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--limits", action="store_true", help="parts beside their limits")
    parser.add_argument("--scale", type=int, default=18, help="of the graph of --limits; 18")
    parser.add_argument("--only", nargs="+", choices=[*RUNS, *LIMITED])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument(
        "--most",
        type=float,
        default=5.0,
        help="milliseconds a step may take outside of loops, products and arrays",
    )
    parser.add_argument("--out", type=Path, help="JSON lines, one per workload")
    options = parser.parse_args()
    if options.limits:
        limited(options.only or list(LIMITED), options.scale, options.steps, options.out)
        return 0
    only = options.only or [name for name in RUNS if "wide" not in name]
    ready = {name: trained(RUNS[name], options.steps) for name in only}
    split = Split()
    split.watch()
    print(
        f"{'milliseconds':14}" + "".join(f"{name:>10}" for name in ("step", *KINDS)) + "   edges",
        flush=True,
    )
    slow = []
    for name, (trainer, step) in ready.items():
        row = measure(trainer, step, options.steps, split)
        print(
            f"{name:14}"
            + "".join(f"{row[kind]:10.2f}" for kind in ("step", *KINDS))
            + f"   {row['edges']}",
            flush=True,
        )
        print(
            "".join(
                f"{'':14}layer {i}: {line}\n"
                for i, lines in enumerate(row["order"], 1)
                for line in lines
            ),
            end="",
            flush=True,
        )
        slow += [name] * (row["other"] > options.most)
        if options.out:
            with options.out.open("a", encoding="utf-8") as f:
                f.write(json.dumps({"run": name, **row}) + "\n")
    return f"more than {options.most} ms outside of loops: {', '.join(slow)}" if slow else 0


if __name__ == "__main__":
    sys.exit(main())
