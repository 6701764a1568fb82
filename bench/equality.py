"""Random jobs on 1 rank and on 2 to 5: losses, metrics, parameters and predictions must be equal.

    python bench/equality.py                   200 jobs on simulated ranks
    python bench/equality.py --only 17         one of them
    python bench/equality.py --jobs 20 --mpi   on processes that mpiexec starts
    python bench/equality.py --draws typed     relations and types, whole graphs, triples and time
    python bench/equality.py --draws values    both kinds, with values of bfloat16

Features are drawn in some types; on several ranks they, and all other columns, may be those of a
store, and small graphs are computed as large ones are in half of the jobs: values are deferred, and
products are computed by tiles of a few rows (see ``equality_ways.py``). Their arrays end where a
page of memory ends, so that the process ends if a kernel reads or writes behind.

A job is drawn from --seed and its number (see ``equality_jobs.py`` and ``equality_typed.py``):
graph, targets, model and options, strategy, optimiser, node partitioner, edge placement, back end
and ranks. It trains in float64 for 2 to 4 epochs on one rank and on several. The loss of every
view, all metrics after every epoch, the parameters and statistics at the end, and the predictions
by original id are compared. A difference is the largest one in an array, relative to the largest
number in it; for parameters, relative to at least the learning rate, which is the size of a step of
Adam. AUC, average precision and MRR may move by 0.02, because rounding sets scores apart that are
equal in exact arithmetic (docs/metrics.md, "Rounding").

A job is at fault if it differs by more than 1e-9, or if its ranks do not have the same bits. There
is one exception. If a job on one rank also changes by more than 1e-9 when the last bits of its
initial weights change, then rounding errors determine its numbers on any number of ranks. Such a
job is listed as "sensitive", with the size of this change, and must not differ by more than 100
times as much. One such job in 20 is accepted: more of them would mean that a model has parameters
whose gradients are rounding errors. The exit code is 1 if a job is at fault or too many jobs are
sensitive.

Ranks of a job of ``--draws values`` add in another order, and so may round a number to its
neighbour. Only the loss of their first view is compared with that of one rank, to 2^-10, and what
each number of ranks trains is compared with the same job in float64: losses, predictions and
parameters may be 2^-5 from those, and further by eight times of what rounding the first weights to
bfloat16 changes there; by anything if that changes a number by more than the largest one.

If the program refuses a combination, another one is drawn, and the refusal is counted; all ranks
must refuse it with the same message.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equality_jobs
import equality_typed
import equality_values
import numpy as np
from equality_jobs import Plan
from equality_ways import as_large, with_features
from harness import THREAD_VARIABLES, machine, say, table

import graphtheta as gt
from graphtheta.cli.doctor import find_mpiexec
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.runtime.start import run_main, start
from graphtheta.errors import DataError, GraphThetaError
from graphtheta.ops.edge.backend.fused import backend_scope

# how often first weights are changed to see whether rounding decides, and how much further than
# that ranks may go
NUDGES, FURTHER = 5, 100
# how far rounded values may be from exact ones, in moves of weights by the last bit of a rounded
# number, and beyond
ROUNDED, FROM_EXACT, LAST_BIT = 8, 2**-5, 2**-8
# how far they may move, relative to the numbers, until distances say nothing any longer
CHAOTIC = 1.0
MOST_SENSITIVE = 1 / 20
ATTEMPTS = 50
WEIGHTS = "weights "
COLUMNS = [
    "job",
    "model",
    "strategy",
    "optimiser",
    "norm",
    "graph",
    "targets",
    "back end",
    "ranks",
    "placement",
    "features",
    "as large",
    "views",
    "refused",
    "difference",
    "of",
    "sensitive",
    "from exact",
    "note",
]
Numbers = dict[str, np.ndarray]
# the plans of each kind, and what draws them
DRAWS: dict[str, tuple[type[Plan], Callable[..., Plan]]] = {
    "plain": (Plan, equality_jobs.draw),
    "typed": (equality_typed.TypedPlan, equality_typed.draw),
    "values": (equality_values.ValuesPlan, equality_values.draw),
}


def numbers(comm: Comm, plan: Plan, nudge: int = 0, by: float | None = None) -> Numbers | str:
    """Train a job.

    Args:
        comm: The ranks.
        plan: The job.
        nudge: Changes the last bits of the first weights; 0 does not.
        by: Relative size of the change; by default that of the last bit.

    Returns:
        Everything that must not depend on the ranks, by name, on rank 0; or the words in which the
        job was refused.
    """
    try:
        # probabilities near 0 and 1 hide differences
        job = gt.Job(**plan.keys, scores="logits")
        graph = with_features(plan.made_graph(), plan.features, comm.size)
        if job.normalise_features == "standard":
            graph = graph.with_standardised_features()
        trainer = gt.Trainer(graph=graph, job=job.without_dataset(), comm=comm)
    except GraphThetaError as error:
        # ranks that are told of the error of another one say of which
        told = [
            re.sub(r": rank \d+: ", ": ", text)
            for text in comm.all_gather(f"{type(error).__name__}: {error}")
        ]
        return told[0] if len(set(told)) == 1 else f"ranks refuse in different words: {told}"
    if nudge:
        rng = np.random.default_rng(nudge)
        for p in trainer.setup.parameters:
            # biases begin at 0, and may stay there but for rounding
            moves = (by or np.finfo(p.dtype).eps) * rng.integers(-1, 2, p.shape)
            p.value = (p.value + moves * np.where(p.value == 0, 1, p.value)).astype(p.dtype)
    losses, rows = [], []
    for epoch in range(job.epochs):
        losses.append(
            comm.all_sum(trainer.training.run(epoch, 0, trainer.strategy.steps_per_epoch))
        )
        if not np.isfinite(losses[-1]).all():
            return (
                f"diverges: the loss of view {np.flatnonzero(~np.isfinite(losses[-1]))[0]} of epoch"
                f" {epoch} is not finite"
            )
        with backend_scope(job.backend):
            rows.append(trainer.measure())
    state = trainer.model.state() | learned_rows(trainer)
    bits = comm.all_gather(np.concatenate([x.reshape(-1) for x in state.values()]))
    found = {
        "loss": np.concatenate(losses),
        "ranks that differ": np.array(sum(b.tobytes() != bits[0].tobytes() for b in bits)),
    }
    found |= {name: np.array([row[name] for row in rows]) for name in rows[0]} | {
        WEIGHTS + name: x for name, x in state.items()
    }
    try:
        predicted = trainer.predict()
    except DataError:
        # the last updates made parameters that are too large
        return "diverges: predictions are not finite"
    if predicted is not None:
        found |= dict(zip(("ids", "predictions"), predicted, strict=True))
    return found


def learned_rows(trainer: gt.Trainer) -> Numbers:
    """The rows of learned features of all nodes, by name, on all ranks."""
    rows = ((table.name, table.masters, table.values()) for table in trainer.setup.tables)
    found = {}
    for name, masters, values in rows:
        ids, all_values = (np.concatenate(trainer.comm.all_gather(x)) for x in (masters, values))
        found[name] = all_values[np.argsort(ids)]
    return found


def on_ranks(size: int, plan: Plan, mpi: bool) -> Numbers | str:
    """The numbers of a job on so many ranks."""
    if mpi and size > 1:
        return on_processes(size, plan)
    with as_large(plan.is_large and size > 1):
        return run_simulated(size, numbers, plan)[0]


def on_processes(size: int, plan: Plan) -> Numbers | str:
    """The numbers of a job under mpiexec."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "numbers.npz")
        words = [
            find_mpiexec() or "mpiexec",
            "-n",
            size,
            sys.executable,
            __file__,
            "--child",
            out,
            "--draws",
            plan.draws,
            "--plan",
            json.dumps(vars(plan)),
        ]
        variables = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, "1")}
        done = subprocess.run(
            [str(word) for word in words],
            capture_output=True,
            text=True,
            check=False,
            env=variables,
        )
        if done.returncode:
            raise RuntimeError(
                f"mpiexec ended with status {done.returncode}: {done.stderr[-1000:]}"
            )
        with np.load(out) as file:
            found = dict(file)
    return str(found["refused"]) if "refused" in found else found


