"""Decisions counted by class: accuracy, F1, balanced accuracy, and a report of each class.

=====================  =======================================================================
measure                sums over workers, then values
=====================  =======================================================================
accuracy, F1, ...      counts [C, 4] of each class: true positives, false positives, false
                       negatives, true negatives
report                 precision, recall, F1 and support of each class, of the same counts
=====================  =======================================================================

Counts are integers, so values are equal on any number of workers. Classes that do not occur are
treated as scikit-learn does; each function says how.
"""

from __future__ import annotations

import numpy as np

from graphtheta.errors import ConfigError

from .shared import counted, ratio, same_shape


def confusion(labels: np.ndarray, predicted: np.ndarray, n_classes: int) -> np.ndarray:
    """Confusion matrix.

    Args:
        labels: True classes, [n] integers; negative ones (unlabelled) are left out.
        predicted: Predicted classes, [n] integers in 0..n_classes-1.
        n_classes: Number of classes C.

    Returns:
        [C, C] int64, rows true and columns predicted; adds up over workers.
    """
    same_shape(labels, predicted)
    labelled = labels >= 0
    said = predicted[labelled].astype(np.int64, copy=False)
    flat = labels[labelled].astype(np.int64) * n_classes + said
    return np.bincount(flat, minlength=n_classes * n_classes).reshape(n_classes, n_classes)


def counts_of(matrix: np.ndarray) -> np.ndarray:
    """Counts of each class against all others of a confusion matrix, [C, 4]."""
    true = np.diag(matrix)
    wrong = matrix.sum(axis=0) - true
    missed = matrix.sum(axis=1) - true
    return np.stack((true, wrong, missed, matrix.sum() - true - wrong - missed), axis=1)


def label_counts(labels: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Counts of each of several labels a row.

    Args:
        labels: [n, C] of 0 and 1; NaN (unknown) is left out.
        predicted: [n, C], true where a label is predicted.

    Returns:
        [C, 4] int64; adds up over workers.
    """
    same_shape(labels, predicted)
    yes = labels == 1
    no = labels == 0
    said = predicted.astype(bool)
    return np.stack(
        [(a & b).sum(axis=0) for a, b in ((yes, said), (no, said), (yes, ~said), (no, ~said))],
        axis=1,
    ).astype(np.int64)


@counted
def matrix_sums(labels: np.ndarray, out: np.ndarray) -> np.ndarray:
    """:func:`confusion` of the classes whose output is largest, [C, C] int64; arguments as for
    :func:`class_sums`.
    """
    return confusion(labels, out.argmax(axis=1), out.shape[1])


def class_sums(labels: np.ndarray, out: np.ndarray) -> np.ndarray:
    """:func:`counts_of` the classes whose output is largest, [C, 4] int64; labels [n] as in
    :func:`confusion`, out [n, C].
    """
    return counts_of(matrix_sums(labels, out))


@counted
def label_sums(labels: np.ndarray, out: np.ndarray) -> np.ndarray:
    """:func:`label_counts` of outputs [n, C], which predict a label where they are above 0."""
    return label_counts(labels, out > 0)


@counted
def binary_sums(labels: np.ndarray, out: np.ndarray) -> np.ndarray:
    """:func:`label_counts` of one label a row, [1, 4] int64; labels [n] of 0 and 1, outputs [n]."""
    return label_counts(labels[:, None], out[:, None] > 0)


def accuracy(counts: np.ndarray) -> float:
    """Share of rows that are right, of counts [C, 4] of classes."""
    return ratio(float(counts[:, 0].sum()), float(counts[:, [0, 2]].sum()))


def f1(counts: np.ndarray, average: str = "micro") -> float:
    """F1 of counts [C, 4].

    Args:
        counts: Of each class, as :func:`counts_of` and :func:`label_counts` make them.
        average: ``"micro"`` pools all classes; ``"macro"`` is the mean over the classes that occur,
            in truth or prediction. Of classes this is what scikit-learn computes, and of several
            labels what it computes with ``zero_division=nan``.

    Raises:
        ConfigError: Another average.
    """
    if average not in ("micro", "macro"):
        raise ConfigError(f"F1 is averaged 'micro' or 'macro', not {average!r}")
    if average == "micro":
        counts = counts.sum(axis=0, keepdims=True)
    true = counts[:, 0].astype(np.float64)
    wrong = counts[:, 1:3].sum(axis=1)
    occurs = true + wrong > 0
    return (
        float(np.mean(2 * true[occurs] / (2 * true[occurs] + wrong[occurs])))
        if occurs.any()
        else float("nan")
    )


def class_recalls(labels: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Rows found and rows missed of each class, [1, C, 2] int64; arguments as for
    :func:`class_sums`.
    """
    return class_sums(labels, out)[None][..., [0, 2]]


def label_recalls(labels: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Rows found and rows missed of 1 and of 0 of each label, [C, 2, 2] int64; arguments as for
    :func:`label_sums`.
    """
    counts = label_sums(labels, out)
    return np.stack((counts[:, [0, 2]], counts[:, [3, 1]]), axis=1)


def balanced_accuracy(recalls: np.ndarray) -> float:
    """Mean recall of the classes that occur in truth.

    Args:
        recalls: [m, C, 2] as :func:`class_recalls` and :func:`label_recalls` make them.

    Returns:
        The mean over the first axis of the mean over the classes that occur; NaN if none does.
    """
    rows = recalls.sum(axis=2)
    accuracies = [
        float(np.mean(of[occurs, 0] / n[occurs]))
        for of, n in zip(recalls, rows, strict=True)
        if (occurs := n > 0).any()
    ]
    return float(np.mean(accuracies)) if accuracies else float("nan")


def class_report(counts: np.ndarray) -> dict[str, np.ndarray]:
    """Precision, recall, F1 and support (rows of that class) of each class, [C] each, of counts [C,
    4].

    A precision without predictions, and a recall without rows, is 0, as in scikit-learn.
    """
    true, wrong, missed = counts[:, :3].T.astype(np.float64)

    def share(below: np.ndarray, above: np.ndarray = true) -> np.ndarray:
        return np.divide(above, below, out=np.zeros_like(above), where=below > 0)

    return {
        "precision": share(true + wrong),
        "recall": share(true + missed),
        "f1": share(2 * true + wrong + missed, 2 * true),
        "support": counts[:, 0] + counts[:, 2],
    }
