"""The command ``report``: writes an HTML page about a run from the files in its folder."""

from __future__ import annotations

from pathlib import Path

from graphtheta.base.atomic import (
    BEGINNINGS,
    atomic_file,
    check_replaceable,
    file_errors,
    make_folder,
)
from graphtheta.base.console import printable, say
from graphtheta.engine.runtime.start import launched
from graphtheta.inspect.reports.page import page
from graphtheta.inspect.reports.run import read_run
from graphtheta.inspect.reports.runs import newest_run
from graphtheta.run.job.flag import Parser
from graphtheta.run.job.job import RUNS

REPORT_FILE = "report.html"


def parser_of_report() -> Parser:
    """The flags of the command."""
    parser = Parser(
        "report",
        "Write an HTML report of a run: learning curve, time per stage and worker, load imbalance,"
        " bytes between workers, memory. The page is a single file without external resources.",
        "graphtheta report runs/sbm-gcn-global",
        "[RUN] ",
    )
    parser.add_argument(
        "run", metavar="RUN", nargs="?", help="folder of the run [the newest in runs/]"
    )
    parser.add_argument("--to", metavar="FILE", help="output file [RUN/report.html]")
    return parser


def report(argv: list[str]) -> int:
    """Write one HTML page about a run.

    Args:
        argv: Run folder and flags.

    Returns:
        Exit code.
    """
    options, _ = parser_of_report().read(argv)
    if launched()[0]:
        return 0
    folder = Path(options.run) if options.run else newest_run(Path(RUNS))
    path = Path(options.to or folder / REPORT_FILE)
    run = read_run(folder)
    with file_errors(path, "the page", "choose another with --to"):
        check_replaceable(path, BEGINNINGS["page"])
        make_folder(path.parent)
        with atomic_file(path, BEGINNINGS["page"]) as file:
            file.write(printable(page(run)).encode())
    say(f"report in {path}")
    return 0
