"""Predictions of a model: outputs by original id, and, if there are classes, that of each row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphtheta.base.wording import did_you_mean
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.layer.layer import Model
from graphtheta.errors import ConfigError, DataError
from graphtheta.inference.outputs.formats import OutputRows
from graphtheta.tasks.evaluation.evaluate import SPLITS, Evaluator, RowEvaluator
from graphtheta.tasks.kinds.kind import GraphInfo, TaskKind

# columns of predictions, and what they hold
COLUMNS = {
    "id": "original ids, which are always written",
    "class": "the predicted class, by its name",
    "confidence": "the score of the predicted class",
    "scores": "the score of each class or label, or the predicted values",
    "label": "the true class, labels or values",
    "split": "train, val or test",
}
TARGETS, ALL = NODES = "targets", "all"
DEFAULT_COLUMNS = ("class", "scores")


class PredictionChoice(NamedTuple):
    """Which predictions users receive, and what of each.

    Attributes:
        every: Whether nodes of all types have rows, and nodes inside whole graphs; otherwise those
            that have targets.
        columns: Names in ``COLUMNS``; None for the scores, and the classes if rows have one.
        own: Whether ids of nodes of one type are those that its table has.
    """

    every: bool = False
    columns: tuple[str, ...] | None = None
    own: bool = True


USUAL = PredictionChoice()


def is_all(nodes: Any) -> bool:
    """Whether an argument for nodes is the word for all of them."""
    return isinstance(nodes, str) and nodes == ALL


def choice_of(nodes: str, columns: str | Iterable[str] | None) -> PredictionChoice:
    """The choice that is given by words.

    Args:
        nodes: A name in ``NODES``.
        columns: As of ``chosen_columns``; None for those that are usual.

    Raises:
        ConfigError: There is no such name.
    """
    if nodes not in NODES:
        raise ConfigError(
            f"nodes={nodes!r}: choose from {', '.join(NODES)}; ids and masks are arguments of"
            " predict"
        )
    return PredictionChoice(nodes == ALL, None if columns is None else chosen_columns(columns))


def chosen_columns(text: str | Iterable[str]) -> tuple[str, ...]:
    """Columns that are given by name.

    Args:
        text: The names, or a text with commas between them.

    Raises:
        ConfigError: A name is unknown or given twice, or nothing but the ids is asked for.
    """
    listed = text.split(",") if isinstance(text, str) else text
    names = tuple(str(name).strip() for name in listed)
    choices = ", ".join(COLUMNS)
    for i, name in enumerate(names):
        if name not in COLUMNS:
            raise ConfigError(
                f"columns: unknown column {name!r}{did_you_mean(name, COLUMNS)}; choose from"
                f" {choices}"
            )
        if name in names[:i]:
            raise ConfigError(f"columns: {name} is given twice; drop one")
    if set(names) <= {"id"}:
        raise ConfigError(f"columns: nothing is written beside the ids; choose from {choices}")
    return tuple(name for name in names if name != "id")


def predictions(
    model: Model,
    evaluator: Evaluator,
    kind: TaskKind,
    info: GraphInfo,
    whole: bool,
    choice: PredictionChoice = USUAL,
) -> OutputRows | None:
    """Predictions, in the order of the numbers of the nodes, edges or links.

    Args:
        model, evaluator, kind, info: Of a run.
        whole: Those of all workers on rank 0, and None elsewhere; otherwise those of each worker.
        choice: Which of them, and what of each.

    Raises:
        ConfigError: The task has no such column, or no nodes to choose; on all ranks together.

    Collective: all ranks of the evaluator's job_comm.
    """
    _check_choice(choice, evaluator, kind)
    rows, out = evaluator.outputs(model)
    return named_rows(
        rows=rows,
        out=out,
        evaluator=evaluator,
        kind=kind,
        info=info,
        whole=whole,
        choice=choice,
    )


def named_rows(
    rows: np.ndarray,
    out: np.ndarray,
    evaluator: Evaluator,
    kind: TaskKind,
    info: GraphInfo,
    whole: bool,
    choice: PredictionChoice = USUAL,
    wanted: np.ndarray | None = None,
) -> OutputRows | None:
    """Predictions by original id, in the order of the numbers of the nodes, edges or links.

    Args:
        rows: Numbers of some rows of this worker, [n] int64.
        out: Their outputs, [n, ...]; of all its rows, in the order of the evaluator, if thresholds
            are chosen on the validation set.
        evaluator, kind, info, whole, choice: As of ``predictions``.
        wanted: Which of the rows users receive, of those that ``choice`` has, [n] bool; None for
            all.

    Collective: all ranks of the evaluator's job_comm.
    """
    check_finite(evaluator.job_comm, rows, out, "prediction")
    columns = DEFAULT_COLUMNS if choice.columns is None else choice.columns
    here = {"row": rows, "scores": out}
    codes = _codes(evaluator, out)
    if codes is not None:
        here["class"] = codes
    if isinstance(evaluator, RowEvaluator) and {"label", "split"} & set(columns):
        here["label"], here["split"] = evaluator.truth(rows)
    shown = np.ones(len(rows), bool) if choice.every else kind.reported(info, rows)
    shown = shown if wanted is None else shown & wanted
    arrays = [*here.values()] if shown.all() else [x[shown] for x in here.values()]
    ordered = in_order(evaluator.job_comm, arrays, whole)
    if ordered is None:
        return None
    of = dict(zip(here, ordered, strict=True))
    out = of["scores"]
    ids, values = (info.ids(of["row"]), out) if choice.every else kind.named(info, of["row"], out)
    of["scores"] = kind.presented(out)
    # a kind of task may make something else of outputs
    as_they_are = values is out
    values = of["scores"] if as_they_are else values
    # added self loops, which come last, have no ids
    of = {name: x[: len(ids)] for name, x in of.items()}
    others = _others(of, columns, kind)
    names = np.array(kind.class_names)
    return OutputRows(
        name="probability" if as_they_are and kind.of_probabilities else "prediction",
        ids=kind.own_ids(ids) if choice.own and not choice.every else ids,
        values=values,
        classes=_named(of["class"], names) if "class" in of else None,
        columns=tuple(names.tolist()) if values.shape[1:] == names.shape else (),
        others=others,
        written=tuple("values" if name == "scores" else name for name in columns),
    )


def _others(
    of: dict[str, np.ndarray], columns: tuple[str, ...], kind: TaskKind
) -> dict[str, np.ndarray]:
    """The columns besides classes and scores that are asked for, by name.

    Args:
        of: What is known of the rows, by name, [n, ...] each.
        columns: Names in ``COLUMNS``.
        kind: Of the task.
    """
    others = {}
    if "confidence" in columns:
        others["confidence"] = of["scores"][np.arange(len(of["class"])), of["class"]]
    if "label" in columns:
        label = of["label"]
        one = kind.labels == "classes"
        others["label"] = (
            _named(label, np.array(kind.class_names)) if one else label.reshape(of["scores"].shape)
        )
    if "split" in columns:
        others["split"] = np.array([*SPLITS, ""])[of["split"]]
    return others


def _named(codes: np.ndarray, names: np.ndarray) -> np.ndarray:
    """Names of classes, [n], "" for -1; the codes if they have no names."""
    return np.append(names, "")[codes] if len(names) else codes


def _check_choice(choice: PredictionChoice, evaluator: Evaluator, kind: TaskKind) -> None:
    if choice.every and kind.of_pairs:
        raise ConfigError(
            f"nodes=all: predictions of task={kind.name} are those of pairs of nodes; drop --nodes"
        )
    labelled = isinstance(evaluator, RowEvaluator)
    one = labelled and kind.labels == "classes"
    absent = {"class": not one, "confidence": not one, "label": not labelled, "split": not labelled}
    for name in choice.columns or ():
        if absent.get(name):
            raise ConfigError(
                f"columns: predictions of task={kind.name} have no {name}"
                f" ({COLUMNS[name]}); choose from"
                f" {', '.join(x for x in COLUMNS if not absent.get(x))}"
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
    in them spreads. The message has the lowest number of all workers.

    Args:
        comm: The workers.
        rows: Numbers of some rows of this worker, [n].
        out: Their outputs, [n, ...].
        what: What outputs are, for the message.

    Raises:
        DataError: One is NaN or infinite; on all ranks together.

    Collective: all ranks of comm.
    """
    # the sum is finite if all are, or overflows; only then look for the value
    finite = bool(np.isfinite(out.sum()))
    wrong = rows[:0] if finite else rows[~np.isfinite(out.reshape(len(out), -1)).all(axis=1)]
    n_wrong, n = comm.all_sum(np.array([len(wrong), len(out)])).tolist()
    if n_wrong:
        first = comm.all_min(wrong.astype(np.int64).min(initial=np.iinfo(np.int64).max))
        raise DataError(
            f"the {what} number {int(first)} is not finite ({n_wrong:,} such rows of {n:,});"
            " features near it are NaN or infinite, or training has diverged"
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