def child(path: Path, plan: Plan) -> int:
    """What each process of ``on_processes`` does."""
    comm = start()
    with as_large(plan.is_large):
        found = numbers(comm, plan)
    if comm.rank == 0:
        np.savez(path, **({"refused": np.array(found)} if isinstance(found, str) else found))
    return 0


# metrics of the order of scores, and how far scores that tie but for rounding may move them in
# small graphs
OF_ORDER = ("auc", "average_precision", "mrr")
TIED = 0.02


def difference(mine: Numbers, theirs: Numbers, lr: float) -> tuple[float, str]:
    """The largest relative difference of all arrays, and which array it is in."""
    worst = 0.0, ""
    for name, b in theirs.items():
        a = mine.get(name)
        if a is None or a.shape != b.shape or not np.array_equal(np.isnan(a), np.isnan(b)):
            return np.inf, name
        known = ~np.isnan(b)
        scale = max(np.abs(b[known]).max(initial=0), lr if name.startswith(WEIGHTS) else 0)
        apart = np.abs(a[known] - b[known]).max(initial=0)
        if name.endswith(OF_ORDER) and apart <= TIED:
            continue
        worst = max(worst, (float(apart / scale if scale else apart), name.removeprefix(WEIGHTS)))
    return worst


def sensitivity(plan: Plan, alone: Numbers, by: float | None = None) -> float:
    """How far the job on one rank moves if the last bits of its first weights change: the largest
    of a few times.
    """
    moved = [run_simulated(1, numbers, plan, nudge, by)[0] for nudge in range(1, NUDGES + 1)]
    return max(
        np.inf if isinstance(m, str) else difference(m, alone, plan.keys["lr"])[0] for m in moved
    )


