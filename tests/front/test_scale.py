"""Messages of a worker from the start of a job to its end, on 4 to 32 workers: collectives, and
messages to single workers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import fill

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.partition.table import DistributedTable
from graphtheta.engine.runtime.timeline import tracing
from graphtheta.run.log.runlog import RunLog

pytestmark = pytest.mark.reference

SIZES = (4, 32)
N_NODES = 256
Counts = dict[str, tuple[int, int, int]]


def ring(n: int = N_NODES) -> gt.Graph:
    """A ring in both directions: with blocks of ids, a worker has two neighbours, whatever their
    number.
    """
    a = np.arange(n)
    b = np.roll(np.arange(n), -1)
    return fill(
        np.concatenate((a, b)),
        np.concatenate((b, a)),
        n,
        edge_attr=None,
        edge_weight=None,
        edge_y=None,
        edge_train=None,
        edge_val=None,
        edge_test=None,
    )


class Meter:
    """Counts what a worker sends, phase by phase."""

    def __init__(self, comm: Any):
        self._comm = comm
        self._before = np.zeros(2, int)
        self.found = {}

    def phase(self, name: str) -> None:
        """The phase has ended: its collectives, messages to single workers, and the number of
        workers that have received any so far.
        """
        single = self._comm.ledger.receivers(self._comm.size)[:, 1]
        every = sum(book["messages"] for book in self._comm.ledger.snapshot().values())
        now = np.array([every - single.sum(), single.sum()])
        self.found[name] = (*(now - self._before).tolist(), int((single > 0).sum()))
        self._before = now


def counted(size: int, folder: Path, keys: dict[str, Any]) -> Counts:
    """The largest counts of any worker, by phase."""

    def program(comm: Any) -> Counts:
        meter = Meter(comm)
        trainer = gt.Trainer(
            "gcn",
            ring(),
            comm=comm,
            masters="block",
            partitioner="1d-src",
            hidden=4,
            epochs=2,
            out=str(folder / str(size)),
            **keys,
        )
        meter.phase("start")
        trainer.train_epoch(0)
        meter.phase("epoch")
        trainer.evaluate()
        meter.phase("evaluate")
        with RunLog(trainer.job, comm, "accuracy") as log:
            trainer.fit(log)
            meter.phase("fit")
            log.write_profile(1, [])
        meter.phase("profile")
        with tracing(comm, folder / f"{size}.json"):
            comm.barrier()
        meter.phase("timeline")
        return meter.found

    every = run_simulated(size, program)
    assert list((folder / str(size) / "checkpoints").iterdir())
    return {
        name: tuple(np.max([found[name] for found in every], axis=0).tolist()) for name in every[0]
    }


# an epoch is one step: how many steps a worker makes between two messages about its state depends
# on their time
@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "keys",
    [
        {"strategy": "global"},
        {"strategy": "mini"},
        {"strategy": "cluster", "clusters": 4, "clusters_per_batch": 4, "history": "gas"},
    ],
    ids=["global", "mini", "histories"],
)
def test_no_phase_of_a_job_has_more_messages_than_neighbours_and_levels(
    keys: dict[str, Any], tmp_path: Path
) -> None:
    few, more = (counted(size, tmp_path, keys) for size in SIZES)
    assert {name: one[0] for name, one in few.items()} == {
        name: one[0] for name, one in more.items()
    }
    # a worker has two neighbours; the targets of mini-batches are sorted among the workers, and
    # their ranks come back
    targets = N_NODES // SIZES[1] if "mini" in keys.values() else 0
    assert more["start"][1] <= 2 + 2 * targets
    # gradients are summed in as many rounds as a tree has levels; what rank 0 gathers is sent to a
    # parent
    levels = int(np.log2(SIZES[1] / SIZES[0]))
    for name, steps in {"epoch": 1, "evaluate": 0, "fit": 2, "profile": 0, "timeline": 0}.items():
        assert more[name][1] - few[name][1] == steps * levels, name


def test_look_ups_reach_only_workers_that_have_entries() -> None:
    def program(comm: Any) -> tuple[int, ...]:
        meter = Meter(comm)
        own = np.arange(4) + 4 * comm.rank
        table = DistributedTable(comm, own, own, lambda keys: (keys // 4).astype(np.int32))
        meter.phase("make")
        assert table.look_up(own[:1] ^ 4).tolist() == [own[0] ^ 4]
        meter.phase("look up")
        return meter.found["make"][:2] + meter.found["look up"][:2]

    # two exchanges, whose counts of rows are one collective each, and one question and one answer
    assert [set(run_simulated(size, program)) for size in (2, 32)] == [{(2, 0, 2, 2)}] * 2


def test_plans_of_a_partition_send_to_neighbours_only() -> None:
    def program(comm: Any) -> int:
        meter = Meter(comm)
        build_partition(ring(), comm, "1d-src", "block")
        meter.phase("build")
        return meter.found["build"][2]

    assert run_simulated(16, program) == [2] * 16
