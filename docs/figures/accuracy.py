"""Test accuracy over seconds of training, one panel a graph, from bench/results."""

from __future__ import annotations

import json
from math import log10
from pathlib import Path
from typing import Any

from curves import COLOURS, ticks
from svg import Figure

RESULTS = Path(__file__).resolve().parents[2] / "bench" / "results" / "time_to_accuracy.jsonl"
# of contenders, their names in the figure; strategies by hand have one colour
NAMES = {
    "auto": "GraphTheta, auto",
    "by hand": "GraphTheta, by hand",
    "graphbolt": "GraphBolt",
    "dgl": "DGL",
    "pyg": "PyG",
}
WIDTH = 240
GAP = 64
LEFT = 56
TOP = 56
BOTTOM = 226
SECONDS = (0.1, 0.3, 1, 3)


def by_graph() -> dict[str, list[dict[str, Any]]]:
    """Rows of contenders with curves, by graph and model."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in RESULTS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row.get("curves"):
            found.setdefault(f"{row['model']} on {row['graph']}", []).append(row)
    return found


def accuracy() -> Figure:
    """A panel for each graph: a line for each seed of each contender, in seconds on a logarithmic
    scale, and a dashed line at the accuracy to reach.
    """
    panels = by_graph()
    width = LEFT + len(panels) * (WIDTH + GAP)
    figure = Figure(width, BOTTOM + 84, "Test accuracy over seconds of training, by graph")
    for i, (title, rows) in enumerate(panels.items()):
        _panel(figure, LEFT + i * (WIDTH + GAP), title, rows)
    for i, (key, name) in enumerate(NAMES.items()):
        x = LEFT + i * (width - LEFT) / len(NAMES)
        figure.curve([(x, BOTTOM + 62), (x + 20, BOTTOM + 62)], _colour(key))
        figure.text(x + 26, BOTTOM + 66, name, size=11)
    return figure


def _colour(contender: str) -> str:
    names = list(NAMES)
    return COLOURS[names.index(contender if contender in NAMES else "by hand")]


def _panel(figure: Figure, left: float, title: str, rows: list[dict[str, Any]]) -> None:
    points = [point for row in rows for curve in row["curves"] for point in curve]
    first = min(t for t, _ in points)
    last = max(t for t, _ in points)
    target = rows[0]["target"]
    # what a curve passes in its first steps says little
    low = 0.6 * target
    high = 1.02 * max(share for _, share in points)

    def at(seconds: float, share: float) -> tuple[float, float]:
        return (
            left + WIDTH * log10(seconds / first) / log10(last / first),
            BOTTOM - (BOTTOM - TOP) * (share - low) / (high - low),
        )

    figure.text(left, TOP - 20, title, bold=True)
    for value in ticks(low, high):
        y = at(first, value)[1]
        figure.curve([(left, y), (left + WIDTH, y)], "#8b949e", 0.3)
        figure.text(left - 8, y + 4, f"{value:g}", "end", 11, soft=True)
    for seconds in SECONDS:
        if first <= seconds <= last:
            figure.text(at(seconds, low)[0], BOTTOM + 18, f"{seconds:g}", "middle", 11, soft=True)
    figure.text(left + WIDTH / 2, BOTTOM + 36, "seconds", "middle", 11, soft=True)
    y = at(first, target)[1]
    figure.curve([(left, y), (left + WIDTH, y)], "#8b949e", 1.2, dashed=True)
    # the chosen strategy is drawn above those by hand
    for row in sorted(rows, key=lambda row: row["contender"] == "auto"):
        for curve in row["curves"]:
            shown = [at(t, share) for t, share in curve if share >= low]
            if len(shown) > 1:
                figure.curve(shown, _colour(row["contender"]), 1.2)