def from_exact(exact: Plan, *rounded: Numbers) -> tuple[float, str, float]:
    """How far the numbers of a job on some ranks are from those of the same job with exact values,
    in which of them, and how far they may be.
    """
    smooth = {
        name: x
        for name, x in run_simulated(1, numbers, exact)[0].items()
        if name.startswith(WEIGHTS) or name in ("loss", "predictions")
    }
    far, of = max(difference(x, smooth, exact.keys["lr"]) for x in rounded)
    moved = sensitivity(exact, smooth, LAST_BIT) if far > FROM_EXACT else 0.0
    return far, of, ROUNDED * moved + FROM_EXACT if moved < CHAOTIC else np.inf


def before_updates(found: Numbers) -> Numbers:
    """The numbers that depend on the first weights only, and what all ranks must have in common."""
    return {"loss": found["loss"][:1], "ranks that differ": found["ranks that differ"]}


def accepted(
    seed: int, number: int, fused: float, mpi: bool, draws: str
) -> tuple[Plan, int, Numbers, Numbers]:
    """The first job of a number that the program does not refuse, how many it did refuse, and its
    numbers on one rank and on several.

    Raises:
        RuntimeError: One rank and several do not refuse alike.
    """
    for attempt in range(ATTEMPTS):
        plan = DRAWS[draws][1](seed, number, attempt, fused)
        alone, together = (on_ranks(size, plan, mpi) for size in (1, plan.ranks))
        if not isinstance(alone, str) and not isinstance(together, str):
            return plan, attempt, alone, together
        words = [x if isinstance(x, str) else "trains" for x in (alone, together)]
        # only several ranks can be too many for a graph
        if words[0] != words[1] and "start at most" not in words[1]:
            raise RuntimeError(
                f"attempt {attempt}: one rank: {words[0]}; {plan.ranks} ranks: {words[1]}"
            )
        say(f"job {number} is drawn again: {words[1]}")
    raise RuntimeError(f"{ATTEMPTS} combinations were refused")


