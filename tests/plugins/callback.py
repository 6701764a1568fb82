"""A callback that counts the updates and ends the training below a given loss."""

import graphtheta as gt


class Until(gt.Callback):
    """Give it as ``trainer.fit(callbacks=[Until(0.5)])``.

    Args:
        loss: Training loss below which the training ends.
    """

    def __init__(self, loss):
        self.loss = loss
        self.updates = 0

    def on_step(self, now):
        """After every update."""
        self.updates += 1

    def on_evaluation(self, now):
        """True ends the training, on all workers."""
        return now.row["loss"] < self.loss
