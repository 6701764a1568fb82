"""``graphtheta plan``: predicts a job in several ways, and refuses one that cannot fit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphtheta.analytics.features import with_structural_features
from graphtheta.base.atomic import BEGINNINGS, check_replaceable, file_errors, write_json
from graphtheta.base.console import say
from graphtheta.base.logger import start_logging
from graphtheta.base.wording import did_you_mean
from graphtheta.engine.runtime.start import Program, launched, start
from graphtheta.engine.strategy.registry import AUTO
from graphtheta.errors import ConfigError, MemoryLimitError
from graphtheta.inspect.planning.machine import machine, recorded_speed
from graphtheta.inspect.planning.plan import MODES, Row, planned
from graphtheta.inspect.planning.report import MORE_WORKERS, Limit, refusal, report
from graphtheta.inspect.planning.skeleton import SAMPLED_VIEWS, Skeleton, skeleton
from graphtheta.run.job.flag import Parser, last
from graphtheta.run.job.help import number_from
from graphtheta.run.job.job import Job, choices
from graphtheta.run.job.keys import FIELDS
from graphtheta.run.job.rules import OnlyWith, flag, rules_of
from graphtheta.train.loop.chosen_strategy import StrategyChoice
from graphtheta.train.loop.prepare import load_graph

STRATEGIES = ("global", "mini", "cluster")
# what --json writes, and what to do if it cannot be written
FIGURES = ("the figures", "give another file with --json")
APART = """
import sys
from graphtheta.cli.plan import plan
from graphtheta.engine.runtime.start import run_main
sys.exit(run_main(plan(sys.argv[1:], ready=True)))
"""
# keys of the job of which several values are compared, with these
COMPARED = {"strategy": STRATEGIES, "mode": MODES}
DIVIDING = ("partitioner", "masters")
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def plan(argv: list[str], ready: bool = False) -> Program:
    """Predict a job in several ways.

    A process that has compiled kernels or measured the machine holds more memory than one that
    trains with kernels from the cache. Its plan is made again in a process of its own.

    Args:
        argv: Flags.
        ready: Whether an earlier process has compiled and measured what it could.
    """
    options, keys = parser_of_plan().read(argv)
    if launched()[1] > 1:
        raise ConfigError(
            "graphtheta plan predicts any number of workers in one process; run it without mpiexec,"
            " with --workers"
        )
    workers = numbers("--workers", options.workers)
    limit = Limit(
        None if options.memory_limit is None else bytes_of(options.memory_limit),
        options.per_machine,
    )
    views = sys.maxsize if options.exact else SAMPLED_VIEWS
    strategies = listed("--strategies", options.strategies, ("strategy",), argv) or (
        [keys["strategy"]] if "strategy" in keys else list(STRATEGIES)
    )
    jobs = jobs_of(keys, strategies, listed("--partitioners", options.partitioners, DIVIDING, argv))
    modes = [keys["mode"]] if keys.get("mode") in MODES else list(MODES)

    if options.json:
        with file_errors(options.json, *FIGURES):
            check_replaceable(Path(options.json), BEGINNINGS["plan"])

    def program() -> int | None:
        from graphtheta.ops.compile.jit import n_compiled

        comm = start()
        start_logging(jobs[0].log_level, comm.rank, 1)
        graph = with_structural_features(jobs[0], load_graph(jobs[0]), comm)
        again = not ready and (options.recalibrate or recorded_speed() is None)
        speed = machine(options.recalibrate and not ready)

        lines: dict[str, None] = {}

        def rows_on(workers: Sequence[int]) -> list[Row]:
            rows = []
            for same in alike(jobs):
                sketch = skeleton(same[0], graph)
                ways, why = settled(sketch, same)
                lines.update(why)
                rows += planned(
                    skeleton=sketch,
                    jobs=ways,
                    workers=workers,
                    machine=speed,
                    modes=modes,
                    per_machine=limit.per_machine,
                    views=views,
                    limit=limit.bytes,
                )
            return rows

        rows = rows_on(workers)
        if again or (n_compiled() and not ready):
            return apart(argv)
        if options.json:
            write_json(options.json, [row.figures() for row in rows], BEGINNINGS["plan"], *FIGURES)
        for line in lines:
            say(line)
        say(report(rows, limit, speed))
        if not any(limit.fits(row) for row in rows):
            more = [p for p in MORE_WORKERS if max(workers) < p <= graph.n_nodes]
            raise MemoryLimitError(refusal(rows, rows_on(more), limit))
        return None

    return program


def parser_of_plan() -> Parser:
    """The flags of the command."""
    parser = Parser(
        "plan",
        "Predict memory per worker, bytes and time of an epoch for each strategy, mode, number of"
        " workers and partitioner, from counts; refuse a job that cannot fit.",
        "graphtheta plan --dataset cora --model gcn --workers 1,2,4 --strategies global,mini"
        " --memory-limit 8G",
    )
    parser.add_argument(
        "--workers", default="1,2", metavar="P,...", help="numbers of workers [1,2]"
    )
    parser.add_argument(
        "--strategies",
        metavar="S,...",
        help=f"some of {','.join(STRATEGIES)} [that of --strategy, else all]",
    )
    parser.add_argument(
        "--partitioners",
        metavar="NAME,...",
        help="values of --partitioner or --masters to compare [those of the job]",
    )
    parser.add_argument(
        "--memory-limit",
        metavar="SIZE",
        help="memory of a worker, such as 8G [its share of what this machine has free]",
    )
    parser.add_argument(
        "--per-machine",
        type=number_from(int, 1),
        default=0,
        metavar="N",
        help="workers that share a machine [all]",
    )
    parser.add_argument(
        "--exact",
        action="store_true",
        help=f"count all views of an epoch [at most {SAMPLED_VIEWS}]",
    )
    parser.add_argument(
        "--recalibrate", action="store_true", help="measure the speed of this machine again"
    )
    parser.add_argument("--json", metavar="FILE", help="write all figures to this file")
    parser.add_job_keys()
    return parser


def apart(argv: list[str]) -> int:
    """Make a plan in a process of its own, with kernels from the cache and the stored speed of the
    machine; returns its exit code.
    """
    return subprocess.run([sys.executable, "-c", APART, *argv], check=False).returncode


def jobs_of(
    keys: dict[str, Any], strategies: Sequence[str], partitioners: Sequence[str]
) -> list[Job]:
    """A job for each strategy and partitioner; keys that a strategy does not read are left out of
    its job.

    Args:
        keys: Keys of the command line.
        strategies: Names of strategies.
        partitioners: Values of the keys ``partitioner`` and ``masters``; those of the keys if
            empty.

    Raises:
        ConfigError: A key fits none of the strategies, or a job is invalid.
    """

    def read(key: str, strategy: str) -> bool:
        rules = rules_of(FIELDS[key]) if key in FIELDS else []
        return all(
            rule.allows(strategy)
            for rule in rules
            if isinstance(rule, OnlyWith) and rule.other == "strategy"
        )

    for key in keys:
        if not any(read(key, strategy) for strategy in strategies):
            # says why
            Job(**{**keys, "strategy": strategies[0]})
    ways = [
        {"partitioner" if name in choices("partitioner") else "masters": name}
        for name in partitioners
    ] or [{}]
    return [
        Job(
            **{
                **{key: x for key, x in keys.items() if read(key, strategy)},
                "strategy": strategy,
                **way,
            }
        )
        for strategy in strategies
        for way in ways
    ]


def alike(jobs: Sequence[Job]) -> list[list[Job]]:
    """The jobs, together where one dry run of the model holds for all: where the first layer has
    totals in all of them, or in none.
    """
    groups: dict[tuple[str, str], list[Job]] = {}
    for job in jobs:
        groups.setdefault(
            (job.precompute, job.strategy if job.precompute == "auto" else ""), []
        ).append(job)
    return list(groups.values())


def settled(sketch: Skeleton, jobs: Sequence[Job]) -> tuple[list[Job], dict[str, None]]:
    """The jobs, with the strategies that strategy=auto chooses, and lines that say why, each once.

    Args:
        sketch: One of the jobs without features.
        jobs: Differ from it in keys of the strategy and the partition.
    """
    chosen = [
        sketch.chosen(job) if job.strategy == AUTO else StrategyChoice(job, reason="")
        for job in jobs
    ]
    return [job for job, _ in chosen], {reason: None for _, reason in chosen if reason}


def numbers(name: str, text: str) -> list[int]:
    """The numbers in a list such as 1,2,4.

    Raises:
        ConfigError: It is not a list of numbers of at least 1.
    """
    items = [item.strip() for item in text.split(",")]
    if not all(item.isdecimal() and int(item) > 0 for item in items):
        raise ConfigError(
            f"{name}: got '{text}', expected numbers of at least 1, separated by commas, such as"
            " 1,2,4"
        )
    return list(dict.fromkeys(map(int, items)))


def listed(name: str, text: str | None, keys: Sequence[str], argv: Sequence[str]) -> list[str]:
    """The values in a list such as global,mini; none for None.

    Args:
        name: Flag of the list.
        text: The list.
        keys: Keys of the job whose values these are.
        argv: The command line.

    Raises:
        ConfigError: A value is not allowed, or the command line also gives its key, which a list
            replaces.
    """
    items = [] if text is None else list(dict.fromkeys(item.strip() for item in text.split(",")))
    values = {key: COMPARED.get(key) or choices(key) for key in keys}
    allowed = [value for of_key in values.values() for value in of_key]
    for item in items:
        if item not in allowed:
            raise ConfigError(
                f"{name}: unknown name '{item}'{did_you_mean(item, allowed)}; choose from"
                f" {', '.join(allowed)}"
            )
    for key, of_key in values.items():
        if set(items) & set(of_key) and (given := last(argv, flag(key))) is not None:
            raise ConfigError(
                f"{name} {text} and {flag(key)} {given} contradict each other; drop one of them"
            )
    return items


def bytes_of(text: str) -> int:
    """Bytes of a size such as 8G or 512M.

    Raises:
        ConfigError: It is no size.
    """
    number = text.strip().upper().removesuffix("IB").removesuffix("B")
    unit = ""
    if number[-1:] in UNITS and number[-1:]:
        number, unit = number[:-1], number[-1]
    try:
        size = float(number) * UNITS[unit]
    except ValueError:
        size = 0.0
    if not 0 < size < float("inf"):
        raise ConfigError(
            f"--memory-limit: got '{text}', expected a size above 0 such as 8G, 512M or 1.5G"
        )
    return int(size)