def one(seed: int, number: int, fused: float, mpi: bool, draws: str = "plain") -> dict[str, Any]:
    """A row of the table."""
    try:
        plan, refused, alone, together = accepted(seed, number, fused, mpi, draws)
    except Exception as error:
        return {"job": number, "note": f"{type(error).__name__}: {error}"}
    exact = plan.exact()
    compared = [together, alone] if exact is None else map(before_updates, (together, alone))
    apart, of = difference(*compared, plan.keys["lr"])
    allowed = plan.allowed
    moved = sensitivity(plan, alone) if apart > allowed and of != "ranks that differ" else None
    good = apart <= allowed or (moved is not None and moved > allowed and apart <= FURTHER * moved)
    note = "" if good else "differs"
    far = None
    if good and exact is not None:
        far, of, bound = from_exact(exact, alone, together)
        note = f"more than {bound:.2g} from exact values" if far > bound else ""
    k = plan.keys
    return {
        "job": number,
        "model": k["model"],
        "strategy": k["strategy"],
        "optimiser": "momentum" if k.get("momentum") else k["optimiser"],
        "norm": k["norm"],
        "graph": plan.graph,
        "targets": plan.targets,
        "back end": k["backend"],
        "ranks": str(plan.ranks),
        "placement": f"{k['partitioner']} {k['masters']}",
        "features": plan.features,
        "as large": "yes" if plan.is_large else "",
        "views": str(len(alone["loss"])),
        "refused": str(refused),
        "difference": apart,
        "of": of,
        "sensitive": moved,
        "from exact": far,
        "note": note,
        "keys": plan.words(),
    }


def findings(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Figures over all jobs."""
    done = [row for row in rows if "difference" in row]
    plain = [row["difference"] for row in done if row["sensitive"] is None]
    figures = {
        "jobs": str(len(rows)),
        "combinations refused, by all ranks alike": str(sum(int(row["refused"]) for row in done)),
        "median difference": float(np.median(plain)) if plain else None,
        "largest difference": max(plain, default=None),
        "sensitive jobs": str(len(done) - len(plain)),
        "largest difference of these": max(
            (row["difference"] for row in done if row["sensitive"] is not None), default=None
        ),
        "largest difference from exact values": max(
            (row["from exact"] for row in done if row["from exact"] is not None), default=None
        ),
        "jobs at fault": str(sum(bool(row["note"]) for row in rows)),
    }
    return [{"finding": name, "value": value} for name, value in figures.items()]


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--jobs", type=int, default=200)
    options.add_argument("--draws", choices=tuple(DRAWS), default="plain", help="kind of jobs")
    options.add_argument("--seed", type=int, default=0, help="of all that is drawn")
    options.add_argument("--only", type=int, help="number of the one job to run")
    options.add_argument(
        "--fused", type=float, default=0.85, help="share of the jobs on the fused back end; 0.85"
    )
    options.add_argument(
        "--mpi", action="store_true", help="several ranks are processes under mpiexec"
    )
    options.add_argument("--out", type=Path, help="JSON lines, one per job")
    options.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options.add_argument("--plan", type=json.loads, help=argparse.SUPPRESS)
    options = options.parse_args()
    if options.child:
        return run_main(lambda: child(options.child, DRAWS[options.draws][0](**options.plan)))
    rows = []
    for number in range(options.jobs) if options.only is None else [options.only]:
        row = one(options.seed, number, options.fused, options.mpi, options.draws)
        rows.append(row)
        say(f"job {number}: {row.get('difference')} {row.get('of', '')} {row['note'] or 'good'}")
        if row["note"]:
            again = (
                f"python bench/equality.py --draws {options.draws} --seed {options.seed} --fused"
                f" {options.fused} --only {number}"
            )
            say(f"again: {again}{' --mpi' * options.mpi}\nkeys: {row.get('keys', '')}")
    found = findings(rows)
    print(table(rows, COLUMNS), "", table(found, ["finding", "value"]), sep="\n", flush=True)
    if options.out:
        with options.out.open("a", encoding="utf-8") as f:
            about = {
                "bench": "equality",
                "draws": options.draws,
                "seed": options.seed,
                "mpi": options.mpi,
                "machine": machine(),
            }
            f.writelines(json.dumps({**about, **row}) + "\n" for row in [*rows, *found])
    sensitive = sum(row.get("sensitive") is not None for row in rows)
    if sensitive > MOST_SENSITIVE * len(rows):
        say(f"{sensitive} of {len(rows)} jobs are decided by rounding errors")
    return int(any(row["note"] for row in rows) or sensitive > MOST_SENSITIVE * len(rows))


if __name__ == "__main__":
    sys.exit(main())
