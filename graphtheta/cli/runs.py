"""The command ``runs``: lists and compares the runs in a folder."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from graphtheta.base.atomic import BEGINNINGS, write_json
from graphtheta.base.console import say
from graphtheta.engine.runtime.start import launched
from graphtheta.inspect.reports.runs import compare_runs
from graphtheta.run.job.flag import Parser
from graphtheta.run.job.job import RUNS


def parser_of_runs() -> Parser:
    """The flags of the command."""
    parser = Parser(
        "runs",
        "List the runs in a folder: the keys that differ between them, and the metrics of their"
        " best models. Folders that hold no run, or a damaged one, are listed with the reason.",
        "graphtheta runs runs --json runs.json",
        "[FOLDER] ",
    )
    parser.add_argument("folder", metavar="FOLDER", nargs="?", default=RUNS, help=f"[{RUNS}]")
    parser.add_argument("--json", metavar="FILE", help="write all metrics and keys to this file")
    return parser


def runs(argv: list[str]) -> int:
    """List and compare runs.

    Args:
        argv: Folder and flags.

    Returns:
        Exit code.
    """
    options, _ = parser_of_runs().read(argv)
    if launched()[0]:
        return 0
    comparison = compare_runs(Path(options.folder))
    if options.json:
        write_json(
            path=options.json,
            value=asdict(comparison),
            begins=BEGINNINGS["runs"],
            what="the comparison",
            remedy="choose another with --json",
        )
    say(comparison.text())
    return 0
