"""Expected calibration error: how far the confidence of predictions is from the share that is
right.

Source: Guo et al., On Calibration of Modern Neural Networks, https://arxiv.org/abs/1706.04599,
section 2
"""

from __future__ import annotations

import numpy as np

from .shared import counted, exponentials

# bins of equal width; confidences are summed as multiples of 1 / UNIT, so that sums do not depend
# on their order
BINS = 15
UNIT = 1 << 30


def calibration_sums(confidence: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Rows, right rows and confidences by bin of confidence, the last in multiples of 1 / UNIT.

    Args:
        confidence: Probability of the predicted class, [n].
        right: Whether that class is the true one, [n] bool.

    Returns:
        [BINS, 3] int64; adds up over workers. Bin i holds confidences in (i / BINS, (i + 1) /
        BINS]. A confidence that is NaN counts as one of 1 that is wrong.
    """
    broken = np.isnan(confidence)
    confidence = np.where(broken, 1.0, confidence.astype(np.float64))
    bins = np.clip(np.ceil(confidence * BINS).astype(np.int64) - 1, 0, BINS - 1)
    out = np.zeros((BINS, 3), np.int64)
    # of each bin the wrong rows, then the right ones
    each = np.bincount(bins + BINS * (right & ~broken), minlength=2 * BINS).reshape(2, BINS)
    out[:, 0] = each.sum(axis=0)
    out[:, 1] = each[1]
    np.add.at(out[:, 2], bins, np.rint(confidence * UNIT).astype(np.int64))
    return out


@counted
def class_calibration_sums(labels: np.ndarray, out: np.ndarray) -> np.ndarray:
    """:func:`calibration_sums` of softmax probabilities of the most likely class.

    Args:
        labels: Classes, [n] integers, negative if unknown.
        out: Outputs, [n, C]; those of equal infinities share the probability.
    """
    labelled = labels >= 0
    wide = out[labelled].astype(np.float64)
    largest = wide.argmax(axis=1)
    top = np.take_along_axis(wide, largest[:, None], 1)
    confidence = 1 / exponentials(wide, top).sum(axis=1)
    return calibration_sums(confidence, largest == labels[labelled])


@counted
def label_calibration_sums(labels: np.ndarray, out: np.ndarray) -> np.ndarray:
    """:func:`calibration_sums` of all known labels; the confidence is that of the likelier of 0 and
    1.

    Args:
        labels: [n, C] of 0 and 1; NaN if unknown.
        out: Logits, [n, C].
    """
    labelled = ~np.isnan(labels)
    logits = out[labelled].astype(np.float64)
    return calibration_sums(
        1 / (1 + np.exp(-np.abs(logits))), (logits > 0) == (labels[labelled] == 1)
    )


def calibration_error(sums: np.ndarray) -> float:
    """Mean, over all rows, of the difference of mean confidence and share of right rows in the
    row's bin.
    """
    n, right, units = sums.T
    return float(np.abs(units / UNIT - right).sum() / n.sum()) if n.sum() else float("nan")
