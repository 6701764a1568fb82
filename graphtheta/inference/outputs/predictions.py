"""Predictions of a model: outputs by original id, and, if there are classes, that of each row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.layer.layer import Model
from graphtheta.errors import DataError
from graphtheta.inference.outputs.formats import OutputRows
from graphtheta.tasks.evaluation.evaluate import Evaluator, RowEvaluator
from graphtheta.tasks.kinds.kind import GraphInfo, TaskKind


def predictions(
    model: Model, evaluator: Evaluator, kind: TaskKind, info: GraphInfo, whole: bool
) -> OutputRows | None:
    """Predictions, in the order of the numbers of the nodes, edges or links.

    Args:
        model, evaluator, kind, info: Of a run.
        whole: Those of all workers on rank 0, and None elsewhere; otherwise those of each worker.

    Collective: all ranks of the evaluator's job_comm.
    """
    return named_rows(*evaluator.outputs(model), evaluator, kind, info, whole)


def named_rows(
    rows: np.ndarray,
    out: np.ndarray,
    evaluator: Evaluator,
    kind: TaskKind,
    info: GraphInfo,
    whole: bool,
) -> OutputRows | None:
    """Predictions by original id, in the order of the numbers of the nodes, edges or links.

    Args:
        rows: Numbers of some rows of this worker, [n] int64.
        out: Their outputs, [n, ...]; of all its rows if thresholds are chosen on the validation
            set.
        evaluator, kind, info, whole: As of ``predictions``.

    Collective: all ranks of the evaluator's job_comm.
    """
    check_finite(evaluator.job_comm, rows, out, "prediction")
    codes = _codes(evaluator, out)
    columns = [rows, out, *([] if codes is None else [codes])]
    shown = kind.reported(info, rows)
    ordered = in_order(
        evaluator.job_comm, columns if shown.all() else [x[shown] for x in columns], whole
    )
    if ordered is None:
        return None
    rows = ordered[0]
    out = ordered[1]
    codes = None if codes is None else ordered[2]
    ids, out = kind.named(info, rows, out)
    names = np.array(kind.class_names)
    classes = codes if codes is None or not len(names) else names[codes]
    return OutputRows(
        "prediction",
        ids,
        out,
        classes,
        tuple(names.tolist()) if out.shape[1:] == names.shape else (),
    )


def embedding_rows(
    rows: np.ndarray, out: np.ndarray, comm: Comm, info: GraphInfo, whole: bool
) -> OutputRows | None:
    """Embeddings by original id, in the order of the numbers of the nodes; arguments as of
    ``named_rows``.

    Collective: all ranks of comm.
    """
    check_finite(comm, rows, out, "embedding")
    ordered = in_order(comm, [rows, out], whole)
    return None if ordered is None else OutputRows("embedding", info.ids(ordered[0]), ordered[1])


def check_finite(comm: Comm, rows: np.ndarray, out: np.ndarray, what: str) -> None:
    """Check what a model returns. Features in files are not checked when they are loaded, and NaN
    in them spreads.

    Args:
        comm: The workers.
        rows: Numbers of some rows of this worker, [n].
        out: Their outputs, [n, ...].
        what: What outputs are, for the message.

    Raises:
        DataError: One is NaN or infinite; on all ranks together.

    Collective: all ranks of comm.
    """
    with comm.agreed():
        # the sum is finite if all are, or overflows; only then look for the value
        if np.isfinite(out.sum()):
            return
        bad = np.flatnonzero(~np.isfinite(out.reshape(len(out), -1)).all(axis=1))
        if len(bad):
            raise DataError(
                f"the {what} number {int(rows[bad[0]])} is not finite ({len(bad):,} such rows of"
                f" {len(out):,}); features near it are NaN or infinite, or training has diverged"
            )


def in_order(comm: Comm, arrays: Sequence[np.ndarray], whole: bool) -> list[np.ndarray] | None:
    """Arrays in the order of the first one: those of all workers on rank 0, or with ``whole`` False
    of each worker; None elsewhere.
    """
    if whole:
        parts = [comm.gather_rows(x) for x in arrays]
        if parts[0] is None:
            return None
        arrays = [
            part[0] if len(part) == 1 else np.concatenate(part)
            for part in parts
            if part is not None
        ]
    if np.all(arrays[0][1:] > arrays[0][:-1]):
        # numbers of nodes belong to the partition
        return [arrays[0].copy(), *arrays[1:]]
    order = np.argsort(arrays[0])
    return [x[order] for x in arrays]


def _codes(evaluator: Evaluator, out: np.ndarray) -> np.ndarray | None:
    """Numbers of the predicted classes, [n], in accordance with the threshold; None if rows have no
    single class.

    Collective: all ranks of the evaluator's job_comm.
    """
    if evaluator.task.kind != "classes" or not isinstance(evaluator, RowEvaluator):
        return None
    decided, _ = evaluator.decided(out)
    codes: np.ndarray = np.argmax(out if decided is None else decided, axis=1)
    return codes
