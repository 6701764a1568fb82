"""``graphtheta simulate``: a job on many machines, by counts and a model of their speed."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

from graphtheta.analytics.features import with_structural_features
from graphtheta.base.atomic import BEGINNINGS, check_replaceable, file_errors, write_json
from graphtheta.base.console import say
from graphtheta.base.costs import POST
from graphtheta.base.logger import start_logging
from graphtheta.base.picture import BEGINNING, WHAT
from graphtheta.cli.plan import (
    DIVIDING,
    FIGURES,
    STRATEGIES,
    alike,
    jobs_of,
    listed,
    numbers,
    settled,
)
from graphtheta.engine.comm.delayed import read_link
from graphtheta.engine.runtime.start import Program, launched, start
from graphtheta.errors import ConfigError, FormatError
from graphtheta.inspect.planning.machine import Machine, machine, read
from graphtheta.inspect.planning.plan import MODES
from graphtheta.inspect.planning.skeleton import skeleton
from graphtheta.inspect.simulation.cluster import Cluster
from graphtheta.inspect.simulation.report import REMEDY, draw, report
from graphtheta.inspect.simulation.simulate import VIEWS, Point, simulated
from graphtheta.run.job.flag import Parser
from graphtheta.run.job.help import number_from
from graphtheta.train.loop.prepare import load_graph


def simulate(argv: list[str]) -> Program:
    """Simulate a job.

    Args:
        argv: Flags.
    """
    options, keys = parser_of_simulate().read(argv)
    if launched()[1] > 1:
        raise ConfigError(
            "graphtheta simulate counts any number of workers in one process; run it without"
            " mpiexec, with --workers"
        )
    _check(options)
    workers = sorted(numbers("--workers", options.workers))
    modes = listed("--modes", options.modes, ("mode",), argv) or (
        [keys["mode"]] if keys.get("mode") in MODES else list(MODES)
    )
    strategies = listed("--strategies", options.strategies, ("strategy",), argv) or [
        keys.get("strategy", STRATEGIES[0])
    ]
    partitioners = listed("--partitioners", options.partitioners, DIVIDING, argv)
    jobs = jobs_of(keys, strategies, partitioners)

    def program() -> None:
        comm = start()
        start_logging(jobs[0].log_level, comm.rank, 1)
        graph = with_structural_features(jobs[0], load_graph(jobs[0]), comm)
        cluster = _cluster(options)
        points: list[Point] = []
        for same in alike(jobs):
            sketch = skeleton(same[0], graph)
            ways, why = settled(sketch, same)
            for line in why:
                say(line)
            points += simulated(
                skeleton=sketch,
                jobs=ways,
                workers=workers,
                cluster=cluster,
                modes=modes,
                per_machine=options.per_machine,
                views=options.views,
            )
        if options.json:
            write_json(
                options.json,
                {"cluster": asdict(cluster), "points": [point.figures() for point in points]},
                BEGINNINGS["simulation"],
                *FIGURES,
            )
        say(report(points, cluster))
        if options.plot:
            draw(points, Path(options.plot))

    return program


def parser_of_simulate() -> Parser:
    """The flags, and the keys of a job."""
    parser = Parser(
        "simulate",
        "Count what a job computes and sends on many workers; predict its time on a cluster and"
        " what limits it.",
        "graphtheta simulate --dataset cora --model gcn --workers 1,8,64 --strategies global,mini"
        " --link 10us,25Gbit/s",
    )
    parser.add_argument(
        "--workers",
        default="1,4,16,64,256",
        metavar="P,...",
        help="numbers of workers [1,4,16,64,256]",
    )
    parser.add_argument(
        "--strategies", metavar="S,...", help=f"some of {','.join(STRATEGIES)} [that of --strategy]"
    )
    parser.add_argument(
        "--partitioners",
        metavar="NAME,...",
        help="values of --partitioner or --masters to compare [those of the job]",
    )
    parser.add_argument("--modes", metavar="M,...", help=f"some of {','.join(MODES)} [both]")
    parser.add_argument(
        "--link",
        default="10us,25Gbit/s",
        metavar="L,B",
        help="latency and bandwidth between machines [10us,25Gbit/s]",
    )
    parser.add_argument(
        "--message",
        type=number_from(float, 0),
        default=POST * 1e6,
        metavar="US",
        help=f"microseconds of each message besides latency and bytes [{POST * 1e6:g}]",
    )
    parser.add_argument(
        "--cores",
        type=number_from(int, 0),
        default=0,
        metavar="N",
        help="cores of a machine [those of this one]",
    )
    parser.add_argument(
        "--per-machine",
        type=number_from(int, 1),
        default=1,
        metavar="N",
        help="workers that share a machine and its link [1]",
    )
    parser.add_argument(
        "--congestion",
        type=number_from(float, 1),
        default=1.0,
        metavar="X",
        help="how many times as long bytes take on shared links [1]",
    )
    parser.add_argument(
        "--slowest",
        type=number_from(float, 1),
        default=1.0,
        metavar="X",
        help="how many times as long the slowest worker computes [1]",
    )
    parser.add_argument(
        "--machine",
        metavar="FILE",
        help="speed of a machine, from doctor --measure [this one, measured once]",
    )
    parser.add_argument(
        "--views",
        type=number_from(int, 1),
        default=VIEWS,
        metavar="N",
        help=f"views of an epoch that are counted, at most [{VIEWS}]",
    )
    parser.add_argument("--json", metavar="FILE", help="write all figures to this file")
    parser.add_argument(
        "--plot", metavar="FILE", help="draw the speed-up to this file, such as scaling.svg"
    )
    parser.add_job_keys()
    return parser


def _check(options: SimpleNamespace) -> None:
    """Refuse a link that is none, and files that are not replaced."""
    link(options.link)
    for path, *about, begins in (
        (options.json, *FIGURES, BEGINNINGS["simulation"]),
        (options.plot, WHAT, REMEDY, BEGINNING),
    ):
        if path:
            with file_errors(path, *about):
                check_replaceable(Path(path), begins)


def _cluster(options: SimpleNamespace) -> Cluster:
    latency, bandwidth = link(options.link)
    return Cluster.of(
        machine() if options.machine is None else read_machine(Path(options.machine)),
        latency,
        bandwidth,
        cores=options.cores,
        post=options.message * 1e-6,
        congestion=options.congestion,
        slowest=options.slowest,
    )


def link(text: str) -> tuple[float, float]:
    """Latency in seconds and bandwidth in bytes per second.

    Raises:
        ConfigError: The text is no link.
    """
    try:
        latency, bandwidth, *_ = read_link(text)
    except ConfigError:
        raise ConfigError(
            f"--link: got '{text}', expected latency and bandwidth, such as 10us,25Gbit/s"
        ) from None
    return latency, bandwidth


def read_machine(path: Path) -> Machine:
    """The speed of a machine that was measured there.

    Raises:
        FormatError: The file is missing, or is not one that ``doctor --measure`` writes.
    """
    try:
        return read(path)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise FormatError(
            f"{path}: not the speed of a machine ({error}); write it there with graphtheta doctor"
            " --measure FILE"
        ) from None
