"""Tasks in flight: results and order do not depend on who waits for whom."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from covering import covering

from graphtheta.engine.comm.channel import WORK_ITEM, Tag
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.train.scheduler import in_stage
from graphtheta.engine.train.stages import STAGES, StageThreads
from graphtheta.engine.train.step import WorkQueue
from graphtheta.errors import CommError
from graphtheta.ops.parallel import pool

binds = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads cannot be bound")
# processors that this process may use, at least one for each stage; on a small machine stages share
PROCESSORS = (sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]) * 4
STAGED = {
    "apart": [StageThreads((stage,), (PROCESSORS[i],)) for i, stage in enumerate(STAGES)],
    "two and one": [
        StageThreads(("sampling", "features"), (PROCESSORS[0],)),
        StageThreads(("compute",), (PROCESSORS[1],)),
    ],
    "first and last": [
        StageThreads(("features",), (PROCESSORS[0],)),
        StageThreads(("sampling", "compute"), (PROCESSORS[1], PROCESSORS[2])),
    ],
}


@contextmanager
def _in_stages(act: Callable[[str], Any]) -> Iterator[Callable[[], Any]]:
    """A work item that acts in each stage."""
    act("sampling")
    in_stage("features", partial(act, "features"))
    yield partial(act, "compute")


@contextmanager
def _ring(comm: Comm, number: int, rounds: int) -> Iterator[Callable[[], int]]:
    """Pass a number round the ranks in each stage; each task waits several times."""
    number = _pass_round(comm, number, rounds)
    number = in_stage("features", partial(_pass_round, comm, number, rounds))
    yield partial(_pass_round, comm, number, rounds)


def _pass_round(comm: Comm, number: int, rounds: int) -> int:
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


@binds
@pytest.mark.parametrize(
    ("size", "in_flight", "staged"), covering((1, 2, 3), (1, 2, 5), ("no", *STAGED))
)
def test_results_are_those_of_one_at_a_time(size: int, in_flight: int, staged: str) -> None:
    def program(comm: Comm, in_flight: int) -> list[int]:
        queue = WorkQueue(comm, in_flight)
        queue.stages = STAGED.get(staged, ())
        # tasks of different lengths, more than there are channels
        return queue.run([_ring(comm, i, 1 + i * 7 % 5) for i in range(23)])

    assert run_simulated(size, program, in_flight) == run_simulated(size, program, 1)


def test_tasks_take_turns_while_they_wait() -> None:
    def program(comm: Comm) -> list[str]:
        queue = WorkQueue(comm, 2)
        log = []

        def task(i: int) -> None:
            log.append(f"{i} begins")
            comm.all_sum(np.ones(1))
            log.append(f"{i} ends")

        queue.run([nullcontext(partial(task, i)) for i in range(2)])
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

        return queue.run([nullcontext(partial(task, i)) for i in range(2)])

    assert run_simulated(2, program) == [[0.0, 2.0]] * 2


@binds
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize(("staged", "stage"), [("no", "sampling"), *product(STAGED, STAGES)])
def test_the_error_of_the_first_failing_task_is_raised(size: int, staged: str, stage: str) -> None:
    def program(comm: Comm) -> None:
        queue = WorkQueue(comm, 3)
        queue.stages = STAGED.get(staged, ())

        def fail(i: int, its: str) -> None:
            comm.all_sum(np.ones(1))
            if its == stage and i in (2, 3):
                raise ValueError(f"task {i} fails")
            comm.all_sum(np.ones(1))

        queue.run([_in_stages(partial(fail, i)) for i in range(8)])

    before = threading.active_count()
    with pytest.raises(ValueError, match="task 2 fails"):
        run_simulated(size, program)
    _wait_for(lambda: threading.active_count() <= before)


@binds
def test_a_work_item_does_not_go_back_to_its_first_stage() -> None:
    """Threads of that stage may have ended."""
    queue = WorkQueue(SerialComm(), 2)
    queue.stages = STAGED["apart"]
    back = partial(in_stage, "sampling", int)
    with pytest.raises(CommError, match="asks for sampling after its first stage"):
        queue.run([nullcontext(back) for _ in range(2)])


def _wait_for(ready: Callable[[], bool]) -> None:
    """A thread that has been told to end takes a moment."""
    ended = threading.Event()
    for _ in range(600):
        if ready():
            return
        ended.wait(0.05)
    raise AssertionError([thread.name for thread in threading.enumerate()])


def _allowed() -> set[int]:
    """Processors of this thread, as the kernel lists them."""
    status = Path(f"/proc/self/task/{threading.get_native_id()}/status").read_text()
    listed = next(line for line in status.splitlines() if line.startswith("Cpus_allowed_list"))
    ranges = [part.split("-") for part in listed.split(":")[1].strip().split(",")]
    return {i for ends in ranges for i in range(int(ends[0]), int(ends[-1]) + 1)}


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="no list of threads")
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("staged", STAGED)
def test_stages_and_their_kernels_run_on_their_processors(staged: str, fails: bool) -> None:
    outside = _allowed()
    seen: list[tuple[str, set[int]]] = []

    def note(stage: str) -> None:
        def block(_: int) -> None:
            seen.append((stage, _allowed()))

        # the second takes idle threads, if the stage has some
        pool.run_blocks(block, 8, 0.0)
        pool.run_blocks(block, 8, 1.0)

    def act(i: int, stage: str) -> None:
        note(stage)
        assert not (fails and i == 9 and stage == "compute"), "a task fails"

    queue = WorkQueue(SerialComm(), 3)
    queue.stages = STAGED[staged]
    if fails:
        with pytest.raises(AssertionError, match="a task fails"):
            queue.run([_in_stages(partial(act, i)) for i in range(12)])
    else:
        queue.run([_in_stages(partial(act, i)) for i in range(12)])
    of_stage = {stage: set(each.processors) for each in queue.stages for stage in each.stages}
    assert {stage for stage, _ in seen} == set(STAGES)
    assert all(processors == of_stage[stage] for stage, processors in seen)
    # of the thread that called, which has its helpers too
    assert _allowed() == outside
    pool.run_blocks(lambda _: seen.append(("outside", _allowed())), 8, 1.0)
    assert all(processors == outside for stage, processors in seen if stage == "outside")


@binds
@pytest.mark.parametrize("staged", ["no", *STAGED])
def test_tasks_that_wait_for_each_other_are_an_error(staged: str) -> None:
    comm = SerialComm()

    def task() -> None:
        comm.until(lambda: False, "waits for what never comes")

    queue = WorkQueue(comm, 2)
    queue.stages = STAGED.get(staged, ())
    with pytest.raises(
        CommError,
        match=(
            "deadlock: every mini-batch of the pipeline waits: view 0 waits for what never comes;"
            " view 1"
        ),
    ):
        queue.run([nullcontext(task)] * 2)


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

    work = [nullcontext(partial(task, i)) for i in range(20)]
    assert WorkQueue(comm, 4).run(work) == list(range(20))
    assert most[0] == 2
    assert WORK_ITEM.get() is None


def test_books_hold_the_time_of_all_tasks() -> None:
    def program(comm: Comm) -> tuple[float, float]:
        queue = WorkQueue(comm, 3)
        before = comm.ledger.snapshot()

        def task() -> None:
            with comm.ledger.stage("gather"):
                comm.all_sum(np.ones(10))

        queue.run([nullcontext(task)] * 7)
        book = comm.ledger.since(before)["gather"]
        return book["messages"], book["bytes"]

    assert run_simulated(2, program) == [(7, 560)] * 2


def test_one_at_a_time_holds_one_view() -> None:
    views: list[weakref.ref[np.ndarray]] = []

    @contextmanager
    def item() -> Iterator[Callable[[], int]]:
        assert not any(view() is not None for view in views)
        view = np.ones(3)
        views.append(weakref.ref(view))
        yield partial(view.__len__)

    assert WorkQueue(SerialComm()).run([item() for _ in range(3)]) == [3] * 3
