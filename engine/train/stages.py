"""Stages of the pipeline, and threads that are bound to processors of a stage.

By default each thread of a rank takes whatever can continue. Here the processors of a rank are
divided among the stages: a thread for each processor takes the stages that the processor belongs
to and nothing else, and kernels of a stage use no other processor. The division does not change
results.

Source: resource isolation in BGL, https://arxiv.org/abs/2112.08541 (section 3.4)
"""

from __future__ import annotations

from dataclasses import dataclass

# the search of a view and its parts; the rows of its nodes; forward, backward and sum of gradients
SAMPLING, FEATURES, COMPUTE = STAGES = ("sampling", "features", "compute")


@dataclass(frozen=True)
class StageThreads:
    """Threads of some stages.

    Attributes:
        stages: Names of the stages, some of ``STAGES``.
        processors: Numbers of the processors, of which no other threads of a stage use one; each
            has a thread.
    """

    stages: tuple[str, ...]
    processors: tuple[int, ...]

    @property
    def name(self) -> str:
        """The stages in one word."""
        return "+".join(self.stages)
