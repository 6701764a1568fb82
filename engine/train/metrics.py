"""Metrics as objects, for evaluation, the choice of the best model, and the keys of a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from graphtheta.base.registry import Registry
from graphtheta.errors import ConfigError

from ...ops.functions.metrics import calibration, counts, ranking, regression, retrieval, scores
from ..comm.communicator import Comm

Sums = Callable[..., np.ndarray]


@dataclass(frozen=True, eq=False)
class Metric:
    """One measure of quality.

    It is computed from rows of one of these kinds:

    ===========  ===================================================================================
    kind         arrays of this worker's rows
    ===========  ===================================================================================
    "classes"    ``y`` [n] integers of at least 0, ``out`` [n, C]
    "binary"     classes if there are two: ``y`` [n], 1 for the positive class and else 0, ``out``
                 [n], its output minus the other one; above 0 predicts it
    "labels"     ``y`` [n, C] of 0 and 1 (NaN: unknown), ``out`` [n, C]; above 0 predicts the label
    "values"     ``y`` [n, ...] (NaN: unknown), ``out`` of the same shape
    "ranks"      ``rank`` [n] float64, of each positive link that has negatives among these, counted
                 from 1
    "retrieved"  ``recall`` and ``ndcg`` of each source of links among the first k of
                 ``retrieval.TOPS`` candidates, [n, number of k] float64
    ===========  ===================================================================================

    Attributes:
        name: In a job, and after "train_", "val_" or "test_" in results.
        sums: For each kind of rows that it fits, a function of their arrays whose results add up
            over workers: an array of the same shape and type on every worker, zeros for no rows.
            None if the metric is not a function of such sums.
        merge: Puts the results of ``sums`` on all workers together, in the order of the ranks; None
            to add them.
        value: Computes the metric from the sums over all workers; without sums, from the arrays
            of all rows, on rank 0.
        smaller_is_better: Whether the best model has the smallest value.
        default_for: Kinds of rows for which this metric chooses the best model by default.
        decides: Whether it compares decisions with labels. If the job has a threshold, ``out`` is
            1 for such a metric where it is passed, and -1 elsewhere.
        undefined: When it is NaN although all outputs are numbers, to tell the user.
    """

    name: str
    sums: Mapping[str, Sums | None]
    value: Callable[..., float]
    smaller_is_better: bool = False
    default_for: tuple[str, ...] = ()
    decides: bool = False
    merge: Callable[[Sequence[np.ndarray]], np.ndarray] | None = None
    undefined: str = ""

    def fits(self, kinds: Sequence[str]) -> bool:
        """Whether it measures rows of one of these kinds."""
        return any(kind in self.sums for kind in kinds)


COUNTS: Mapping[str, Sums] = {"classes": counts.class_sums, "labels": counts.label_sums}
RECALLS: Mapping[str, Sums] = {"classes": counts.class_recalls, "labels": counts.label_recalls}
CALIBRATION: Mapping[str, Sums] = {
    "classes": calibration.class_calibration_sums,
    "labels": calibration.label_calibration_sums,
}
GATHERED: Mapping[str, None] = {"labels": None, "binary": None}
ONE_CLASS = "all its known labels are of one class"
NO_POSITIVES = "the positive class occurs in neither truth nor prediction"
NO_CANDIDATES = "none of its links has a candidate to be ranked among, or one scores NaN"
EQUAL_TARGETS = "all its targets of a column are equal"


def _f1(
    name: str, sums: Mapping[str, Sums], value: Callable[..., float], **settings: Any
) -> Metric:
    return Metric(name, sums, value, decides=True, undefined=NO_POSITIVES, **settings)


def _error(name: str, value: Callable[..., float], **settings: Any) -> Metric:
    sums = {"values": regression.regression_sums}
    return Metric(name, sums, value, merge=regression.merged, **settings)


def _of_ranks(name: str, value: Callable[..., float], **settings: Any) -> Metric:
    return Metric(name, {"ranks": ranking.ranking_sums}, value, undefined=NO_CANDIDATES, **settings)


def _retrieval(name: str, at: int) -> Metric:
    value = partial(retrieval.retrieval_mean, at=at)
    return Metric(name, {"retrieved": retrieval.retrieval_sums}, value, undefined=NO_CANDIDATES)


METRICS: Registry[Metric] = Registry(
    "metric",
    lambda x: isinstance(x, Metric),
    ("auto", "loss"),
    (
        Metric(
            "accuracy",
            {"classes": counts.class_sums},
            counts.accuracy,
            decides=True,
            default_for=("classes",),
        ),
        Metric("balanced_accuracy", RECALLS, counts.balanced_accuracy, decides=True),
        _f1("f1_micro", COUNTS, counts.f1, default_for=("labels",)),
        _f1("f1_macro", COUNTS, partial(counts.f1, average="macro")),
        _f1("f1", {"binary": counts.binary_sums}, counts.f1),
        Metric("auc", GATHERED, scores.auc, undefined=ONE_CLASS),
        Metric("average_precision", GATHERED, scores.average_precision),
        Metric("ece", CALIBRATION, calibration.calibration_error, smaller_is_better=True),
        _of_ranks("mrr", ranking.mrr, default_for=("ranks",)),
        *(_of_ranks(f"hits{k}", partial(ranking.hits, k=k)) for k in ranking.KS),
        *(_retrieval(f"recall{k}", at) for at, k in enumerate(retrieval.TOPS)),
        *(_retrieval(f"ndcg{k}", len(retrieval.TOPS) + at) for at, k in enumerate(retrieval.TOPS)),
        _error("mae", regression.mae, smaller_is_better=True),
        _error("rmse", regression.rmse, smaller_is_better=True),
        _error("r2", regression.r2, default_for=("values",), undefined=EQUAL_TARGETS),
    ),
)


def fitting(kinds: Sequence[str]) -> list[Metric]:
    """The metrics that measure rows of one of these kinds, in the order of ``METRICS``."""
    return [m for m in list(METRICS.values()) if m.fits(kinds)]


def choose_metric(name: str, kinds: Sequence[str]) -> Metric:
    """The metric by which the best model is chosen.

    Args:
        name: Name in a job; "auto" is the default of the first kind that has one.
        kinds: Kinds of rows of the task.

    Raises:
        ConfigError: There is no such metric, or it measures something else.
    """
    if name != "auto":
        metric = METRICS.find(name)
        if not metric.fits(kinds):
            raise ConfigError(
                f"metric={name} does not measure this task; choose from"
                f" {', '.join(m.name for m in fitting(kinds))}"
            )
        return metric
    usable = fitting(kinds)
    defaults = [m for kind in kinds for m in usable if kind in m.default_for]
    if not usable:
        raise ConfigError(f"no metric measures {' or '.join(kinds)}; add one with gt.METRICS.add")
    return (defaults or usable)[0]


def measure(
    comm: Comm, kind: str, *rows: np.ndarray, decided: np.ndarray | None = None
) -> dict[str, float]:
    """Every metric that fits a kind of rows, over the rows of all workers. Metrics with the same
    sums share them.

    Args:
        comm: The workers.
        kind: Kind of the rows.
        *rows: The arrays of this worker's rows.
        decided: Replaces the last of them for metrics that decide: 1 where something is predicted,
            and -1 elsewhere; None if they read the same.

    Collective: all ranks of comm.
    """
    values = dict[str, float]()
    shared = dict[Any, Any]()
    for m in fitting((kind,)):
        sums = m.sums[kind]
        given = rows if decided is None or not m.decides else (*rows[:-1], decided)
        read = sums, m.merge, given is rows
        if sums is None:
            if read not in shared:
                # of all workers, on rank 0
                every = (comm.gather_rows(x) for x in given)
                shared[read] = [np.concatenate(parts) for parts in every if parts is not None]
            value = float(m.value(*shared[read])) if comm.rank == 0 else 0.0
            values[m.name] = comm.broadcast(value)
            continue
        if read not in shared:
            local = sums(*given)
            shared[read] = (
                comm.all_sum(local) if m.merge is None else m.merge(comm.all_gather(local))
            )
        values[m.name] = float(m.value(shared[read]))
    return values
