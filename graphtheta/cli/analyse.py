"""``graphtheta analyse``: runs a graph algorithm and writes its values by original node id."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from graphtheta.analytics.analyse import analyse as whole
from graphtheta.analytics.analyse import as_ids, on_worker
from graphtheta.analytics.registry import ALGORITHMS, make_algorithm
from graphtheta.base.console import say
from graphtheta.cli import command
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.runtime.start import Program
from graphtheta.inference.outputs.file import check_free_name, check_name, write_together
from graphtheta.inference.outputs.formats import FORMATS, OutputRows
from graphtheta.inference.outputs.parts import PartFolder
from graphtheta.run.job.flag import Parser
from graphtheta.run.job.job import Job
from graphtheta.train.loop.prepare import load_graph


def parser_of_analyse() -> Parser:
    """The flags of the command."""
    parser = Parser(
        "analyse",
        f"Run a graph algorithm ({', '.join(ALGORITHMS)}) and write the values of all nodes, by"
        " original id.",
        "mpiexec -n 2 graphtheta analyse pagerank:damping=0.9 --dataset cora --to ranks.csv",
        "ALGORITHM ",
    )
    parser.add_argument(
        "algorithm",
        metavar="ALGORITHM",
        help="NAME or NAME:option=value,..., or your own as FILE.py:NAME",
    )
    parser.add_argument(
        "--to",
        metavar="PATH",
        help="output: a file, .npz or .csv, or with --format a folder [ALGORITHM.npz]",
    )
    parser.add_argument(
        "--format",
        metavar="{parquet,csv,npy}",
        choices=tuple(FORMATS),
        help="write a folder, to which each worker writes a part in this format",
    )
    parser.add_job_keys()
    return parser


def analyse(argv: list[str]) -> Program:
    """Run a graph algorithm.

    Args:
        argv: Algorithm and flags.
    """
    options, keys = parser_of_analyse().read(argv)
    job = Job(**keys)
    algorithm = make_algorithm(options.algorithm)
    path = Path(options.to or (algorithm.name if options.format else f"{algorithm.name}.npz"))
    check_name(path, options.format)

    def work(comm: Comm) -> None:
        if not options.format:
            check_free_name(path, algorithm.name)
        graph = load_graph(job)

        def shown(values: np.ndarray) -> np.ndarray:
            return as_ids(graph, values) if algorithm.gives_nodes else values

        if options.format:
            parts = PartFolder(path, options.format, comm)
            part = on_worker(
                graph=graph,
                algorithm=algorithm,
                comm=comm,
                masters=job.masters,
                partitioner=job.partitioner,
                seed=job.seed,
            )
            n = parts.write(
                OutputRows(algorithm.name, as_ids(graph, part.nodes), shown(part.values))
            )
        else:
            values = whole(
                graph,
                algorithm,
                comm=comm,
                masters=job.masters,
                partitioner=job.partitioner,
                seed=job.seed,
            )
            rows = (
                OutputRows(algorithm.name, as_ids(graph, np.arange(len(values))), shown(values))
                if comm.rank == 0
                else None
            )
            n = write_together(path, rows, comm)
        if comm.rank == 0:
            say(f"{algorithm.name} of {n:,} nodes in {path}")

    return command.on_all_ranks(job, work)
