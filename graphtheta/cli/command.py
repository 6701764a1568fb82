"""The commands that work on graphs and models. Each reads its flags, and returns the program that
all ranks run together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from math import nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import graphtheta
from graphtheta.base.atomic import BEGINNINGS, write_json
from graphtheta.base.console import amount, figure, pairs, say, table
from graphtheta.base.logger import logger, start_logging
from graphtheta.cli.rounding import halo_error
from graphtheta.cli.warmup import jobs_of, warm_up
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.runtime.start import Program, start
from graphtheta.errors import ConfigError, DataError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.store.reader import check_store
from graphtheta.inference.grown.trained import EARLIER_POSITIVE, Trained
from graphtheta.ops.compile.cache import cache_folder
from graphtheta.run.checkpoints.progress import Result
from graphtheta.run.checkpoints.run_folder import placed, seed_jobs
from graphtheta.run.checkpoints.weights import WEIGHTS
from graphtheta.run.dividing import choose_pair, divide
from graphtheta.run.job.flag import Parser
from graphtheta.run.job.help import number_from
from graphtheta.run.job.job import Job
from graphtheta.run.job.run_files import RESULT_FILE
from graphtheta.run.log.runlog import RunLog
from graphtheta.run.memory.bound import MemoryBound
from graphtheta.tasks.kinds.imbalance import RARER
from graphtheta.tasks.triples.report import relation_report, report_text
from graphtheta.train.loop.opened import check_own_run, job_of
from graphtheta.train.loop.prepare import load_graph
from graphtheta.train.loop.recorded import lines_about, positive_entry


def parser_of_train() -> Parser:
    """The flags of the command."""
    parser = Parser(
        "train",
        "Train a model; without flags, a small built-in job.",
        "mpiexec -n 2 graphtheta train --dataset cora --model gcn --strategy mini --batch-size 140",
    )
    parser.add_job_keys()
    return parser


def train(argv: list[str]) -> Program:
    """Train a model, once or with several seeds.

    Args:
        argv: Flags.
    """
    _, keys = parser_of_train().read(argv)
    job = Job(**keys)

    def work(comm: Comm) -> None:
        run = placed(job, comm)
        results = [train_once(one, comm) for one in seed_jobs(run)]
        if comm.rank == 0 and job.seeds > 1:
            report_seeds(run, results, comm.size)

    return on_all_ranks(job, work)


def report_seeds(job: Job, results: Sequence[Result], ranks: int) -> None:
    """Show and write the metrics of runs that differ in their seeds."""
    names = dict.fromkeys(name for result in results for name in result.metrics)
    # a split by chance may be empty with some seeds
    values = {name: [result.metrics.get(name, nan) for result in results] for name in names}
    rows = [
        (name, *(figure(float(of(v))) for of in (np.mean, partial(np.std, ddof=1), np.min, np.max)))
        for name, v in values.items()
    ]
    say(
        f"\n{job.seeds} seeds, saved in {job.folder}\n"
        + table(("metric", "mean", "deviation", "lowest", "highest"), rows)
    )
    positive = sorted({result.positive for result in results})
    if len(positive) > 1:
        logger.warning(
            f"the positive class differs between the seeds ({', '.join(positive)}), so "
            "means of f1, auc and average_precision mix both; choose one with --positive"
        )
    say_positive(", ".join(positive))
    say_sampled(job)
    record = {
        "seeds": job.seeds,
        "metrics": values,
        "ranks": ranks,
        **positive_entry(", ".join(positive)),
        **job.evaluation_entry,
    }
    write_json(job.folder / RESULT_FILE, record, BEGINNINGS["result"], "the results")


def train_once(job: Job, comm: Comm) -> Result:
    """Train with one seed; weights and metrics are in the job's folder afterwards.

    A resumed run that had already finished is not changed.

    Collective: all ranks of comm.
    """
    trainer = graphtheta.Trainer(job=job, comm=comm)
    job = trainer.job
    say_on_first(comm, *_choices(trainer))
    with RunLog(job, comm, trainer.setup.metric, "lines") as log:
        result = trainer.fit(log)
        if not log.written:
            say_on_first(
                comm,
                f"{job.folder} holds a finished run; nothing was changed. To train it further,"
                " give more --epochs",
            )
            return result
        log.finish()
    shown = ", ".join(
        f"{name.replace('_', ' ')} {figure(value)}"
        for name, value in result.metrics.items()
        if name.partition("_")[2] == trainer.setup.metric
    )
    nothing = f"no {trainer.setup.metric}, as no split has anything to measure"
    best = f"best epoch {result.best_epoch}: {shown or nothing}; saved in {job.folder}"
    say_on_first(comm, *lines_about(trainer), best)
    if comm.rank == 0:
        say_positive(result.positive)
        say_sampled(job)
    return result


def _choices(trainer: graphtheta.Trainer) -> list[str]:
    """What was chosen before training, a line each, on rank 0; some may be empty.

    Collective: all ranks of the trainer.
    """
    setup = trainer.setup
    lines = [
        setup.strategy_line,
        setup.pair.reason,
        "" if setup.saving is None else str(setup.saving),
        setup.mode_line,
        trainer.caches.line,
        "" if trainer.macrobatches is None else trainer.macrobatches.line,
    ]
    if trainer.job.halo != "exact":
        lines.append(
            f"halo={trainer.job.halo}: rounding changes the loss of the first step by a relative"
            f" {halo_error(trainer):.1e}"
        )
    return lines


def parser_of_evaluate() -> Parser:
    """The flags of the command."""
    parser = Parser(
        "evaluate",
        "Compute metrics of a finished run, on its graph, or with --dataset on another one. Job"
        " flags override the keys of the run.",
        "mpiexec -n 2 graphtheta evaluate runs/sbm-gcn-global",
        "RUN ",
    )
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    parser.add_argument(
        "--on",
        metavar="{train,val,test}",
        choices=("train", "val", "test"),
        help="evaluate this split only",
    )
    parser.add_argument(
        "--classes",
        action="store_true",
        help="also show precision, recall, F1 and support of each class",
    )
    add_trust(parser)
    parser.add_argument(
        "--relations",
        action="store_true",
        help="also show ranks by relation, for heads and tails, of the task triple",
    )
    parser.add_job_keys(short=False)
    return parser


def evaluate(argv: list[str]) -> Program:
    """Compute metrics of a finished run.

    Args:
        argv: Run folder and flags.
    """
    options, keys = parser_of_evaluate().read(argv)
    job = job_of(options.run, keys, options.trust)

    def work(comm: Comm) -> None:
        trainer = opened(job, options, keys, comm)
        scores = {
            split: trainer.evaluate(split)
            for split in ([options.on] if options.on else ["train", "val", "test"])
        }
        scores = {split: s for split, s in scores.items() if s}
        if not scores:
            # a run is not measured on its graph with another split
            own = "dataset" not in keys
            graph = f"the graph of {options.run}" if own else job.dataset
            raise DataError(
                f"{graph} has no labelled nodes, edges or links in {options.on or 'any split'};"
                f" choose another {'--on or --dataset' if own else '--on or --split'}"
            )
        ranked = [split for split in scores if split != "train"] if options.relations else []
        if options.relations and not ranked:
            raise ConfigError(
                "--relations shows ranks of triples that are held out, and train has none; choose"
                " another --on, or drop --relations"
            )
        if comm.rank == 0:
            names = [name.partition("_")[2] for name in next(iter(scores.values()), {})]
            say(
                table(
                    ("split", *names),
                    [(split, *map(figure, s.values())) for split, s in scores.items()],
                )
            )
            say_positive(trainer.positive)
            say_sampled(job)
        if options.classes:
            report = trainer.class_report()
            for split in scores if comm.rank == 0 else ():
                say(
                    f"\n{split}\n{report.text(split)}"
                    if split in report.splits
                    else "\nthe task has no classes"
                )
            if comm.rank == 0 and report.thresholds:
                say(f"\nthresholds: {', '.join(map(figure, report.thresholds))}")
        for split in ranked:
            relations = relation_report(trainer, split)
            if comm.rank == 0:
                say(f"\n{split}\n{report_text(relations)}")

    return on_all_ranks(job, work)


def parser_of_info() -> Parser:
    """The flags of the command."""
    parser = Parser(
        "info",
        "Show statistics of a dataset and of its partition over workers.",
        "graphtheta info --dataset cora --ranks 4 --partitioner vertex-cut",
    )
    parser.add_argument(
        "--ranks",
        type=number_from(int, 1),
        default=1,
        metavar="P",
        help="report the partition for this many workers",
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="compare all bytes of a store with their checksums first",
    )
    parser.add_argument(
        "--memory",
        action="store_true",
        help="report an upper bound of each worker's memory in training, by purpose",
    )
    parser.add_job_keys()
    return parser


def info(argv: list[str]) -> Program:
    """Show statistics of a dataset and of its partition.

    Args:
        argv: Flags.
    """
    options, keys = parser_of_info().read(argv)
    job = Job(**keys)

    def work(comm: Comm) -> None:
        if options.verify:
            check_store(job.dataset, comm)
        graph = load_graph(job)
        if comm.rank == 0:
            say(
                pairs(
                    [
                        (name, amount(value) if name == "bytes" else figure(value))
                        for name, value in graph.summary().items()
                    ]
                )
            )
            if options.ranks > 1:
                say("\n" + partition_table(graph, job, options.ranks))
        if options.memory:
            rows = (
                run_simulated(options.ranks, memory_row, job, graph)[0]
                if options.ranks > 1
                else memory_row(comm, job, graph)
            )
            if comm.rank == 0:
                say(
                    "\n"
                    + table(
                        ("worker", "peak", *(f.name for f in fields(MemoryBound)), "process"), rows
                    )
                )

    return on_all_ranks(job, work)


def parser_of_explain() -> Parser:
    """The flags of the command."""
    parser = Parser(
        "explain",
        "Show the execution plan of a job: its layers, the columns sent between workers, bytes,"
        " operations, memory.",
        "graphtheta explain --model my_layers.py:Net --dataset cora",
    )
    parser.add_job_keys()
    return parser


def explain(argv: list[str]) -> Program:
    """Show the execution plan of a job.

    Args:
        argv: Flags.
    """
    _, keys = parser_of_explain().read(argv)
    job = Job(**keys)

    def work(comm: Comm) -> None:
        text = graphtheta.explain(graphtheta.Trainer(job=job, comm=comm))
        if comm.rank == 0:
            say(text)

    return on_all_ranks(job, work)


def parser_of_warmup() -> Parser:
    """The flags of the command."""
    parser = Parser(
        "warmup",
        "Compile the kernels of a job without training; without flags, those of the published"
        " models at their usual widths.",
        "graphtheta warmup --dataset cora --model gat --strategy mini",
    )
    parser.add_job_keys()
    return parser


def warmup(argv: list[str]) -> Program:
    """Compile the kernels of jobs.

    Args:
        argv: Flags.
    """
    _, keys = parser_of_warmup().read(argv)
    jobs = jobs_of(keys)

    def work(comm: Comm) -> None:
        kernels, seconds = warm_up(jobs, comm)
        if comm.rank == 0:
            say(f"{kernels} kernels compiled in {seconds:.1f} s, cached in {cache_folder()}")

    return on_all_ranks(jobs[0], work)


def memory_row(comm: Comm, job: Job, graph: Graph) -> list[tuple[str, ...]]:
    """Rows of the memory table, one per worker: its bound, the parts, and the rest of the process.

    The result is the same on every worker.

    Collective: all ranks of comm.
    """
    trainer = graphtheta.Trainer(graph=graph, job=job.without_dataset(), comm=comm)
    bound = trainer.setup.bound
    parts = [getattr(bound, f.name) for f in fields(bound)]
    peak = trainer.predicted_peak()
    return [
        (str(rank), *map(amount, row))
        for rank, row in enumerate(comm.all_gather([peak, *parts, peak - bound.total]))
    ]


def partition_table(graph: Graph, job: Job, ranks: int) -> str:
    """Rows, edges and bytes of each worker, computed with simulated ranks in this process."""

    def part(comm: Comm) -> tuple[list[int], dict[str, float], str]:
        pair = choose_pair(job, graph, comm, job.epochs)
        p = divide(job, graph, pair, comm)
        border = sum(b.n_edges for r in p.relations.values() for b in r.blocks[1:])
        return (
            [p.n_masters, p.n_mirrors, p.n_local_edges, border, p.nbytes()],
            p.report(),
            pair.reason,
        )

    parts = run_simulated(ranks, part)
    rows = [
        (str(rank), *(figure(v) for v in figures[:-1]), amount(figures[-1]))
        for rank, (figures, *_) in enumerate(parts)
    ]
    total = ", ".join(
        f"{name.replace('_', ' ')} {figure(value)}" for name, value in parts[0][1].items()
    )
    shown = table(("worker", "masters", "mirrors", "edges", "border edges", "memory"), rows)
    return "\n".join(line for line in (shown, total, parts[0][2]) if line)


def add_trust(parser: Parser) -> None:
    """Add the flag by which Python files that a run names may run."""
    parser.add_argument(
        "--trust",
        action="store_true",
        help=(
            "run the Python files that the run names, such as that of its model; those "
            "that are given as flags run anyway"
        ),
    )


def opened(
    job: Job, options: SimpleNamespace, keys: dict[str, Any], comm: Comm, other: bool = False
) -> Any:
    """The model of a finished run: on its own graph a trainer, on another dataset, or with
    ``other``, a ``gt.Inference``.
    """
    if "dataset" in keys or other:
        return graphtheta.open_run(options.run, comm=comm, trust=options.trust, **keys)
    weights = Path(options.run, WEIGHTS)
    with comm.agreed():
        check_own_run(job, weights, keys)
    trainer = graphtheta.Trainer(job=job, comm=comm)
    trained = trainer.load(weights)
    if job.positive == RARER:
        # other keys, such as split, must not turn the metrics of the run round
        facts = Trained.read_from(trained, str(weights)) if trained else None
        trainer.setup.evaluator.positive = EARLIER_POSITIVE if facts is None else facts.positive
    return trainer


def on_all_ranks(job: Job, work: Callable[[Comm], None]) -> Program:
    """The program that starts logging and does the work of a command, on all ranks."""

    def program() -> None:
        comm = start()
        start_logging(job.log_level, comm.rank, comm.size)
        work(comm)

    return program


def say_on_first(comm: Comm, *lines: str) -> None:
    """Print lines on rank 0, without those that are empty."""
    for line in filter(None, lines if comm.rank == 0 else ()):
        say(line)


def say_positive(name: str) -> None:
    """Print which class f1, auc and average precision are about; nothing without two classes."""
    if name:
        say(f"positive class: {name}")


def say_sampled(job: Job) -> None:
    """Print that metrics are those of sampled neighbourhoods; nothing if they are exact."""
    for numbers in job.evaluation_entry.values():
        say(f"metrics are of sampled neighbourhoods, eval_fanout={numbers}")
