"""A job on growing numbers of workers: the counts of its plan there, its times on a cluster, and
what limits it.

The plan (``graphtheta/inspect/planning``) divides the graph with the job's own partitioner, and
counts rows, edges, operations, bytes and messages of each worker for views that the job's own
strategy makes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from graphtheta.inspect.planning.plan import Row, planned
from graphtheta.inspect.planning.skeleton import Skeleton
from graphtheta.inspect.simulation.cluster import Cluster
from graphtheta.run.job.job import Job

# views of an epoch that are counted
VIEWS = 4
# most workers that make their views in a rehearsal; with more workers, what making views sends
# follows from these
REHEARSED = 64


@dataclass(frozen=True)
class Point:
    """A job on a number of workers.

    Attributes:
        row: Its plan.
        alone: Seconds that one worker computes in an epoch.
    """

    row: Row
    alone: float

    @property
    def step(self) -> float:
        """Seconds of a step, a view of cooperative or a group of views of independent workers."""
        return self.row.seconds / self.row.steps

    @property
    def parts(self) -> dict[str, float]:
        """Seconds of an epoch by cause.

        "computing" is the time of one worker divided by the number of workers; "imbalance" what the
        slowest worker computes more, with work that every worker does; "bytes" and "messages" are
        the time of moves and sums of gradients, and "views" that of making views.
        """
        row = self.row
        share = min(self.alone / row.workers, row.compute)
        return {
            "computing": share,
            "imbalance": row.compute - share,
            "views": row.build,
            "bytes": row.carried,
            "messages": row.transfer - row.carried,
        }

    @property
    def limit(self) -> str:
        """The part that takes most time."""
        return max(self.parts, key=self.parts.__getitem__)

    def figures(self) -> dict[str, Any]:
        """All figures by name."""
        return {
            **self.row.figures(),
            "step": self.step,
            "limit": self.limit,
            **{f"seconds of {name}": s for name, s in self.parts.items()},
        }


def simulated(
    skeleton: Skeleton,
    jobs: Sequence[Job],
    workers: Sequence[int],
    cluster: Cluster,
    modes: Sequence[str],
    per_machine: int = 1,
    views: int = VIEWS,
    rehearsed: int = REHEARSED,
    warm: bool = False,
) -> list[Point]:
    """Count a job on several numbers of workers, in this process.

    Args:
        skeleton: A job without features.
        jobs: The job, with other strategies, partitioners and keys of these.
        workers: Numbers of workers.
        cluster: Speed of the machines.
        modes: Modes of mini- and cluster-batch on several workers.
        per_machine: Workers of a machine.
        views: Views of an epoch that are counted, at most.
        rehearsed, warm: As for ``planned``.

    Raises:
        GraphThetaError: Job and graph do not fit together.
    """
    points = []
    for job in jobs:
        one = planned(skeleton, [job], [1], cluster, views=views)[0]
        rows = planned(
            skeleton=skeleton,
            jobs=[job],
            workers=[p for p in workers if p > 1],
            machine=cluster,
            modes=modes,
            per_machine=per_machine,
            views=views,
            rehearsed=rehearsed,
            warm=warm,
        )
        points += [Point(row, one.compute) for row in ([one] if 1 in workers else []) + rows]
    return points
