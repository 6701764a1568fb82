"""Writes a run: a folder with the job, metrics, weights, profile and result.

The command ``train`` and ``Trainer.fit`` write the same files.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from graphtheta.base.atomic import BEGINNINGS, write_json
from graphtheta.base.console import amount
from graphtheta.errors import DivergedError
from graphtheta.run.checkpoints.progress import Result
from graphtheta.run.checkpoints.weights import WEIGHTS
from graphtheta.run.job.run_files import RESULT_FILE
from graphtheta.run.log.runlog import RunLog
from graphtheta.train.loop.session import Session


def write_run(session: Session, log: RunLog, result: Result, predicted: int) -> None:
    """Write what a run consists of, besides its rows and checkpoints, to the folder of its job.

    A resumed run that had already finished is not changed.

    Args:
        session: The trained model on its graph.
        log: It has taken the rows.
        result: What was reached.
        predicted: Predicted peak memory of this rank, in bytes.

    Raises:
        FormatError: A file cannot be written; on all ranks together.

    Collective: all ranks of the session.
    """
    folder = session.job.folder
    if not log.begun and session.comm.broadcast((folder / RESULT_FILE).is_file()):
        return
    log.write_profile(predicted, session.fallbacks)
    session.save(folder / WEIGHTS)
    record = _record(session, result)
    with session.comm.agreed():
        if session.comm.rank == 0:
            write_json(folder / RESULT_FILE, record, BEGINNINGS["result"], "the results")


def best_saved(session: Session, error: DivergedError) -> DivergedError:
    """Save the best model before training diverged; returns the error that says so.

    Raises:
        FormatError: It cannot be written; on all ranks together.

    Collective: all ranks of the session.
    """
    weights = session.job.folder / WEIGHTS
    session.save(weights)
    told = DivergedError(
        f"{error}; {weights} holds the best model before, of epoch {error.best_epoch}"
    )
    told.best_epoch = error.best_epoch
    return told


def positive_entry(positive: str) -> dict[str, str]:
    """The entry of a result for the positive class; none without two classes."""
    return {"positive": positive} if positive else {}


def _record(session: Session, result: Result) -> dict[str, Any]:
    """The record of a result.

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
    macrobatches = session.macrobatches
    if macrobatches is not None:
        record["macrobatch"] = {
            "size": macrobatches.size,
            "fetched": macrobatches.fetched,
            **asdict(macrobatches.counts.summed(session.comm)),
        }
    classes = session.class_report()
    if classes.splits:
        record["classes"] = classes.model_dump()
    return record


def lines_about(session: Session) -> list[str]:
    """How a model was trained, for the user.

    Collective: all ranks of the session.
    """
    lines = []
    pipeline = session.pipeline
    if pipeline is not None and pipeline.costs is not None:
        lines.append(pipeline.line)
    macrobatches = session.macrobatches
    if macrobatches is not None:
        relay = macrobatches.counts.summed(session.comm)
        lines.append(f"macrobatches of {macrobatches.size}: {relay}")
    older = session.training.versions.most_bytes
    if older:
        lines.append(f"older parameter versions used at most {amount(older)} of memory")
    return lines
