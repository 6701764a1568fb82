"""Simulated jobs as a table and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from graphtheta.base.console import amount, figure, table
from graphtheta.base.picture import new_figure, write_picture
from graphtheta.inspect.simulation.cluster import Cluster
from graphtheta.inspect.simulation.simulate import Point

# what to do if the picture cannot be written
REMEDY = "give another file with --plot"
HEADER = (
    "strategy",
    "mode",
    "partitioner",
    "masters",
    "workers",
    "step s",
    "epoch s",
    "speed-up",
    "limit",
    "share",
    "memory",
    "sent",
    "messages",
)


def by_way(points: Sequence[Point]) -> dict[str, list[Point]]:
    """The points of each strategy, mode and partitioner, in the order of workers; one worker
    belongs to all modes.
    """
    ways: dict[str, list[Point]] = {}
    for point in points:
        if point.row.workers > 1:
            ways.setdefault(_way(point), []).append(point)
    for point in points:
        if point.row.workers == 1:
            same = [group for group in ways.values() if _strategy(group[0]) == _strategy(point)]
            for group in same or [ways.setdefault(_way(point), [])]:
                group.append(point)
    return {
        name: sorted(group, key=lambda point: point.row.workers) for name, group in ways.items()
    }


def report(points: Sequence[Point], cluster: Cluster) -> str:
    """All points as a table, with notes."""
    lines = []
    for group in by_way(points).values():
        base = group[0]
        for point in group:
            row = point.row
            parts = point.parts
            about = "~" if row.counted < row.views else ""
            speed = base.row.seconds / row.seconds
            lines.append(
                (
                    row.strategy,
                    row.mode,
                    row.partitioner,
                    row.masters,
                    str(row.workers),
                    f"{point.step:.3g}",
                    f"{row.seconds:.3g}",
                    f"{speed:.2f}",
                    point.limit,
                    f"{parts[point.limit] / row.seconds:.0%}",
                    amount(row.memory),
                    about + amount(row.sent),
                    about + figure(row.messages),
                )
            )
    return (
        f"{table(HEADER, lines)}\n\nseconds without evaluation, on machines with {cluster.cores}"
        f" core(s) like this one, links of {cluster.bandwidth * 8e-9:g} Gbit/s and"
        f" {cluster.latency * 1e6:g} us, {cluster.post * 1e6:.3g} us a message, congestion"
        f" {cluster.congestion:g}, the slowest worker {cluster.slowest:g} times as slow\nspeed-up"
        " is relative to the fewest workers of the same way; limit is the part that takes most of"
        " the time, with its share\n~ scaled from some views of an epoch; with many workers, what"
        " making views sends is estimated from fewer"
    )


def draw(points: Sequence[Point], path: Path) -> None:
    """Draw the speed-up of each way against the number of workers.

    Args:
        points: At least two.
        path: The file; its ending chooses the format, such as .svg or .png.

    Raises:
        ConfigError: matplotlib is not installed, or has no such format.
        FormatError: The file cannot be written.
    """
    ways = by_way(points)
    fig = new_figure(figsize=(9.6, 3.8))
    scaling, parts = fig.subplots(1, 2)
    for name, group in ways.items():
        scaling.plot(
            [p.row.workers for p in group],
            [group[0].row.seconds / p.row.seconds for p in group],
            marker="o",
            ms=3,
            label=name,
        )
    few, most = (bound(p.row.workers for p in points) for bound in (min, max))
    scaling.plot([few, most], [1, most / few], color="#999999", ls=":", label="linear")
    scaling.set_xscale("log", base=2)
    scaling.set_yscale("log", base=2)
    scaling.set_xlabel("workers")
    for axis in (scaling.xaxis, scaling.yaxis):
        axis.set_major_formatter("{x:g}")
    scaling.set_title("speed-up", loc="left", fontweight="bold")
    last = [group[-1] for group in ways.values()]
    left = [0.0] * len(ways)
    for cause in last[0].parts:
        share = [p.parts[cause] / p.row.seconds for p in last]
        parts.barh(list(ways), share, left=left, height=0.6, label=cause)
        left = [a + b for a, b in zip(left, share, strict=True)]
    parts.set_title(f"share of the time on {most} workers", loc="left", fontweight="bold", pad=22)
    parts.invert_yaxis()
    scaling.legend(frameon=False, fontsize=8)
    parts.legend(
        frameon=False,
        fontsize=8,
        ncols=5,
        loc="lower left",
        bbox_to_anchor=(-0.02, 0.99),
        handlelength=1,
        columnspacing=1,
    )
    for axes in (scaling, parts):
        axes.grid(alpha=0.25, lw=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    write_picture(fig, path, REMEDY)


def _strategy(point: Point) -> tuple[str, str, str]:
    return point.row.strategy, point.row.partitioner, point.row.masters


def _way(point: Point) -> str:
    return " ".join(
        filter(None, (point.row.strategy, point.row.mode, point.row.partitioner, point.row.masters))
    )
