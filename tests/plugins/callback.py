"""A callback: ends the training when the loss has come down far enough, and counts the updates."""
import graphtheta as gt


class Until(gt.Callback):
    """Give it as ``trainer.fit(callbacks=[Until(0.5)])``.

    Args:
        loss: Of the training, at which it ends.
    """

    def __init__(self, loss):
        self.loss, self.updates = loss, 0

    def on_step(self, now):
        """After every update."""
        self.updates += 1

    def on_evaluation(self, now):
        """True ends the training, on all workers."""
        return now.row["loss"] < self.loss
