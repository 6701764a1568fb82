"""Epochs, sampled steps and single parts of this version and of an earlier one, in turns.

    python bench/versions.py   gcn, sage, gat, before and after relations
    python bench/versions.py --before v0.1 --graph medium   against another commit or tag
    python bench/versions.py --minibatch sage gat --parts   also sampled steps and single parts

The packages of the earlier commit are copied to a folder, and its epochs are run by the scripts of
this one. Both begin with the same weights, and their losses must agree. "of least" and "of medians"
are times of this version as shares of those of the earlier one.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from epoch import MODELS, first_weights
from harness import HERE, Contender, disagreement, finish, parser, race, ratio, say, script
from inputs import HELP, graph_file
from minibatch import first_weights as first_minibatch_weights

# the last commit without relations and types
BEFORE = "832f314"
# folders that are packages inside graphtheta
INSIDE = ("engine", "models", "ops")
# of the sampled steps
FANOUT = (15, 10, 5)
HIDDEN = 256
TARGETS = 1024
COLUMNS = [
    "work",
    "case",
    "contender",
    "seconds",
    "least",
    "of least",
    "of medians",
    "GiB",
    "runs",
    "note",
]


def checked_out(commit: str, folder: Path) -> Path:
    """A folder from which Python imports graphtheta as of a commit; made if there is none."""
    folder = folder / f"graphtheta-{commit}"
    if not folder.exists():
        folder.mkdir(parents=True)
        packed = subprocess.run(
            ["git", "archive", commit, "graphtheta", *INSIDE],
            capture_output=True,
            check=True,
            cwd=HERE.parent,
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(packed)) as files:
            files.extractall(folder, filter="data")
        for name in INSIDE:
            (folder / name).rename(folder / "graphtheta" / name)
    return folder


def works(options: argparse.Namespace) -> dict[str, list[str]]:
    """Commands of a contender by the names of rows."""
    graph = graph_file(options.graph, options.folder)
    folder = options.folder
    found = {
        model: script(
            "own",
            "fullbatch",
            model,
            graph,
            first_weights(model, graph, folder),
            options.epochs,
            0.5,
        )
        for model in options.models
    }
    for model in options.minibatch:
        weights = first_minibatch_weights(model, graph, HIDDEN, len(FANOUT), folder)
        fanout = ",".join(map(str, FANOUT))
        found[f"{model} mini"] = script(
            "own", "minibatch", model, graph, weights, "neighbour", fanout, TARGETS, options.steps
        )
    if options.parts:
        found["parts"] = script("own", "parts", options.epochs)
    return found


def rows_of(work: str, contenders: list[Contender]) -> Iterator[dict[str, Any]]:
    """A row for each version and each case that it timed."""
    before = contenders[0]
    for c in contenders:
        for case, seconds in c.seconds.items() or [("", [])]:
            own = min(seconds, default=None)
            least = min(before.seconds.get(case, []), default=None)
            shares = {
                "of least": ratio(own, least),
                "of medians": ratio(c.median(case), before.median(case)),
            }
            yield {
                "work": work,
                "case": case,
                "contender": c.name,
                "seconds": c.median(case),
                "least": own,
                "GiB": c.peak / 2**30,
                **(shares if c is not before else {}),
                "runs": len(seconds),
                "note": c.error,
                "label": f"{work} {case} {c.name}",
                "checks": c.checks,
                "all": seconds,
            }


def main() -> int:
    options = parser(__doc__, rounds=7)
    options.add_argument(
        "--before", default=BEFORE, metavar="COMMIT", help=f"the earlier version; {BEFORE}"
    )
    options.add_argument("--models", nargs="*", choices=MODELS, default=["gcn", "sage", "gat"])
    options.add_argument(
        "--minibatch", nargs="*", choices=("sage", "gat"), default=[], help="sampled steps; none"
    )
    options.add_argument("--parts", action="store_true", help="also the parts of own/parts.py")
    options.add_argument("--graph", default="reddit", help=f"{HELP}; reddit")
    options.add_argument("--epochs", type=int, default=5, help="timed epochs of a round; 5")
    options.add_argument("--steps", type=int, default=30, help="timed mini-batches of a round; 30")
    options = options.parse_args()
    old = checked_out(options.before, options.folder)
    rows, faults = [], []
    for work, command in works(options).items():
        contenders = [
            Contender("before", command, {"PYTHONPATH": f"{old}:{HERE}"}),
            Contender("now", command),
        ]
        say(f"{work} on {options.graph}")
        race(contenders, options.rounds, options.threads)
        faults += [f"{work} {fault}" for fault in disagreement(contenders)]
        rows += rows_of(work, contenders)
    return finish(
        options, rows, COLUMNS, faults, bench="versions", graph=options.graph, before=options.before
    )


if __name__ == "__main__":
    sys.exit(main())
