"""The learning curve of a run: loss and metric by epoch."""
from __future__ import annotations

from pathlib import Path
from typing import Any

from graphtheta.logger import logger

SPLITS = (("train", "#7a8ca3"), ("val", "#0b6bcb"), ("test", "#d9822b"))


def draw_curve(rows: list[dict[str, Any]], metric: str, best_epoch: int, path: Path) -> bool:
    """Draw loss and metric of every split.

    Args:
        rows: One per evaluated epoch, with epoch, loss, and ``SPLIT_loss``, ``SPLIT_METRIC`` of
            the splits.
        metric: Name of the metric.
        best_epoch: Epoch to mark.
        path: Image file to write.

    Returns:
        Whether it was drawn; matplotlib may not be installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        logger.warning("the learning curve is not drawn, because matplotlib is missing: pip install 'graphtheta[plot]'")
        return False
    fig = Figure(figsize=(9, 3.6), layout="constrained", dpi=150)
    for axes, name in zip(fig.subplots(1, 2), ("loss", metric), strict=True):
        plot_curve(axes, rows, name, best_epoch)
    fig.axes[1].legend(frameon=False, loc="best")
    fig.savefig(path)
    return True


def plot_curve(axes: Any, rows: list[dict[str, Any]], name: str, best_epoch: int) -> None:
    """Plot one metric of every split.

    Args:
        axes: Of matplotlib, to plot in.
        rows: One per evaluated epoch.
        name: The metric, or "loss".
        best_epoch: Epoch to mark.
    """
    for split, colour in SPLITS:
        if f"{split}_{name}" in rows[0]:
            axes.plot([row["epoch"] for row in rows], [row[f"{split}_{name}"] for row in rows], color=colour, lw=1.6, label=split)
    axes.set_title(name.replace("_", " "), loc="left", fontweight="bold")
    axes.set_xlabel("epoch")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.25, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.axvline(best_epoch, color="#333333", lw=0.9, ls=":", zorder=0)
    best = next((row.get(f"val_{name}") for row in rows if row["epoch"] == best_epoch), None)
    if best is not None:
        axes.plot(best_epoch, best, "o", color="#0b6bcb", ms=4.5)
        axes.set_title(f"val {best:.4g} at epoch {best_epoch}", loc="right", fontsize=9, color="#555555")
