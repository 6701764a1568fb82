"""What ``graphtheta plan`` predicts, against jobs that run.

    python bench/plan.py
    python bench/plan.py --graphs cora --workers 1 2 4 --out plan.jsonl

Each row is a job: a graph, a strategy, a mode and a number of workers, which are processes of this
machine. "memory" is the peak of the worker that needs most, "sent" the bytes of an epoch that the
ledgers of all workers count for halo moves, sums of gradients and making views, and "time" the
seconds of an epoch, without evaluation: of the clock, and of the processors of all workers, which
wait by polling. Both are of the shortest of 24 epochs, or of those of two seconds, because other
processes of the machine only lengthen them; "spread" says how much longer the median and the 90th
percentile are. Errors are predicted over measured, minus 1. All views are counted. The speed of the
machine is measured before each graph. Processes that compile kernels are run again, since they hold
more memory. Rows are written to --out as they are found.
"""
from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import asdict
from itertools import count
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from harness import FOLDER, say, table

import graphtheta as gt
from graphtheta.engine.runtime.start import run_main, start
from graphtheta.memory.bound import resident_bytes
from graphtheta.ops.compile.jit import n_compiled
from graphtheta.planning.machine import machine
from graphtheta.planning.plan import planned
from graphtheta.planning.skeleton import skeleton

GRAPHS: dict[str, tuple[str, dict[str, Any]]] = {
    "cora": ("cora", {"hidden": 64}),
    # read from a file: the generator takes more memory than the graph
    "rmat": (str(FOLDER / "plan-rmat.npz"), {"hidden": 128}),
    "amazon_photo": ("amazon_photo", {"hidden": 128}),
}
# all neighbours of a batch are most of such a graph
STRATEGIES: dict[str, dict[str, Any]] = {"global": {}, "mini": {"batch_size": 256, "fanout": "10,5"}, "cluster": {"clusters": 8}}
MEASURED = ("move", "reduce", "batch", "fetch")
PREDICTED = ("memory", "sent", "seconds", "processor")
RMAT = "rmat:scale=15,edge_factor=16,features=128,classes=16"
WARM, EPOCHS, LEAST_SECONDS = 2, 24, 2.0
BEGIN = "measured "
# runs of a process that compiles kernels
TRIES = 3
COLUMNS = ["graph", "strategy", "mode", "workers", "MB", "MB off", "sent", "sent off", "s", "spread", "s off", "cpu s", "cpu off"]


def job_of(graph: str, model: str, strategy: str, **keys: Any) -> gt.Job:
    """The job of a row."""
    dataset, own = GRAPHS[graph]
    return gt.Job(dataset=dataset, model=model, strategy=strategy, keep=0, **own, **STRATEGIES[strategy], **keys)


def write_rmat() -> None:
    """Write the file of the generated graph, if there is none."""
    path = Path(GRAPHS["rmat"][0])
    if not path.exists():
        graph = gt.load(RMAT)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, edge_index=graph.edge_index, **{name: getattr(graph, name) for name in ("x", "y", "train", "val", "test")})
    tell({}, 0)


def predict(graph: str, model: str, workers: list[int]) -> None:
    """Print the rows of a plan, as JSON."""
    start()
    jobs = [job_of(graph, model, strategy) for strategy in STRATEGIES]
    began = process_time()
    rows = planned(skeleton(jobs[0], gt.load(jobs[0].dataset)), jobs, workers, machine(), views=sys.maxsize)
    say(f"{graph}: planned in {process_time() - began:.1f} s of the processor")
    tell({"rows": [row.figures() for row in rows]}, n_compiled())


def calibrate() -> None:
    """Measure and print the speed of this machine, which plans read."""
    start()
    began, used = perf_counter(), process_time()
    found = machine(again=True)
    say(f"calibrated in {perf_counter() - began:.1f} s, of which {process_time() - used:.1f} s of the processor of this process")
    tell(asdict(found), 0)


