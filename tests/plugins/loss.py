"""A loss: cross entropy that looks less at what the model knows already (https://arxiv.org/abs/1708.02002)."""
import graphtheta as gt


class Focal:
    """Give it as ``gt.Trainer(..., loss=Focal())``.

    Args:
        gamma: How much less; 0 is the cross entropy.
    """

    def __init__(self, gamma=2.0):
        self.gamma = gamma

    def __call__(self, out, y):
        """A value for each row: ``out`` [n, classes], ``y`` [n]."""
        known = gt.pick(gt.log_softmax(out), y)
        return -((1 - gt.exp(known)) ** self.gamma) * known
