"""Parts of the time of a mini-batch step on one worker: loops, products, arrays, interpreter.

    python bench/step.py
    python bench/step.py --only cora --steps 200 --out step.jsonl

The interpreter's share is the time of a step without compiled loops, products and elementwise array
functions: making views, looking up programs, the tape, the optimiser. It is measured in processor
time of the main thread, which other programs on the machine do not increase, and must be below
--most. The other parts are wall time.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, thread_time
from typing import Any

import graphtheta as gt

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


class Split:
    """Seconds of the main thread by kind; time in a wrapped call belongs to the innermost one."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Start anew, outside of every wrapped call."""
        self.seconds = dict.fromkeys(KINDS, 0.0)
        self._kind = "other"
        self._clock = thread_time
        self._since = self._clock()

    def switch(self, kind: str) -> str:
        """Book the time so far and go on under another kind; returns the one before."""
        before = self._kind
        self.seconds[before] += self._clock() - self._since
        self._kind = kind
        self._clock = thread_time if kind == "other" else perf_counter
        self._since = self._clock()
        return before

    def timed(self, kind: str, call: Callable) -> Callable:
        """A function that books its time under a kind."""

        def run(*args: Any, **options: Any) -> Any:
            # a product runs its blocks on the pool of compiled loops
            if (
                threading.current_thread() is not threading.main_thread()
                or self._kind == "products"
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

        from graphtheta.ops.autodiff.primitive import PRIMITIVES
        from graphtheta.ops.autodiff.tape import Gradients
        from graphtheta.ops.edge import aggregator
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


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", choices=RUNS, default=[name for name in RUNS if "wide" not in name]
    )
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument(
        "--most",
        type=float,
        default=5.0,
        help="milliseconds a step may take outside of loops, products and arrays",
    )
    parser.add_argument("--out", type=Path, help="JSON lines, one per workload")
    options = parser.parse_args()
    ready = {name: trained(RUNS[name], options.steps) for name in options.only}
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
