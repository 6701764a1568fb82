"""``gt.plot``: learning curves of one run, or of several in one picture."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from graphtheta.base.arguments import checked
from graphtheta.base.atomic import BEGINNINGS, atomic_file, file_errors, make_folder
from graphtheta.base.console import printable
from graphtheta.base.wording import did_you_mean, shown
from graphtheta.engine.runtime.start import launched
from graphtheta.errors import ArgumentError, ConfigError
from graphtheta.inspect.reports import chart
from graphtheta.inspect.reports.chart import Curve
from graphtheta.inspect.reports.run import read_run
from graphtheta.inspect.reports.runs import best_row, main_metric, runs_in
from graphtheta.run.checkpoints.progress import Result

EXPECTED = "what fit returned, or the folder of a run, or several of these in a list or a dict"
# narrower than this, a picture scrolls, as its text would be too small
NARROWEST = 600
WIDEST = 1000
XMLNS = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
PAGE = (
    '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="generator"'
    ' content="graphtheta"><meta name="viewport" content="width=device-width">'
    "<title>{title}</title><style>body {{ font-family: system-ui, sans-serif; }}</style></head>"
    "<body>{body}</body></html>\n"
)


@dataclass(frozen=True, repr=False)
class Curves:
    """A picture of learning curves, which a notebook shows; see ``plot``.

    Attributes:
        runs: What is drawn, by name.
        names: The loss and the metrics that are drawn, without the names of splits.
        svg: The picture, an SVG element.
    """

    runs: dict[str, Curve]
    names: tuple[str, ...]
    svg: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "svg", chart.curves(self.runs, self.names))

    def __repr__(self) -> str:
        return f"Curves({', '.join(self.names)} of {', '.join(self.runs)})"

    def _repr_html_(self) -> str:
        style = f"min-width:{NARROWEST}px;max-width:{WIDEST}px;width:100%;height:auto;display:block"
        picture = self.svg.replace("<svg", f'<svg style="{style}"', 1)
        return f'<div style="overflow-x:auto">{picture}</div>'

    @checked
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a file; with several processes, the first one writes it.

        Args:
            path: A name that ends in ``.svg``, or in ``.html`` for a page without external
                resources. A picture that was written before is replaced.

        Raises:
            ConfigError: The name ends otherwise.
            FormatError: The file cannot be written, or something else is in its place.
        """
        path = Path(path)
        if path.suffix not in (".svg", ".html"):
            raise ConfigError(f"{path}: a picture is saved as .svg or .html; choose such a name")
        if launched()[0]:
            return
        kind = "svg" if path.suffix == ".svg" else "page"
        text = (
            f"<!-- graphtheta -->\n{self.svg.replace('<svg', f'<svg {XMLNS}', 1)}"
            if kind == "svg"
            else PAGE.format(title=escape(", ".join(self.runs)), body=self._repr_html_())
        )
        with file_errors(path, "the picture", "choose another name"):
            make_folder(path.parent)
            with atomic_file(path, BEGINNINGS[kind]) as file:
                file.write(printable(text).encode())


@checked
def plot(
    runs: Any,
    metrics: str | Sequence[str] | None = None,
) -> Curves:
    """Learning curves: loss and metrics by epoch, of one run or of several.

    Of one run, there is a line for each split, and the best epoch is marked. Of several, there is a
    line for each of them, of the validation split, or of the training split without one.

    Args:
        runs: What ``fit`` returned, or the folder of a run, which may not have ended; or a folder
            of runs; or several of these as a list, or as a dict by the names that the picture has
            for them.
        metrics: What to draw, such as "auc" or ["loss", "auc"]; "all" for everything that was
            measured. By default the loss, and the metric that the best epoch is the best of.

    Returns:
        The picture. A notebook shows it, ``save("curves.svg")`` or ``save("curves.html")`` writes
        it to a file, and ``svg`` is its text.

    Raises:
        ArgumentError: Something that is no run.
        ConfigError: A folder has no run, a run has no epochs, no run has such a metric, or
            matplotlib is not installed.
        FormatError: A file of a run is damaged.
    """
    sources: Mapping[str, Any] = {"": runs}
    if isinstance(runs, Mapping):
        sources = {str(name): run for name, run in runs.items()}
    elif isinstance(runs, (list, tuple)):
        sources = {f"run {i}": run for i, run in enumerate(runs, 1)}
    pairs = [
        pair
        for name, source in sources.items()
        for pair in _curves_of(name, source, named=isinstance(runs, Mapping))
    ]
    if not pairs:
        raise ArgumentError(f"plot: there are no runs; give {EXPECTED}")
    curves = {name: curve for name, curve, _ in pairs}
    if len(curves) < len(pairs):
        raise ArgumentError("plot: two runs have the same name; give a dict, by other names")
    measured = list(dict.fromkeys(name for curve in curves.values() for name in curve.names))
    if metrics is None:
        # a run of a task without metrics has losses alone
        chosen = ["loss", *(metric for *_, metric in pairs if metric in measured)]
    elif metrics == "all":
        chosen = measured
    else:
        chosen = [metrics] if isinstance(metrics, str) else list(metrics)
    for name in chosen:
        if name not in measured:
            raise ConfigError(
                f"plot: metrics: no run has {shown(name)}{did_you_mean(name, measured)}; choose"
                f" from {', '.join(measured)}"
            )
    if not chosen:
        raise ConfigError(f"plot: metrics is empty; choose from {', '.join(measured)}")
    return Curves(curves, tuple(dict.fromkeys(chosen)))


def _curves_of(name: str, source: Any, named: bool) -> Iterator[tuple[str, Curve, str]]:
    """The name, curve and metric of a run, or of each run in a folder.

    Args:
        name: For a result; a run in a folder has the name of the folder unless it is ``named``.
        source: As for ``plot``.
        named: Whether the user gave the name.
    """
    if isinstance(source, Result):
        if not source.history:
            raise ConfigError(f"plot: {name or 'the result'} has no epochs; train with epochs=1")
        ends = dict.fromkeys(key.partition("_")[2] for key in source.metrics)
        metric = source.metric or next((end for end in ends if end != "loss"), "loss")
        yield name or "run", Curve(source.history, source.best_epoch), metric
        return
    if not isinstance(source, (str, os.PathLike)) or "\0" in str(source):
        raise ArgumentError(f"plot: got {shown(source)}; give {EXPECTED}")
    folder = Path(source)
    if not folder.is_dir():
        raise ConfigError(f"plot: there is no folder {folder}; give the output folder of a run")
    paths = runs_in(folder)
    for path in paths:
        run = read_run(path)
        if not run.rows:
            raise ConfigError(
                f"{path}: the run has no epochs yet; plot it after its first evaluation"
            )
        metric = main_metric(run)
        best = run.result or best_row(run.rows, metric)
        epoch = int(best["best_epoch" if run.result else "epoch"])
        inside = "" if path == folder else path.relative_to(folder).as_posix()
        title = " ".join(filter(None, (name, inside))) if named else inside or folder.name
        yield title or str(path), Curve(run.rows, epoch), metric
