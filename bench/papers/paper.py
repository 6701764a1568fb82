"""The published figures of a system beside those measured or simulated here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from rows import SYSTEMS

RESULTS = Path(__file__).resolve().parent.parent / "results"
# width of prose
WIDTH = 100
# why a published figure has none of ours beside it
NO_GRAPH, NO_MACHINES = "not at hand", "machines not at hand"


class Row(NamedTuple):
    """A figure.

    Attributes:
        item: What it is.
        paper: The published figure; empty if ours has none beside it.
        ours: The figure here; empty if there is none.
        why: In a few words, why there is none; the section says more.
    """

    item: str
    paper: str
    ours: str
    why: str = ""


@dataclass(frozen=True)
class Section:
    """A table of figures.

    Attributes:
        title: Its heading, with the place in the paper.
        rows: Its figures.
        why: Why figures differ, or are missing; a paragraph of Markdown.
        commands: What measures them, to be run in the repository.
        heads: Titles of the columns.
    """

    title: str
    rows: Sequence[Row]
    why: str
    commands: Sequence[str] = ()
    heads: tuple[str, str, str] = ("figure", "paper", "here")

    def text(self) -> str:
        """The section as Markdown."""
        lines = [
            f"### {self.title}",
            "",
            _line(self.heads),
            "|---|---|---|",
            *map(_cells, self.rows),
            "",
            wrapped(self.why),
        ]
        if self.commands:
            lines += ["", "```sh", *self.commands, "```"]
        return "\n".join(lines)


@dataclass(frozen=True)
class Paper:
    """A system.

    Attributes:
        name: Its name.
        source: Its paper, as a link of Markdown.
        sections: Its tables.
    """

    name: str
    source: str
    sections: Sequence[Section]

    def text(self) -> str:
        """All tables as Markdown."""
        return "\n\n".join(
            [
                f"## {self.name}\n\n{wrapped(self.source)}",
                *(section.text() for section in self.sections),
            ]
        )

    @property
    def answered(self) -> tuple[int, int]:
        """How many published figures have one of ours beside them, and how many a reason."""
        rows = [row for section in self.sections for row in section.rows if row.paper]
        return sum(bool(row.ours) for row in rows), sum(not row.ours for row in rows)


def answer(system: str, key: str, ours: str = "", why: str = "") -> Row:
    """The row of a published figure.

    Args:
        system, key: Of ``rows.SYSTEMS``.
        ours: The figure here.
        why: Why there is none.
    """
    found = SYSTEMS[system][key]
    return Row(found.item, found.figure, ours, why)


def results(name: str, /, **keys: object) -> list[dict[str, Any]]:
    """Rows of ``results/NAME.jsonl`` that have these values.

    Raises:
        LookupError: There is none.
    """
    lines = (RESULTS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [
        row
        for row in map(json.loads, lines)
        if all(row.get(key) == value for key, value in keys.items())
    ]
    if not rows:
        raise LookupError(f"results/{name}.jsonl has no row with {keys}; run bench/{name}.py")
    return rows


def result(name: str, /, **keys: object) -> dict[str, Any]:
    """The newest such row."""
    return results(name, **keys)[-1]


def difference(row: dict[str, Any], base: dict[str, Any]) -> tuple[float, float]:
    """Mean difference of the accuracies of two rows with the same seeds, in percent, and its
    standard error.
    """
    each = [a - b for a, b in zip(row["accuracies"], base["accuracies"], strict=True)]
    return mean(each), stdev(each) / len(each) ** 0.5


def wrapped(text: str) -> str:
    """A paragraph in lines of at most ``WIDTH``; links are not broken."""
    lines = []
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > WIDTH:
            lines.append(line)
            line = ""
        line += f" {word}" if line else word
    return "\n".join([*lines, line])


def _cells(row: Row) -> str:
    return _line((row.item, row.paper, row.ours or (f"*{row.why}*" if row.why else "")))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")
