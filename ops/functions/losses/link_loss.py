"""Losses of links beside their negatives: a value for each row (score of the link, scores of its
negatives).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..constant import stop_gradient
from ..elementwise import softplus
from ..shape import softmax_over, sum
from .pick import log_softmax


def softmax_loss(out: Any, y: Any) -> Any:
    """Cross entropy of the link among itself and its negatives, [n].

    Source: https://openreview.net/forum?id=BkxSmlBFvr, section 2 ("cross entropy").

    Args:
        out: Scores, [n, 1 + negatives].
        y: Labels, which are not read: the link is the first of each row.
    """
    return -log_softmax(out)[:, 0]


def adversarial_loss(out: Any, y: Any, temperature: float = 1.0) -> Any:
    """Self-adversarial loss, [n]: negatives weigh as the softmax of their scores, which is a
    constant.

    The mean of the losses of the link and of its negatives, as in the authors' code. Source:
    https://arxiv.org/abs/1902.10197, equations 5 and 6.

    Args:
        out: Scores, [n, 1 + negatives].
        y: Labels, which are not read.
        temperature: Factor of the scores in the softmax, alpha of equation 5; with 0 all weights
            are equal.
    """
    negative = out[:, 1:]
    weights = stop_gradient(softmax_over(negative * temperature))
    return (softplus(-out[:, 0]) + sum(weights * softplus(negative))) * 0.5


# by name in jobs; "binary" is the cross entropy of each score as a label of its own
LINK_LOSSES: dict[str, Callable[[Any, Any], Any] | None] = {
    "binary": None,
    "softmax": softmax_loss,
    "adversarial": adversarial_loss,
}
