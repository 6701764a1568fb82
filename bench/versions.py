"""Full-batch epochs of this version and of an earlier one, in turns.

    python bench/versions.py                                  gcn, sage, gat, before and after relations
    python bench/versions.py --before v0.1 --graph medium     against another commit or tag

The packages of the earlier commit are copied to a folder, and its epochs are run by the scripts of
this one. Both begin with the same weights, and their losses must agree. "of least" and "of medians"
are times of this version as shares of those of the earlier one.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

from epoch import MODELS, first_weights
from harness import HERE, Contender, disagreement, finish, parser, race, ratio, say, script
from inputs import HELP, graph_file

# the last commit without relations and types
BEFORE = "832f314"
# folders that are packages inside graphtheta
INSIDE = ("engine", "models", "ops")
COLUMNS = [
    "model",
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
    """A folder from which Python imports graphtheta as it was at a commit; made if there is none."""
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


def main() -> int:
    options = parser(__doc__, rounds=7)
    options.add_argument(
        "--before", default=BEFORE, metavar="COMMIT", help=f"the earlier version; {BEFORE}"
    )
    options.add_argument("--models", nargs="+", choices=MODELS, default=["gcn", "sage", "gat"])
    options.add_argument("--graph", default="reddit", help=f"{HELP}; reddit")
    options.add_argument("--epochs", type=int, default=5, help="timed epochs of a round; 5")
    options = options.parse_args()
    graph, old = (
        graph_file(options.graph, options.folder),
        checked_out(options.before, options.folder),
    )
    rows, faults = [], []
    for model in options.models:
        command = script(
            "own",
            "fullbatch",
            model,
            graph,
            first_weights(model, graph, options.folder),
            options.epochs,
            0.5,
        )
        contenders = [
            Contender("before", command, {"PYTHONPATH": f"{old}:{HERE}"}),
            Contender("now", command),
        ]
        say(f"{model} on {graph.stem}")
        race(contenders, options.rounds, options.threads)
        faults += [f"{model} {fault}" for fault in disagreement(contenders)]
        least = [min(c.seconds.get("epoch", []), default=None) for c in contenders]
        for c, own in zip(contenders, least, strict=True):
            shares = {
                "of least": ratio(least[1], least[0]),
                "of medians": ratio(c.median("epoch"), contenders[0].median("epoch")),
            }
            rows.append(
                {
                    "model": model,
                    "contender": c.name,
                    "seconds": c.median("epoch"),
                    "least": own,
                    "GiB": c.peak / 2**30,
                    **(shares if c.name == "now" else {}),
                    "runs": len(c.seconds.get("epoch", [])),
                    "note": c.error,
                    "label": f"{model} {c.name}",
                    "losses": c.checks.get("epoch"),
                    "all": c.seconds.get("epoch", []),
                }
            )
    return finish(
        options, rows, COLUMNS, faults, bench="versions", graph=graph.stem, before=options.before
    )


if __name__ == "__main__":
    sys.exit(main())
