"""The command ``import``: writes a graph as a store, which training maps into memory."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

from graphtheta.base.console import amount, say
from graphtheta.cli import command
from graphtheta.cli.import_tables import import_tables
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.runtime.start import Program
from graphtheta.errors import ConfigError
from graphtheta.graph.datasets.dataset import load
from graphtheta.graph.store.from_graph import write_store
from graphtheta.graph.store.manifest import FEATURES
from graphtheta.run.job.flag import Parser
from graphtheta.run.job.job import Job


def parser_of_import() -> Parser:
    """The flags of the command."""
    parser = Parser(
        "import",
        "Write a graph as a store: a folder of checksummed arrays that training maps into memory,"
        " for any number of workers. For tables of edges and nodes, see: graphtheta import --edges"
        " FILES --help",
        "graphtheta import mine.npz --to mine.store",
        "SOURCE ",
    )
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="all that --dataset takes: a named graph, an npz file, a folder",
    )
    parser.add_argument(
        "--to",
        metavar="FOLDER",
        help="the store to make; missing or empty, and seen by all workers",
    )
    parser.add_argument(
        "--feature-type",
        metavar="TYPE",
        default="stored",
        choices=FEATURES,
        help=f"type of the node features: {', '.join(FEATURES)} [stored]",
    )
    parser.add_argument(
        "--data-dir", metavar="FOLDER", help="folder of the named graphs [$GRAPHTHETA_DATA]"
    )
    return parser


def import_(argv: list[str]) -> Program:
    """Write a graph as a store.

    Args:
        argv: Source and flags.
    """
    if any(word.partition("=")[0] == "--edges" for word in argv):
        return import_tables(argv)
    if any(word.partition("=")[0] == "--nodes" for word in argv):
        raise ConfigError(
            "graphtheta import: --edges is missing; give the table of edges too, as in --edges"
            " follows.csv --nodes users.csv"
        )
    options, _ = parser_of_import().read(argv)
    if not options.to:
        raise ConfigError(
            "graphtheta import: --to is missing; give the folder to write, as in --to mine.store"
        )

    folder = Path(options.to)
    return command.on_all_ranks(
        Job(),
        lambda comm: import_graph(
            source=options.source,
            folder=folder,
            features=options.feature_type,
            data_dir=options.data_dir,
            comm=comm,
        ),
    )


def import_graph(
    source: str, folder: Path, features: str, data_dir: str | None, comm: Comm
) -> None:
    """Write a graph with its own masks as a store, and report it.

    Collective: all ranks of comm.
    """
    begin = perf_counter()
    with comm.agreed():
        graph = load(source, data_dir=data_dir, split="stored")
    rounding = write_store(graph, folder, comm, features)
    if comm.rank == 0:
        seconds = perf_counter() - begin
        size = sum(path.stat().st_size for path in folder.iterdir())
        say(
            f"{graph}\n{amount(size)} in {folder}, {seconds:.1f} s"
            + (f"\n{rounding}" if rounding else "")
        )
