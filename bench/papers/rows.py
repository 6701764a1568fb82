"""The published figures that the page answers, and a check that it answers all of them.

    python bench/papers/rows.py

Prints what docs/papers.md leaves without an answer; the exit code is 1 if there is any.

The files of ``published/`` list all figures of the tables and of the text of a system's papers:
``@`` and a table or section, then its figures as "key | what it is | value". They were made from
the papers, whether or not there is a figure of our own. The scripts of the papers take their rows
from here by key. The check reads the page alone: under the heading of the system, a row must have
the place, the item and the value, and then a figure of our own or the reason for none.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent.parent / "docs" / "papers.md"


class Published(NamedTuple):
    """A published figure.

    Attributes:
        key: By which scripts take it.
        item: What it is.
        figure: Its value.
        place: The table or section of the paper.
    """

    key: str
    item: str
    figure: str
    place: str


def _listed(name: str) -> dict[str, Published]:
    rows = {}
    place = ""
    for line in (HERE / "published" / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("@ "):
            place = line[2:]
        elif line and not line.startswith("#"):
            row = Published(*line.split(" | "), place)
            if row.key in rows:
                raise ValueError(f"published/{name}.txt: two figures have the key {row.key}")
            rows[row.key] = row
    return rows


# by the headings of the page
SYSTEMS = {
    "GraphTheta": _listed("graphtheta"),
    "BatchGNN": _listed("batchgnn"),
    "DistGNN-MB": _listed("distgnn_mb"),
    "BGL": _listed("bgl"),
    "LABOR, cooperative and dependent minibatching": _listed("labor"),
    "Other systems": _listed("others"),
}


def unanswered(page: str) -> list[str]:
    """What the page has no answer to, as "system: key".

    Args:
        page: Its text.
    """
    # text below each heading, up to the next one
    parts = {part.partition("\n")[0]: part for part in page.split("\n## ")}
    missing = []
    for system, rows in SYSTEMS.items():
        lines = [
            [cell.strip() for cell in line.strip("|").split(" | ")]
            for line in parts.get(system, "").splitlines()
            if line[:1] == "|"
        ]
        answered = {tuple(line[:3]) for line in lines if len(line) == 4 and line[3]}
        missing += [
            f"{system}: {key}"
            for key, row in rows.items()
            if (row.item, row.place, row.figure) not in answered
        ]
    return missing


def main() -> int:
    missing = unanswered(PAGE.read_text(encoding="utf-8"))
    print(
        "\n".join(missing)
        if missing
        else f"all {sum(map(len, SYSTEMS.values()))} published figures are answered"
    )
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main())
