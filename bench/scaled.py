"""Jobs on hundreds of machines that a file describes, on graphs that stand for larger ones."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from excerpts import Drawn

import graphtheta as gt
from graphtheta.inspect.planning.machine import Machine
from graphtheta.inspect.planning.plan import Row
from graphtheta.inspect.planning.skeleton import skeleton
from graphtheta.inspect.planning.work import LISTED, NODES, PARTS, UPDATE_PASSES, Load
from graphtheta.inspect.simulation.cluster import Cluster
from graphtheta.inspect.simulation.simulate import Point, simulated

# how many times slower workers compute, and how many times faster links are, than in the file
SETTINGS = {"links x 4": (1.0, 4.0), "links / 4": (1.0, 0.25), "computing x 4": (4.0, 1.0)}

# parts of the work that grow with the graph
GROWING = slice(LISTED + 1)


def grown(load: Load, times: float) -> Load:
    """What workers compute on a graph of so many times as many nodes and edges."""
    parts = load.parts.copy()
    parts[..., GROWING] *= times
    return Load(parts, load.blocks * times, load.kernels)


@dataclass(frozen=True)
class Larger(Cluster):
    """A cluster that trains a graph of ``times`` as many nodes and edges as the one that is
    counted.
    """

    times: float

    def compute(self, load: Load, workers: int) -> np.ndarray:
        """As of a cluster; operations are as many as before."""
        return super().compute(grown(load, self.times), workers)

    def transfer(
        self,
        sent: np.ndarray,
        messages: np.ndarray,
        workers: int,
        collectives: float = 0.0,
        counted: bool = False,
    ) -> float:
        """As of a cluster."""
        return super().transfer(sent * self.times, messages, workers, collectives, counted)

    def corrected(self, row: Row, parameters: int) -> Row:
        """A row without what does not grow with the graph: the bytes of gradients, and updates.

        Args:
            row: A plan for this cluster.
            parameters: Bytes of the parameters.
        """
        more = self.times - 1
        summed = more * row.summed / row.workers * self.congestion / self.bandwidth
        updates = more * row.steps * UPDATE_PASSES * parameters * self.seconds[NODES]
        return replace(
            row,
            compute=row.compute - updates,
            transfer=row.transfer - summed,
            carried=row.carried - summed,
        )


def read(path: Path, times: float) -> Larger:
    """A cluster of machines from a file, whose comments have the units.

    Args:
        path: The file, such as ``papers/cluster.yaml``.
        times: As of ``Larger``.
    """
    held: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    speed = Machine(
        seconds=tuple(held["seconds"][part] for part in PARTS),
        crowded=held["crowded"],
        wake=held["wake"],
        together=(held["crowded"], 1.0),
        message=held["move"],
        collective=held["move"],
        latency=0.0,
        byte=0.0,
        wire=0.0,
        cores=held["cores"],
        error=0.0,
    )
    made = Cluster.of(
        speed,
        held["latency"],
        held["bandwidth"],
        post=held["message"],
        congestion=held["congestion"],
    )
    return Larger(**asdict(made), times=times)


def job_of(graph: str, case: str, hidden: int, **keys: Any) -> dict[str, Any]:
    """Keys of a job."""
    return {
        "dataset": graph,
        "model": "gcn",
        "hidden": hidden,
        "strategy": case,
        "dropout": 0.0,
        "keep": 0,
        **keys,
    }


def larger(
    job: gt.Job,
    drawn: Drawn,
    workers: list[int],
    cluster: Larger,
    rehearsed: int,
    mode: str = "cooperative",
    views: int = 1,
) -> list[Point]:
    """A job that trains a graph of as many times as many nodes, on numbers of workers.

    Args:
        job: The job on the graph that was drawn.
        drawn: The graph.
        workers: Numbers of workers, one of each machine.
        cluster: The machines.
        rehearsed, mode, views: As of ``simulated``.
    """
    held = skeleton(job, drawn.graph)
    parameters = sum(p.value.nbytes for p in held.prepared.model.parameters())
    points = simulated(
        skeleton=held,
        jobs=[job],
        workers=[1, *workers],
        cluster=cluster,
        modes=[mode],
        per_machine=1,
        views=views,
        rehearsed=rehearsed,
    )
    one, *rest = (cluster.corrected(p.row, parameters) for p in points)
    # the search of a view, which one worker makes without messages, is shared; what messages take
    # is not larger
    return [
        Point(
            replace(row, build=row.build + (cluster.times - 1) * one.build / row.workers),
            one.compute,
        )
        for row in rest
    ]


def step(point: Point, slower: float, faster: float) -> float:
    """Seconds of a step if workers compute so many times slower, and bytes take that much less."""
    return step_of(point.parts, slower, faster) / point.row.steps


def step_of(parts: dict[str, float], slower: float, faster: float) -> float:
    """The same of the seconds of an epoch, by cause."""
    computed = parts["computing"] + parts["imbalance"] + parts["views"]
    return slower * computed + parts["bytes"] / faster + parts["messages"]
