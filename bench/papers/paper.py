"""The published figures of a system beside those measured or simulated here."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from rows import SYSTEMS

RESULTS = Path(__file__).resolve().parent.parent / "results"
# width of prose
WIDTH = 100
# why a published figure has none of ours beside it
NO_GRAPH, NO_MACHINES = "not at hand", "machines not at hand"
# numbers of the rows that the page shows, by the name of their file
SHOWN: dict[str, set[int]] = {}


class Row(NamedTuple):
    """A figure.

    Attributes:
        item: What it is.
        paper: The published figure; empty if ours has none beside it.
        ours: The figure here; empty if there is none.
        why: In a few words, why there is none; the section says more.
        place: Where the paper has it.
    """

    item: str
    paper: str
    ours: str
    why: str = ""
    place: str = ""


@dataclass(frozen=True)
class Section:
    """A table of figures.

    Attributes:
        title: Its heading.
        rows: Its figures.
        why: Why figures differ, or are missing; a paragraph of Markdown.
        commands: What measures them, to be run in the repository.
        files: Names of the files of results that its figures are from.
    """

    title: str
    rows: Sequence[Row]
    why: str
    commands: Sequence[str] = ()
    files: Sequence[str] = ()

    def text(self) -> str:
        """The section as Markdown."""
        lines = [f"### {self.title}", "", *table(self.rows), "", wrapped(self.why)]
        if self.files:
            names = ", ".join(f"`bench/results/{name}.jsonl`" for name in self.files)
            lines += ["", wrapped(f"Figures are from {names}.")]
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


def sections(*makers: Callable[[], Section]) -> list[Section]:
    """Sections with the names of the files that their figures are from."""
    made = []
    for maker in makers:
        before = {name: set(lines) for name, lines in SHOWN.items()}
        SHOWN.clear()
        section = maker()
        made.append(replace(section, files=sorted(SHOWN)))
        for name, lines in before.items():
            SHOWN.setdefault(name, set()).update(lines)
    return made


def answer(system: str, key: str, ours: str = "", why: str = "") -> Row:
    """The row of a published figure.

    Args:
        system, key: Of ``rows.SYSTEMS``.
        ours: The figure here.
        why: Why there is none.
    """
    published = SYSTEMS[system][key]
    return Row(published.item, published.figure, ours, why, published.place)


def absent(system: str, start: str, why: str = NO_GRAPH) -> list[Row]:
    """Rows of all published figures whose keys begin in this way, without a figure of our own."""
    rows = [answer(system, key, why=why) for key in SYSTEMS[system] if key.startswith(start)]
    if not rows:
        raise LookupError(f"no published figure of {system} has a key that begins with {start!r}")
    return rows


def results(name: str, /, **keys: object) -> list[dict[str, Any]]:
    """Rows of ``results/NAME.jsonl`` that have these values.

    Raises:
        LookupError: There is none.
    """
    numbers = _matching(name, keys)
    SHOWN.setdefault(name, set()).update(numbers)
    return [lines(name)[number] for number in numbers]


def result(name: str, /, **keys: object) -> dict[str, Any]:
    """The newest such row."""
    newest = _matching(name, keys)[-1]
    SHOWN.setdefault(name, set()).add(newest)
    return lines(name)[newest]


@cache
def lines(name: str) -> list[dict[str, Any]]:
    """All rows of ``results/NAME.jsonl``."""
    text = (RESULTS / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def difference(row: dict[str, Any], base: dict[str, Any]) -> tuple[float, float]:
    """Mean difference of the accuracies of two rows with the same seeds, in percent, and its
    standard error.
    """
    each = [a - b for a, b in zip(row["accuracies"], base["accuracies"], strict=True)]
    return mean(each), stdev(each) / len(each) ** 0.5


def table(rows: Sequence[Row]) -> list[str]:
    """Lines of a table of Markdown."""
    cells = [
        (row.item, row.place, row.paper, row.ours or (f"*{row.why}*" if row.why else ""))
        for row in rows
    ]
    return [_line(("figure", "where", "paper", "here")), "|---|---|---|---|", *map(_line, cells)]


def wrapped(text: str, indent: str = "") -> str:
    """A paragraph in lines of at most ``WIDTH``, all but the first indented; links are not
    broken.
    """
    first, *words = text.split()
    lines = [first]
    for word in words:
        if len(lines[-1]) + 1 + len(word) > WIDTH:
            lines.append(f"{indent}{word}")
        else:
            lines[-1] += f" {word}"
    return "\n".join(lines)


def _matching(name: str, keys: dict[str, object]) -> list[int]:
    numbers = [
        number
        for number, row in enumerate(lines(name))
        if all(row.get(key) == value for key, value in keys.items())
    ]
    if not numbers:
        raise LookupError(f"results/{name}.jsonl has no row with {keys}; run bench/{name}.py")
    return numbers


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
