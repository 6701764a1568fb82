"""Trains and writes a run: a folder with the job, metrics, weights, profile and result.

The command ``train`` and ``Trainer.fit`` write the same files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, NamedTuple

from graphtheta.base.atomic import write_json
from graphtheta.base.console import amount
from graphtheta.errors import DivergedError
from graphtheta.run.checkpoints.progress import Result
from graphtheta.run.checkpoints.weights import WEIGHTS
from graphtheta.run.job.run_files import RESULT_FILE
from graphtheta.run.log.runlog import RunLog
from graphtheta.train.loop.session import Session


class Recorded(NamedTuple):
    """What became of a run.

    Attributes:
        result: Its result.
        lines: How it was made, for the user.
        is_new: Whether files were written; False if the folder holds the finished run already.
    """

    result: Result
    lines: list[str]
    is_new: bool


def recorded(session: Session, log: RunLog, fit: Callable[[], Result]) -> Recorded:
    """Train, and write what a run consists of to the folder of its job.

    A resumed run that had already finished is not changed.

    Args:
        session: The model on its graph.
        log: Receives the rows; of the same job.
        fit: Trains with this log.

    Raises:
        DivergedError: Training diverged; the weights of the best model before are written.
        FormatError: A file cannot be written; on all ranks together.

    Collective: all ranks of the session.
    """
    folder = session.job.folder
    comm = session.comm
    predicted = session.predicted_peak()
    try:
        result = fit()
    except DivergedError as error:
        if not error.best_epoch:
            raise
        session.save(folder / WEIGHTS)
        best = f"{folder / WEIGHTS} holds the best model before, of epoch {error.best_epoch}"
        told = DivergedError(f"{error}; {best}")
        told.best_epoch = error.best_epoch
        raise told from None
    if not log.begun and comm.broadcast((folder / RESULT_FILE).is_file()):
        return Recorded(result, lines=[], is_new=False)
    log.write_profile(predicted, session.fallbacks)
    session.save(folder / WEIGHTS)
    record, lines = _outcome(session, result)
    with comm.agreed():
        if comm.rank == 0:
            write_json(folder / RESULT_FILE, record, "the results")
    return Recorded(result, lines, is_new=True)


def positive_entry(positive: str) -> dict[str, str]:
    """The entry of a result for the positive class; none without two classes."""
    return {"positive": positive} if positive else {}


def _outcome(session: Session, result: Result) -> tuple[dict[str, Any], list[str]]:
    """The record of a result, and lines about how it was made.

    Collective: all ranks of the session.
    """
    record: dict[str, Any] = {
        "best_epoch": result.best_epoch,
        "metric": session.setup.metric,
        "metrics": result.metrics,
        "seconds": result.seconds,
        "ranks": session.comm.size,
        **positive_entry(result.positive),
        **session.job.evaluation_entry,
    }
    if session.setup.strategy_line:
        record["strategy"] = session.setup.strategy_line
    lines = []
    modes = session.setup.modes
    if modes is not None:
        record["modes"] = {"independent": session.setup.independent, **asdict(modes)}
    pipeline = session.pipeline
    if pipeline is not None and pipeline.costs is not None:
        record["pipeline"] = {
            "views_in_flight": session.training.queue.in_flight,
            "stage_threads": pipeline.stage_threads,
            **asdict(pipeline.costs),
        }
        lines.append(pipeline.line)
    macrobatches = session.macrobatches
    if macrobatches is not None:
        relay = macrobatches.counts.summed(session.comm)
        record["macrobatch"] = {
            "size": macrobatches.size,
            "fetched": macrobatches.fetched,
            **asdict(relay),
        }
        lines.append(f"macrobatches of {macrobatches.size}: {relay}")
    classes = session.class_report()
    if classes.splits:
        record["classes"] = classes.model_dump()
    older = session.training.versions.most_bytes
    if older:
        lines.append(f"older parameter versions used at most {amount(older)} of memory")
    return record, lines
