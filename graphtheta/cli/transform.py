"""The command ``transform``: makes a store of some nodes and edges of another one."""

from __future__ import annotations

from time import perf_counter

from graphtheta.base.console import amount, say
from graphtheta.engine.runtime.start import Program, start
from graphtheta.errors import ConfigError
from graphtheta.graph.store.reader import read_store
from graphtheta.importing.rewriting.transform import CHOICES, transform_store
from graphtheta.run.job.flag import Parser

HELP = {
    "component": "keep all nodes, or the largest weakly connected component [all]",
    "self_loops": "edges from a node to itself [keep]",
    "duplicates": "edges with the same ends as an earlier one [keep]",
    "reverse": "keep edges as they are, or add the reverse of those that have none [keep]",
}


def parser_of_transform() -> Parser:
    """The flags of the command."""
    parser = Parser(
        "transform",
        "Make a store of some nodes and edges of another one. Every worker reads and writes a"
        " slice; columns that do not change are shared on disk.",
        "mpiexec -n 2 graphtheta transform follows.store --reverse add --component largest --to"
        " connected.store",
        "STORE ",
    )
    parser.add_argument("store", metavar="STORE", help="the store to read")
    parser.add_argument(
        "--to",
        metavar="FOLDER",
        help="the store to make; missing or empty, and seen by all workers",
    )
    parser.add_argument(
        "--nodes",
        metavar="NODES",
        help="keep these nodes: train, val, test, or a .npy file with a mask [all]",
    )
    for key, choices in CHOICES.items():
        parser.add_argument(
            f"--{key.replace('_', '-')}", choices=choices, default=choices[0], help=HELP[key]
        )
    return parser


def transform(argv: list[str]) -> Program:
    """Make a store of another one.

    Args:
        argv: Store and flags.
    """
    options, _ = parser_of_transform().read(argv)
    if not options.to:
        raise ConfigError(
            "graphtheta transform: --to is missing; give the folder to write, as in --to"
            " connected.store"
        )

    def program() -> None:
        comm = start()
        began = perf_counter()
        folder = transform_store(
            options.store,
            to=options.to,
            nodes=options.nodes,
            comm=comm,
            **{key: getattr(options, key) for key in CHOICES},
        )
        if comm.rank == 0:
            graph = read_store(folder)
            files = list(folder.iterdir())
            shared = sum(path.stat().st_size for path in files if path.stat().st_nlink > 1)
            size = sum(path.stat().st_size for path in files)
            counts = ", ".join(
                f"{key.replace('_', ' ')} {n:,}" for key, n in graph.meta["transform"].items() if n
            )
            say(
                f"{graph}\n"
                + (f"{counts}\n" if counts else "")
                + f"{amount(size)} in {folder}, {amount(shared)} of them shared,"
                f" {perf_counter() - began:.1f} s"
            )

    return program
