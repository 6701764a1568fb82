"""Tasks in flight: results and order do not depend on who waits for whom."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from graphtheta.engine.comm.channel import WORK_ITEM, Tag
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.train.scheduler import WorkQueue
from graphtheta.errors import CommError


def _ring(comm: Comm, number: int, rounds: int) -> int:
    """Pass a number round the ranks; each task waits several times."""
    x = np.array([100 * number + comm.rank])
    for _ in range(rounds):
        got = np.empty_like(x)
        after = (comm.rank + 1) % comm.size
        before = (comm.rank - 1) % comm.size
        if comm.size > 1:
            comm.move_begin([(after, x)], [(before, got)], Tag.TO_MIRRORS).end()
            x = got + 1
        x = comm.all_max(x) - comm.size + comm.rank
    return int(comm.all_sum(x)[0])


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("in_flight", [1, 2, 5])
def test_results_are_those_of_one_at_a_time(size: int, in_flight: int) -> None:
    def program(comm: Comm, in_flight: int) -> list[int]:
        queue = WorkQueue(comm, in_flight)
        # tasks of different lengths, more than there are channels
        return queue.run([partial(_ring, comm, i, 1 + i * 7 % 5) for i in range(23)])

    assert run_simulated(size, program, in_flight) == run_simulated(size, program, 1)


def test_tasks_take_turns_while_they_wait() -> None:
    def program(comm: Comm) -> list[str]:
        queue = WorkQueue(comm, 2)
        log = []

        def task(i: int) -> None:
            log.append(f"{i} begins")
            comm.all_sum(np.ones(1))
            log.append(f"{i} ends")

        queue.run([lambda i=i: task(i) for i in range(2)])  # type: ignore[misc]
        return log

    # the rank that is first finds nobody there
    assert ["0 begins", "1 begins"] in [log[:2] for log in run_simulated(2, program)]


def test_ranks_may_take_turns_differently() -> None:
    """Rank 0 talks in its second task first, rank 1 in its first; with one stream of messages the
    two would disagree.
    """

    def program(comm: Comm) -> list[float]:
        queue = WorkQueue(comm, 2)
        talks = [False, False]

        def task(i: int) -> float:
            if i == comm.rank:
                comm.until(lambda: talks[1 - i], "waits for its sibling")
            talks[i] = True
            return float(comm.all_sum(np.array([float(i)]))[0])

        return queue.run([lambda i=i: task(i) for i in range(2)])  # type: ignore[misc]

    assert run_simulated(2, program) == [[0.0, 2.0]] * 2


@pytest.mark.parametrize("size", [1, 2])
def test_the_error_of_the_first_failing_task_is_raised(size: int) -> None:
    def program(comm: Comm) -> None:
        queue = WorkQueue(comm, 3)

        def task(i: int) -> None:
            comm.all_sum(np.ones(1))
            if i in (2, 3):
                raise ValueError(f"task {i} fails")
            comm.all_sum(np.ones(1))

        queue.run([lambda i=i: task(i) for i in range(8)])  # type: ignore[misc]

    with pytest.raises(ValueError, match="task 2 fails"):
        run_simulated(size, program)


def test_tasks_that_wait_for_each_other_are_an_error() -> None:
    comm = SerialComm()

    def task(_: int) -> None:
        comm.until(lambda: False, "waits for what never comes")

    with pytest.raises(
        CommError,
        match=(
            "deadlock: every mini-batch of the pipeline waits: view 0 waits for what never comes;"
            " view 1"
        ),
    ):
        WorkQueue(comm, 2).run([lambda i=i: task(i) for i in range(2)])  # type: ignore[misc]


def test_several_cores_compute_at_a_time() -> None:
    comm = SerialComm()
    comm.cores = 2
    at_once, most = [0], [0]

    def task(i: int) -> int:
        at_once[0] += 1
        most[0] = max(most[0], at_once[0])
        np.linalg.svd(np.random.default_rng(i).standard_normal((150, 150)))
        at_once[0] -= 1
        assert WORK_ITEM.get() is not None
        return i

    assert WorkQueue(comm, 4).run([partial(task, i) for i in range(20)]) == list(range(20))
    assert most[0] == 2
    assert WORK_ITEM.get() is None


def test_books_hold_the_time_of_all_tasks() -> None:
    def program(comm: Comm) -> tuple[float, float]:
        queue = WorkQueue(comm, 3)
        before = comm.ledger.snapshot()

        def task() -> None:
            with comm.ledger.stage("gather"):
                comm.all_sum(np.ones(10))

        queue.run([task] * 7)
        book = comm.ledger.since(before)["gather"]
        return book["messages"], book["bytes"]

    assert run_simulated(2, program) == [(7, 560)] * 2
