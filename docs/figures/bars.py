"""Bars of an example by relation, from the results that docs/examples/run.py keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from curves import COLOURS
from svg import Figure

LEFT = 246
RIGHT = 600
TOP = 62
ROW = 34
THICK = 10
ENDS = {"tail": "(head, relation, ?)", "head": "(?, relation, tail)"}


def bars(path: Path) -> Figure:
    """Test metric of the tails and of the heads of each relation, those with the most triples
    first.
    """
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    rows = sorted(found["relations"], key=lambda row: -row["triples"])
    bottom = TOP + ROW * len(rows)
    figure = Figure(
        640,
        bottom + 52,
        f"{path.stem}: test {found['metric']} of each relation, for tails and for heads",
    )

    def at(value: float) -> float:
        return LEFT + (RIGHT - LEFT) * value

    figure.text(
        24, 26, f"test {found['metric']} by relation, mean of {len(found['test'])} seeds", bold=True
    )
    for k, name in enumerate(ENDS.values()):
        x = LEFT + 176 * k
        figure.curve([(x, 44), (x + 24, 44)], COLOURS[k], THICK)
        figure.text(x + 32, 48, name, size=11)
    for tick in range(6):
        x = at(tick / 5)
        figure.curve([(x, TOP), (x, bottom)], "#8b949e", 0.3)
        figure.text(x, bottom + 18, f"{tick / 5:g}", "middle", 11, soft=True)
    figure.text((LEFT + RIGHT) / 2, bottom + 38, found["metric"], "middle", 11, soft=True)
    for i, row in enumerate(rows):
        middle = TOP + ROW * (i + 0.5)
        figure.text(LEFT - 58, middle + 4, row["relation"].strip("_").replace("_", " "), "end", 12)
        figure.text(LEFT - 10, middle + 4, f"{row['triples']:,}", "end", 11, soft=True)
        for k, end in enumerate(ENDS):
            y = middle + (k - 0.5) * (THICK + 1)
            figure.curve([(LEFT, y), (at(row[end]), y)], COLOURS[k], THICK)
    figure.text(LEFT - 10, 48, "triples", "end", 11, soft=True)
    return figure
