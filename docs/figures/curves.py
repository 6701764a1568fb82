"""Curves of the runs of an example: a line for each seed, from the results that
docs/examples/run.py keeps.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from svg import Figure

# readable on white and on dark paper
COLOURS = ("#3b82f6", "#d97706", "#10a37f", "#d946ef", "#ef4444")
LEFT = 64
RIGHT = 500
TOP = 44
BOTTOM = 196


def ticks(low: float, high: float) -> list[float]:
    """Three to eight round values in a range."""
    step = next(
        step
        for power in range(-4, 4)
        for step in (10.0**power, 2 * 10.0**power, 5 * 10.0**power)
        if (high - low) / step < 6
    )
    return [
        round(k * step, 6)
        for k in range(round(low / step) - 1, round(high / step) + 2)
        if low <= k * step <= high
    ]


def curves(path: Path) -> Figure:
    """Validation metric of each seed by epoch, and a dashed line at the mean of the test metric."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    values = [value for curve in found["val"] for _, value in curve] + [found["mean"]]
    last = max(epoch for curve in found["val"] for epoch, _ in curve)
    low, high = min(values), max(values)
    margin = 0.04 * (high - low) or 0.01
    low = low - margin
    high = high + margin

    def at(epoch: float, value: float) -> tuple[float, float]:
        return LEFT + (RIGHT - LEFT) * epoch / last, BOTTOM - (BOTTOM - TOP) * (value - low) / (
            high - low
        )

    figure = Figure(640, 240, f"{path.stem}: validation {found['metric']} of each seed by epoch")
    figure.text(LEFT, 26, f"validation {found['metric']}", bold=True)
    for value in ticks(low, high):
        y = at(0, value)[1]
        figure.curve([(LEFT, y), (RIGHT, y)], "#8b949e", 0.3)
        figure.text(LEFT - 8, y + 4, f"{value:g}", "end", 11, soft=True)
    for epoch in ticks(0, last):
        figure.text(at(epoch, low)[0], BOTTOM + 18, f"{epoch:g}", "middle", 11, soft=True)
    figure.text((LEFT + RIGHT) / 2, BOTTOM + 36, "epoch", "middle", 11, soft=True)
    for seed, curve in enumerate(found["val"]):
        colour = COLOURS[seed % len(COLOURS)]
        figure.curve([at(epoch, value) for epoch, value in curve], colour)
        _legend(figure, seed, f"seed {seed}", colour)
    y = at(0, found["mean"])[1]
    figure.curve([(LEFT, y), (RIGHT, y)], "#8b949e", 1.6, dashed=True)
    _legend(figure, len(found["val"]), "test, mean", "#8b949e", dashed=True)
    return figure


def _legend(figure: Figure, line: int, name: str, colour: str, dashed: bool = False) -> None:
    y = TOP + 10 + 20 * line
    figure.curve([(RIGHT + 18, y), (RIGHT + 42, y)], colour, dashed=dashed)
    figure.text(RIGHT + 50, y + 4, name, size=11)
