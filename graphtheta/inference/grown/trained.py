"""What a trained model carries from the graph that it was trained on to other graphs; stored with
its weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from graphtheta.errors import ConfigError, FormatError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.schema.schema import Schema
from graphtheta.ops.functions.losses.weighting import Weighting
from graphtheta.run.job.job import Job
from graphtheta.tasks.evaluation.threshold import Threshold
from graphtheta.tasks.kinds.kind import TaskKind
from graphtheta.tasks.kinds.registry import TASKS

# the positive class of runs of versions that did not choose it
EARLIER_POSITIVE = 1


class Trained(BaseModel):
    """Facts about the graph of a training, which are applied to other graphs and not computed from
    these.

    Attributes:
        graph: Form of the graph.
        read: The columns that the model reads, "node.NAME" and "edge.NAME".
        task: Kind of task.
        class_weights: Weights of classes in the loss, see ``Weighting``; None if all weigh 1.
        weight_column, weight_mean: See ``Weighting``.
        weighted: Whether rows have weights in the loss.
        thresholds: Probabilities above which labels, or the positive class, are predicted, as they
            were chosen last; None if all are 0.5.
        positive: Number of the positive class of two classes.
        target_types: Codes of the types of nodes that have labels; empty if all may have some.
        epoch: Epochs that the weights were trained for.
        prepared: How the dataset was prepared: the options "symmetric", "self_loops" and
            "normalise_features" of ``gt.load``. Empty for a graph that was given in Python.
    """

    model_config = ConfigDict(extra="forbid")

    graph: Schema
    read: list[str]
    task: str
    weighted: bool
    class_weights: list[Any] | None
    weight_column: str
    weight_mean: float
    thresholds: list[float] | None
    positive: int = EARLIER_POSITIVE
    target_types: tuple[int, ...] = ()
    epoch: int = 0
    prepared: dict[str, str]

    @property
    def weighting(self) -> Weighting | None:
        """Weights of rows in the loss; None if all weigh the same."""
        classes = None if self.class_weights is None else np.array(self.class_weights)
        return Weighting(classes, self.weight_column, self.weight_mean) if self.weighted else None

    def kind(self, job: Job) -> type[TaskKind]:
        """The kind of task of a job with this training; it may be in a file of the user."""
        return TASKS.find(self.task if job.task == "auto" else job.task)

    def threshold(self, positive: int) -> Threshold | None:
        """The thresholds as those of a positive class, which decide alike; None for none."""
        if self.thresholds is None:
            return None
        return Threshold(tuple(x if positive == self.positive else 1 - x for x in self.thresholds))

    @classmethod
    def read_from(cls, text: str, where: str) -> Trained:
        """From the text of a file of weights.

        Raises:
            ConfigError: The file holds none.
            FormatError: It is damaged.
        """
        if not text:
            raise ConfigError(
                f"{where} does not say which graph the model was trained on, because an earlier"
                " version wrote it; train again, or open the run in Python: gt.Trainer(job=...),"
                " then load the weights and call on(graph)"
            )
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise FormatError(
                f"{where}: damaged, or written by another version: what it says about the graph is"
                f" not valid ({error.errors()[0]['msg']}); train again"
            ) from None

    def check_nodes(self, graph: Graph) -> None:
        """Check that nodes of a graph whose features are learned are those of the training.

        Raises:
            DataError: Some have no learned features.
        """
        for nodes in self.graph.learned.values():
            nodes.check(graph, self.graph.name)
