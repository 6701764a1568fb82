"""Weights, thresholds and the positive class of a job, for classes that are rare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from graphtheta.base.wording import did_you_mean
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.strategy.task import NodeTask
from graphtheta.errors import ConfigError, DataError
from graphtheta.ops.functions.losses.weighting import Weighting, balanced
from graphtheta.ops.functions.metrics.scores import GOALS
from graphtheta.tasks.evaluation.threshold import Threshold

# class weights by name
WEIGHTS = ("none", "balanced")
# the positive class is the one with fewer training labels
RARER = "auto"


def numbers_of(text: str) -> np.ndarray:
    """The numbers of a key, separated by commas, [n] float64.

    Raises:
        ValueError: They are not finite numbers of at least 0, of which one is above 0.
    """
    try:
        numbers = np.array([float(part) for part in text.split(",")])
    except ValueError:
        numbers = np.zeros(0)
    if not (np.isfinite(numbers).all() and (numbers >= 0).all() and numbers.any()):
        raise ValueError(
            f"expected {', '.join(WEIGHTS)}, or a number of at least 0 for each class, separated by"
            f" commas, such as 1,4.5{did_you_mean(text, WEIGHTS)}"
        )
    return numbers


def is_number(text: str) -> bool:
    """Whether text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def check_weights(job: Any, labels: str, width: int, columns: Mapping[str, Any]) -> None:
    """Check the weights of a job against the labels and columns of a graph.

    Raises:
        ConfigError: There are no classes, another number of them, or no such column.
        DataError: A weight in the column is negative or not finite, or it has several numbers a
            row.
    """
    if job.class_weights != "none" and labels == "values":
        raise ConfigError(
            f"class_weights={job.class_weights} has no meaning for real values; drop"
            " --class-weights"
        )
    if job.class_weights not in WEIGHTS and len(numbers := numbers_of(job.class_weights)) != width:
        raise ConfigError(
            f"class_weights={job.class_weights} has {len(numbers)} number(s), but the data has"
            f" {width} {labels}; give one for each"
        )
    name = job.sample_weights
    if not name:
        return
    if name not in columns:
        raise ConfigError(
            f"sample_weights={name}: the graph has no such column{did_you_mean(name, columns)}; it"
            f" has {', '.join(columns) or 'none'}; add one with gt.Graph(..., node_columns=...) or"
            " edge_columns=..."
        )
    values = np.asarray(columns[name])
    wrong = np.flatnonzero(~(values >= 0) | ~np.isfinite(values))
    if values.ndim != 1 or len(wrong):
        what = (
            f"its shape is {list(values.shape)}"
            if values.ndim != 1
            else f"row {wrong[0]} is {values[wrong[0]]}"
        )
        raise DataError(
            f"sample_weights={name}: {what}; expected one finite number of at least 0 for each row"
        )


def weighting_of(job: Any, task: NodeTask, partition: Partition, width: int) -> Weighting | None:
    """The weights of a job's node task; None if all rows weigh the same.

    Args:
        job: The job.
        task: Has the targets.
        partition: Has the columns.
        width: Number of classes or labels.

    Raises:
        DataError: All targets weigh 0; on all workers together.

    Collective: all ranks of the partition.
    """
    if job.class_weights == "none" and not job.sample_weights:
        return None
    y = task.labels_of_targets()
    comm = partition.halo_comm
    classes = None
    one_each = task.kind == "classes"
    if job.class_weights == "balanced":
        counts = (
            np.bincount(y[y >= 0], minlength=width)
            if one_each
            else np.stack([(y == value).sum(axis=0) for value in (0, 1)])
        )
        classes = balanced(comm.all_sum(counts))
    elif job.class_weights != "none":
        given = numbers_of(job.class_weights)
        classes = given if one_each else np.stack((np.ones_like(given), given))
    weighting = Weighting(classes, job.sample_weights)
    weights = weighting.of(
        y, task.column_of_targets(job.sample_weights) if job.sample_weights else None
    )
    labelled = y >= 0 if one_each else ~np.isnan(y)
    weights = np.broadcast_to(
        weights.reshape(len(y), *[1] * (y.ndim - weights.ndim), *weights.shape[1:]), y.shape
    )[labelled]
    total, n = comm.all_sum(np.array([weights.sum(), len(weights)], np.float64))
    check_total(total)
    return replace(weighting, mean=total / n)


def check_total(weight: float) -> None:
    """Check what the training targets of all workers weigh together; DataError if it is 0."""
    if not weight:
        raise DataError(
            "all training targets weigh 0; raise the weights of their classes or rows with"
            " --class-weights or --sample-weights"
        )


def threshold_of(text: str, labels: str, width: int) -> Threshold | None:
    """The threshold of a job; None for 0.5.

    Raises:
        ConfigError: The labels are neither two classes nor several labels a row.
    """
    if text not in GOALS and float(text) == 0.5:
        return None
    if labels == "values" or (labels == "classes" and width != 2):
        raise ConfigError(
            f"threshold={text} decides between two classes, or on each of several labels; the data"
            f" has {'real values' if labels == 'values' else f'{width} classes'}; drop --threshold"
        )
    return Threshold(goal=text) if text in GOALS else Threshold(float(text))


def positive_of(given: str, labels: str, names: Sequence[str], width: int) -> int | None:
    """Number of the positive class of a job; None if the training labels decide.

    Args:
        given: The key ``positive`` of the job.
        labels: Kind of the labels.
        names: Names of the classes; empty if they are numbered.
        width: Number of classes.

    Raises:
        ConfigError: There is no such class, or the labels are not two classes.
    """
    if given == RARER:
        return None
    if labels != "classes" or width != 2:
        others = {"values": "real values", "labels": "several labels, whose positive value is 1"}
        raise ConfigError(
            f"positive={given} chooses one of two classes, but the data has "
            f"{others.get(labels, f'{width} classes')}; drop --positive"
        )
    # a name that is a number comes before the number
    choices = [*names, *(str(i) for i in range(width) if str(i) not in names)]
    if given not in choices:
        raise ConfigError(
            f"positive={given}: there is no such class{did_you_mean(given, choices)}; "
            f"the classes are {', '.join(names or choices)}"
        )
    return choices.index(given) if given in names else int(given)


def rarer_class(task: NodeTask, partition: Partition) -> int:
    """Number of the class, of two, that has fewer training labels; 1 if both have equally many.

    Collective: all ranks of the partition.
    """
    y = task.labels_of_targets()
    first, second = partition.halo_comm.all_sum(np.bincount(y[y >= 0], minlength=2))
    return int(second <= first)
