"""The charts of a report, as self-contained SVG elements of an HTML page."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphtheta.base.picture import new_figure
from graphtheta.engine.comm.ledger import STAGES
from graphtheta.run.log.profile import Profile
from graphtheta.train.reuse.staleness.audit import AUDIT, ERRORS

COLOURS = dict(
    zip(
        STAGES,
        (
            "#4c78a8",
            "#f58518",
            "#54a24b",
            "#b279a2",
            "#e45756",
            "#72b7b2",
            "#ff9da6",
            "#9d755d",
            "#bab0ac",
        ),
        strict=True,
    )
)
SPLITS = (("train", "#7a8ca3"), ("val", "#0b6bcb"), ("test", "#d9822b"))
WIDTH, ROW = 9.6, 0.36
WAITING = {"color": "#f3f3f3", "edgecolor": "#999999", "hatch": "////", "lw": 0.6}


@dataclass(frozen=True)
class Curve:
    """What is drawn of a run.

    Attributes:
        rows: One per evaluated epoch, with the same names in all of them.
        best_epoch: Epoch to mark.
    """

    rows: list[dict[str, Any]]
    best_epoch: int

    @property
    def names(self) -> list[str]:
        """The loss and the metrics, without the names of splits."""
        starts = tuple(f"{split}_" for split, _ in SPLITS)
        measured = [key.partition("_")[2] for key in self.rows[0] if key.startswith(starts)]
        return list(dict.fromkeys(["loss", *measured]))

    def splits(self, name: str) -> list[str]:
        """Splits that have the loss or a metric."""
        return [split for split, _ in SPLITS if f"{split}_{name}" in self.rows[0]]


def curves(runs: Mapping[str, Curve], names: Iterable[str]) -> str:
    """The loss and metrics by epoch, one plot each.

    A plot has a line for each split, or if there are several runs a line for each of them, of the
    validation split if there is one.

    Args:
        runs: The runs, by the name that a legend has for them.
        names: What to draw, such as ``loss``.
    """
    shown = list(names)
    columns = min(2, len(shown))
    lines = -(-len(shown) // columns)
    fig = _figure(3.2 * lines)
    every = list(fig.subplots(lines, columns, squeeze=False).flat)
    for axes, name in zip(every, shown, strict=False):
        if len(runs) == 1:
            _plot_splits(axes, next(iter(runs.values())), name)
        else:
            _plot_runs(axes, runs, name)
        axes.legend(frameon=False, loc="best")
    for axes in every[len(shown) :]:
        axes.set_visible(False)
    return _svg(fig, f"{' and '.join(shown) if len(shown) < 3 else 'loss and metrics'} by epoch")


def _plot_splits(axes: Any, run: Curve, name: str) -> None:
    """Plot the loss or a metric of every split, and mark the best epoch."""
    _by_epoch(axes, _text(name.replace("_", " ")))
    measured = run.splits(name)
    for split, colour in SPLITS:
        if split in measured:
            _plot_line(axes, run.rows, f"{split}_{name}", color=colour, label=split)
    if not measured:
        _plot_line(axes, run.rows, name, color="#7a8ca3", label="train")
    axes.axvline(run.best_epoch, color="#333333", lw=0.9, ls=":", zorder=0)
    best = _best_value(run, f"val_{name}")
    if best is not None:
        axes.plot(run.best_epoch, best, "o", color="#0b6bcb", ms=4.5)
        axes.set_title(
            f"val {best:.4g} at epoch {run.best_epoch}", loc="right", fontsize=9, color="#555555"
        )


def _plot_runs(axes: Any, runs: Mapping[str, Curve], name: str) -> None:
    """Plot the loss or a metric of every run that has it, and mark their best epochs."""
    splits = [split for run in runs.values() for split in run.splits(name)]
    split = next((split for split in ("val", "train", "test") if split in splits), "")
    _by_epoch(axes, _text(f"{split} {name.replace('_', ' ')}".strip()))
    key = f"{split}_{name}" if split else name
    for i, (label, run) in enumerate(runs.items()):
        if key not in run.rows[0]:
            continue
        colour = f"C{i % 10}"
        _plot_line(axes, run.rows, key, color=colour, label=_text(label))
        best = _best_value(run, key)
        if best is not None:
            axes.plot(run.best_epoch, best, "o", color=colour, ms=4.5)


def _plot_line(axes: Any, rows: list[dict[str, Any]], key: str, **look: Any) -> None:
    """A line by epoch; a single epoch is a dot, as a line of one point cannot be seen."""
    axes.plot(
        [row["epoch"] for row in rows],
        [row[key] for row in rows],
        lw=1.6,
        marker="" if len(rows) > 1 else ".",
        **look,
    )


def _best_value(run: Curve, key: str) -> float | None:
    return next((row.get(key) for row in run.rows if row["epoch"] == run.best_epoch), None)


def _text(text: str) -> str:
    """A text as it is: a label that begins with _ is none to matplotlib, and $ begins a formula."""
    return "\u200b" * text.startswith("_") + text.replace("$", r"\$")


def audits(rows: list[dict[str, Any]]) -> str:
    """Figures of the audits by epoch: errors in one plot, all others in another.

    Args:
        rows: One per evaluated epoch, with figures of audits.
    """
    names = [key for key in rows[0] if key.startswith(AUDIT)]
    errors = [name for name in names if name in ERRORS]
    fig = _figure(3.2)
    for axes, title, shown in zip(
        fig.subplots(1, 2),
        ("relative error", "reads and messages"),
        (errors, [name for name in names if name not in ERRORS]),
        strict=True,
    ):
        for name in shown:
            axes.plot(
                [row["epoch"] for row in rows],
                [row[name] for row in rows],
                lw=1.6,
                label=name.removeprefix(AUDIT).replace("_", " "),
            )
        _by_epoch(axes, title)
        axes.legend(frameon=False, loc="best")
    return _svg(fig, "audits by epoch")


def precision_recall(
    names: list[str], curves: list[list[tuple[float, float, float]]], split: str
) -> str:
    """Precision by recall of each class, in one plot.

    Args:
        names: Of the classes.
        curves: Points (threshold, precision, recall) of each class, perhaps none.
        split: The split.
    """
    fig = _figure(3.6)
    axes = fig.subplots()
    for name, points in zip(names, curves, strict=True):
        if points:
            _, precision, recall = zip(*points, strict=True)
            axes.plot(recall, precision, lw=1.6, marker=".", ms=3, label=_text(name))
    axes.set(xlabel="recall", ylabel="precision", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    axes.set_title(f"{split}: precision by recall", loc="left", fontweight="bold")
    axes.grid(alpha=0.25, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="best")
    return _svg(fig, f"precision by recall, {split}")


def _by_epoch(axes: Any, title: str) -> None:
    """The frame of a plot by epoch."""
    axes.set_title(title, loc="left", fontweight="bold")
    axes.set_xlabel("epoch")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.25, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def time_bars(profile: Profile) -> str:
    """Milliseconds of an epoch as stacked bars, one per rank: the stages, then waiting."""
    fig = _figure(1.3 + ROW * profile.ranks)
    axes = fig.subplots()
    names = _ranks(profile)
    left = np.zeros(profile.ranks)
    for stage, book in profile.stages.items():
        ms = 1e3 * np.array(book.seconds) / profile.epochs
        if ms.any():
            axes.barh(
                names, ms, left=left, height=0.7, color=COLOURS.get(stage, "#888888"), label=stage
            )
            left = left + ms
    wait = 1e3 * np.sum([book.wait for book in profile.stages.values()], axis=0) / profile.epochs
    if np.any(wait):
        axes.barh(names, wait, left=left, height=0.7, label="waiting", **WAITING)
    axes.set_xlabel("ms of an epoch")
    _tidy(axes)
    fig.legend(loc="outside upper left", ncols=5, frameon=False)
    return _svg(fig, "time of an epoch by rank and stage")


def memory_bars(profile: Profile) -> str:
    """Memory of each rank: measured, and predicted before training."""
    fig = _figure(1.1 + ROW * profile.ranks)
    axes = fig.subplots()
    names = _ranks(profile)
    axes.barh(
        names, np.array(profile.predicted) / 2**20, height=0.7, label="predicted at most", **WAITING
    )
    axes.barh(
        names, np.array(profile.measured) / 2**20, height=0.4, color="#4c78a8", label="measured"
    )
    axes.set_xlabel("MiB of the process")
    _tidy(axes)
    fig.legend(loc="outside upper left", ncols=2, frameon=False)
    return _svg(fig, "memory by rank")


def _ranks(profile: Profile) -> list[str]:
    return [f"rank {rank}" for rank in range(profile.ranks)]


def _figure(height: float) -> Any:
    return new_figure(figsize=(WIDTH, height))


def _tidy(axes: Any) -> None:
    """Put rank 0 on top and remove the frame."""
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.25, lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _svg(fig: Any, about: str) -> str:
    """The figure as an HTML element: text stays text, no external references, scalable."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    # without annotations
    canvas_of: Any = FigureCanvasSVG
    out = io.StringIO()
    # the salt names clip paths: different for each chart of a page, and the same in every run
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": about}):
        # fig.savefig draws a figure once more, to place what is in it; to draw is to place too
        canvas_of(fig).print_svg(
            out, metadata={"Creator": None, "Date": None, "Format": None, "Type": None}
        )
    text = out.getvalue()
    text = re.sub(r' xmlns(:\w+)?="[^"]*"| version="1.1"', "", text[text.index("<svg") :])
    return re.sub(
        r'<svg width="[^"]*" height="[^"]*"', f'<svg role="img" aria-label="{about}"', text, count=1
    )