def measure(graph: str, model: str, strategy: str, mode: str) -> int:
    """Train a little, on all ranks, and print what rank 0 found, as JSON."""
    comm = start()
    trainer = gt.Trainer(job=job_of(graph, model, strategy, **({"mode": mode} if mode else {})), comm=comm)
    clock, processor, sent = [], [], 0.0
    start_of_all = perf_counter()
    for epoch in count():
        if comm.broadcast(epoch >= WARM + EPOCHS and perf_counter() - start_of_all > LEAST_SECONDS, 0):
            break
        comm.barrier()
        before, began, used = comm.ledger.snapshot(), perf_counter(), process_time()
        trainer.train_epoch(epoch)
        clock.append(perf_counter() - began)
        processor.append(process_time() - used)
        if epoch == 0:
            since = comm.ledger.since(before)
            sent = sum(since[stage]["bytes"] for stage in MEASURED)
    least, middle, most = np.percentile(clock[WARM:], [0, 50, 90]).tolist()
    every = comm.all_gather([resident_bytes(), sent, least, min(processor[WARM:]), n_compiled()])
    if comm.rank == 0:
        memory, bytes_, seconds, used, compiled = zip(*every, strict=True)
        found = {"memory": max(memory), "sent": int(sum(bytes_)), "seconds": max(seconds), "processor": sum(used),
                 "spread": [middle / least - 1, most / least - 1]}
        tell(found, sum(compiled))
    return 0


def tell(found: dict[str, Any], compiled: int) -> None:
    """Print what ``answer`` reads, with the number of kernels that were compiled."""
    print(BEGIN + json.dumps({**found, "compiled": compiled}), flush=True)


def answer(*words: object, workers: int = 1) -> Any:
    """What this script prints as JSON, run in processes of its own; again where they have compiled kernels."""
    command = [sys.executable, __file__, *map(str, words)]
    command = ["mpiexec", "-n", str(workers), *command] if workers > 1 else command
    for _ in range(TRIES):
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=900)
        found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith(BEGIN))[len(BEGIN):])
        if not found["compiled"]:
            break
    return found


def compared(graph: str, model: str, row: dict[str, Any]) -> dict[str, Any]:
    """A row of the table."""
    found = answer("--measure", graph, model, row["strategy"], row["mode"] or "-", workers=row["workers"])
    off = {name: row[name] / found[name] - 1 if found[name] else float(row[name] != 0) for name in PREDICTED}
    ways = {name: row[name] for name in ("strategy", "mode", "workers")}
    return {"graph": graph, **ways, "exact": row["counted"] == row["views"], "predicted": row, "measured": found,
            "MB": found["memory"] / 2**20, "MB off": f"{off['memory']:+.0%}",
            "sent": found["sent"] / 1e6, "sent off": f"{off['sent']:+.1%}",
            "s": found["seconds"], "spread": "{:+.0%} {:+.0%}".format(*found["spread"]), "s off": f"{off['seconds']:+.0%}",
            "cpu s": found["processor"], "cpu off": f"{off['processor']:+.0%}"}


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--graphs", nargs="+", choices=GRAPHS, default=list(GRAPHS))
    options.add_argument("--model", default="gcn")
    options.add_argument("--workers", nargs="+", type=int, default=[1, 2])
    options.add_argument("--out", type=Path, help="JSON lines, one per row")
    options.add_argument("--write", action="store_true", help=argparse.SUPPRESS)
    options.add_argument("--calibrate", action="store_true", help=argparse.SUPPRESS)
    options.add_argument("--predict", nargs="+", help=argparse.SUPPRESS)
    options.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    options = options.parse_args()
    if options.write:
        write_rmat()
        return 0
    if options.calibrate:
        calibrate()
        return 0
    if options.predict:
        predict(*options.predict[:2], list(map(int, options.predict[2:])))
        return 0
    if options.measure:
        return run_main(lambda: measure(*(word if word != "-" else "" for word in options.measure)))
    answer("--write")
    rows = []
    for graph in options.graphs:
        speed = answer("--calibrate")
        for row in answer("--predict", graph, options.model, *options.workers)["rows"]:
            rows.append(compared(graph, options.model, row))
            say(" ".join(str(rows[-1][name]) for name in COLUMNS))
            if options.out:
                with options.out.open("a", encoding="utf-8") as f:
                    f.write(json.dumps({"bench": "plan", **rows[-1], "machine": speed}) + "\n")
    print(table(rows, COLUMNS), flush=True)
    wrong = [row for row in rows if row["exact"] and row["predicted"]["sent"] != row["measured"]["sent"]]
    return 0 if not wrong else "bytes that were counted exactly are not those sent"


if __name__ == "__main__":
    sys.exit(main())
