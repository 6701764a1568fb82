"""Predictions of a model: outputs by original id, and of a task with classes the class of each row."""
from __future__ import annotations

import numpy as np

from graphtheta.engine.layer.layer import Model
from graphtheta.evaluation.evaluate import Evaluator, RowEvaluator
from graphtheta.outputs.formats import Rows
from graphtheta.tasks.kind import GraphInfo, TaskKind


def predictions(model: Model, evaluator: Evaluator, kind: TaskKind, info: GraphInfo, whole: bool) -> Rows | None:
    """Predictions, in the order of the numbers of the nodes, edges or links.

    Args:
        model, evaluator, kind, info: Of a run.
        whole: Those of all workers on rank 0, and None elsewhere; otherwise those of each worker.

    Collective: all ranks of the evaluator's job_comm.
    """
    rows, out = evaluator.outputs(model)
    codes = _codes(evaluator, out)
    if whole:
        values, codes = evaluator.gathered(rows, out), None if codes is None else evaluator.gathered(rows, codes)
        if values is None:
            return None
        rows, out = np.arange(len(values)), values
    else:
        order = np.argsort(rows)
        rows, out, codes = rows[order], out[order], None if codes is None else codes[order]
    ids, out = kind.named(info, rows, out)
    names = np.array(kind.class_names)
    classes = codes if codes is None or not len(names) else names[codes]
    return Rows("prediction", ids, out, classes, tuple(names.tolist()) if out.shape[1:] == names.shape else ())


def _codes(evaluator: Evaluator, out: np.ndarray) -> np.ndarray | None:
    """Numbers of the predicted classes, [n], in accordance with the threshold; None if rows have no single class.

    Collective: all ranks of the evaluator's job_comm.
    """
    if evaluator.task.kind != "classes" or not isinstance(evaluator, RowEvaluator):
        return None
    shifted, _ = evaluator.decided(out)
    found: np.ndarray = np.argmax(out if shifted is None else shifted, axis=1)
    return found
