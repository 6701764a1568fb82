"""The command ``predict``: predictions, embeddings and best nodes of a finished run."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from graphtheta.base.console import say
from graphtheta.cli.command import add_trust, on_all_ranks, opened
from graphtheta.cli.links import add_links, link_rows
from graphtheta.cli.top import add_flags, top_rows
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.runtime.start import Program
from graphtheta.errors import ConfigError
from graphtheta.inference.grown.comparison import COMPARISONS
from graphtheta.inference.outputs.file import check_free_name, check_name, write_together
from graphtheta.inference.outputs.formats import FORMATS, OutputRows
from graphtheta.inference.outputs.parts import PartFolder
from graphtheta.inference.outputs.predictions import COLUMNS, NODES, TARGETS, choice_of
from graphtheta.run.job.flag import Parser
from graphtheta.run.job.rules import flag
from graphtheta.train.loop.opened import job_of

OF_TOP = "belongs to the nodes of the highest scores; say how many with --top K"
OF_LAYERS = "an earlier graph; give its layers with --since"
# the flag that others need, and why
WITH = {
    "--of": ("--top", OF_TOP),
    "--side": ("--top", OF_TOP),
    "--among": ("--top", OF_TOP),
    "--keep-known": ("--top", OF_TOP),
    "--compare": ("--since", f"says how to compare with {OF_LAYERS}"),
    "--appended": ("--since", f"chooses the nodes that are not in {OF_LAYERS}"),
}
OF_ALL = "chooses from all predictions", ("--top", "--embed", "--links")
LAYERS = "--embed", "--since", "--keep-layers"
# what flags do, and others that exclude them
WITHOUT = {
    "--top": ("writes the nodes of the highest scores", LAYERS),
    "--links": ("writes predictions for given links", ("--top", *LAYERS)),
    "--nodes": OF_ALL,
    "--columns": OF_ALL,
    "--scores": ("says what predictions are", ("--embed",)),
}


def parser_of_predict() -> Parser:
    """The flags of the command."""
    parser = Parser(
        "predict",
        "Write predictions of a finished run, by original node id, on its graph, or with --dataset"
        " on another one. Job flags override the keys of the run.",
        "graphtheta predict runs/sbm-gcn-global --to predictions.csv",
        "RUN ",
    )
    parser.add_argument("run", metavar="RUN", help="folder of the run")
    parser.add_argument(
        "--to",
        metavar="PATH",
        help=(
            "output: a file, .npz or .csv, or with --format a folder "
            "[RUN/predictions.npz, embeddings.npz or scores.npz]"
        ),
    )
    parser.add_argument(
        "--format",
        metavar="{parquet,csv,npy}",
        choices=tuple(FORMATS),
        help="write a folder, to which each worker writes a part in this format",
    )
    parser.add_argument(
        "--embed",
        action="store_true",
        help="write the node embeddings of the last layer instead of predictions",
    )
    parser.add_argument(
        "--nodes",
        metavar="{targets,all}",
        choices=NODES,
        default=TARGETS,
        help=(
            "write nodes of the types that have labels, and whole graphs, or all nodes [targets]"
        ),
    )
    parser.add_argument(
        "--columns",
        metavar="NAMES",
        help=(
            "what to write of each prediction, names with commas between them: "
            + "; ".join(f"{name}, {text}" for name, text in COLUMNS.items())
            + " [id,class,scores]"
        ),
    )
    parser.add_argument(
        "--keep-layers",
        metavar="FOLDER",
        help="keep the values of all layers, for --since when the graph has grown",
    )
    parser.add_argument(
        "--since",
        metavar="FOLDER",
        help=(
            "compute only what has changed since --keep-layers wrote the folder on an earlier graph"
        ),
    )
    parser.add_argument(
        "--compare",
        metavar="{values,degrees}",
        choices=COMPARISONS,
        default="values",
        help=(
            "with --since, compare all values and edges, or degrees alone, which is enough if nodes"
            " and edges were only appended [values]"
        ),
    )
    parser.add_argument(
        "--appended",
        action="store_true",
        help="with --since, only the nodes that the earlier graph did not have",
    )
    add_flags(parser)
    add_links(parser)
    add_trust(parser)
    parser.add_job_keys(short=False)
    return parser


def predict(argv: list[str]) -> Program:
    """Write predictions of a finished run, embeddings, or the nodes of the highest scores.

    Args:
        argv: Run folder and flags.
    """
    parser = parser_of_predict()
    options, keys = parser.read(argv)
    check_flags(
        {flag(key) for key in keys}
        | {flag(x) for x, value in vars(options).items() if value != parser.get_default(x)}
    )
    choice_of(options.nodes, options.columns)
    job = job_of(options.run, keys, options.trust)
    name = "score" if options.top else "embedding" if options.embed else "prediction"
    path = Path(options.to or Path(options.run, f"{name}s" if options.format else f"{name}s.npz"))
    check_name(path, options.format)

    def work(comm: Comm) -> None:
        if not options.format:
            check_free_name(path, name)
        model = opened(job, options, keys, comm, other=bool(options.since or options.keep_layers))
        parts = PartFolder(path, options.format, comm) if options.format else None
        rows = computed(model, options, whole=parts is None)
        n = write_together(path, rows, comm) if parts is None or rows is None else parts.write(rows)
        if comm.rank == 0:
            say(f"{n:,} {name}s in {path}")

    return on_all_ranks(job, work)


def check_flags(given: AbstractSet[str]) -> None:
    """Check that flags fit together.

    Raises:
        ConfigError: They do not.
    """
    for name, (needed, why) in WITH.items():
        if name in given and needed not in given:
            raise ConfigError(f"{name} {why}")
    for name, (does, others) in WITHOUT.items():
        for other in others:
            if {name, other} <= given:
                raise ConfigError(f"{name} {does}, and {other} writes something else; drop one")


def computed(model: Any, options: SimpleNamespace, whole: bool) -> OutputRows | None:
    """The predictions, embeddings or best nodes of all workers on rank 0 and None elsewhere; those
    of each worker unless ``whole``.

    Collective: all ranks.
    """
    if options.top:
        return top_rows(model, options, whole)
    if options.links:
        return link_rows(model, options.links, whole)
    chosen = {"nodes": options.nodes, "columns": options.columns}
    if not options.since and not options.keep_layers:
        return model.embeddings(whole) if options.embed else model.predictions(whole, **chosen)
    if not options.since:
        model.keep_layers(options.keep_layers)
    grown = model.since(options.since or options.keep_layers, options.compare)
    if options.since and options.keep_layers:
        grown.keep_layers(options.keep_layers)
    wanted = grown.new if options.appended else None
    rows: OutputRows | None = (
        grown.embeddings(wanted, whole=whole)
        if options.embed
        else grown.predictions(wanted, whole=whole, **chosen)
    )
    if options.since and model.comm.rank == 0:
        say(str(grown.work))
    return rows
