"""The focal loss: well-predicted rows weigh less in the cross entropy (arXiv 1708.02002)."""

import graphtheta as gt


class Focal:
    """Give it as ``gt.Trainer(..., loss=Focal())``.

    Args:
        gamma: Exponent of that weight; 0 gives the cross entropy.
    """

    def __init__(self, gamma=2.0):
        self.gamma = gamma

    def __call__(self, out, y):
        """A value for each row: ``out`` [n, classes], ``y`` [n]."""
        known = gt.pick(gt.log_softmax(out), y)
        return -((1 - gt.exp(known)) ** self.gamma) * known
