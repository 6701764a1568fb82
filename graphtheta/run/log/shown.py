"""The progress of a training on the screen: a bar, or lines of a log file."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from graphtheta.base.console import say
from graphtheta.engine.comm.communicator import Comm
from graphtheta.run.job.job import Job

if TYPE_CHECKING:
    from tqdm import tqdm

# number of progress lines in a log file, in place of a progress bar
LINES = 20
# whether to show progress: always, never, where someone looks, or as lines where nobody does
Wish = bool | None | Literal["lines"]


def library_of_bars() -> str:
    """The module with the progress bar that fits: in notebooks one of widgets, if there are any;
    without them it would warn. It is imported only there, which takes time.
    """
    return "tqdm.auto" if in_notebook() and find_spec("ipywidgets") is not None else "tqdm"


class Shown:
    """Context manager that shows a training on rank 0: its epochs or updates, and metrics.

    Args:
        job: Gives the number of epochs or updates.
        comm: All ranks; only rank 0 shows something.
        metric: Metric to show, such as accuracy.
        wish: True shows a bar, False nothing, None a bar if standard error is a terminal or in a
            notebook, "lines" lines on standard output where None shows nothing.
    """

    def __init__(self, job: Job, comm: Comm, metric: str, wish: Wish):
        self._metric = metric
        self._unit, self._goal = ("step", job.steps) if job.steps else ("epoch", job.epochs)
        watched = in_notebook() or sys.stderr.isatty()
        self._has_bar = comm.rank == 0 and wish is not False and (wish is True or watched)
        self._has_lines = comm.rank == 0 and wish == "lines" and not watched
        self._bar: tqdm[Any] | None = None
        self._said = -1

    def begin(self, history: list[dict[str, Any]]) -> None:
        """Begin, or go on after the rows of ``history``."""
        if not self._has_bar:
            return
        library = import_module(library_of_bars())
        done = history[-1][self._unit] if history else 0
        self._bar = library.tqdm(
            total=self._goal, initial=done, unit=self._unit, leave=False, file=sys.stderr
        )

    def epoch(self, row: dict[str, Any]) -> dict[str, Any]:
        """Show an evaluation; there are no entries to store."""
        if self._bar is None and not self._has_lines:
            return {}
        names = ("loss", f"train_{self._metric}", f"val_{self._metric}")
        text = "  ".join(
            f"{name.replace('_', ' ')} {row[name]:.4f}" for name in names if name in row
        )
        done = row[self._unit]
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update(done - self._bar.n)
        elif done * LINES // self._goal > self._said:
            self._said = done * LINES // self._goal
            say(f"{self._unit} {done:>4}/{self._goal}  {text}  {1000 * row['seconds']:.0f} ms")
        return {}

    def close(self) -> None:
        """Take the bar from the screen."""
        if self._bar is not None:
            self._bar.close()

    def __enter__(self) -> Shown:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    return "ipykernel" in sys.modules
