"""The speed of a machine: what is fitted to given timings, which of them count, and in which
processes plans are made.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import graphs
import numba
import numpy as np
import pytest
from speed import IDEAL

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.base.costs import POST
from graphtheta.cli.plan import plan
from graphtheta.engine.comm.channel import Tag
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import SimComm, run_simulated
from graphtheta.engine.runtime.start import run_main
from graphtheta.engine.train.step import Training
from graphtheta.inspect.planning import messages, rehearsal
from graphtheta.inspect.planning import skeleton as skeletons
from graphtheta.inspect.planning.machine import (
    CROWDED,
    WAKES,
    Machine,
    _threads,
    read,
    shared,
    write,
)
from graphtheta.inspect.planning.messages import Talk, Working, message_seconds
from graphtheta.inspect.planning.placement import Placement
from graphtheta.inspect.planning.rehearsal import Rehearsal, rehearse
from graphtheta.inspect.planning.skeleton import skeleton
from graphtheta.inspect.planning.work import (
    EDGES,
    NODES,
    OPERATIONS,
    PARTS,
    PRODUCT,
    STEPS,
    Load,
    work_of,
)
from graphtheta.ops.compile import jit
from graphtheta.partitioners.pairs import pair_of

GRAPH = graphs.random_graph(40, 160)
JOB = gt.Job(backend="reference", hidden=6, seed=3, model="gcn", strategy="mini", batch_size=4)
UNIT = (1e-9,) * len(PARTS)
MACHINE = Machine(
    seconds=UNIT,
    crowded=1.7,
    wake=0.0,
    together=(1.3, 1.1),
    message=1e-3,
    collective=5e-4,
    latency=1e-4,
    byte=4e-9,
    wire=1e-9,
    cores=4,
    error=0.0,
)


def load_of(work: dict[int, float], blocks: float = 0.0, kernels: int = 1) -> Load:
    """An operation of one worker."""
    parts = np.zeros((1, 1, len(PARTS)))
    for part, amount in work.items():
        parts[0, 0, part] = amount
    return Load(parts, np.full((1, 1), blocks), np.array([kernels]))


def test_the_cost_of_threads_is_found_in_steps_on_all_of_them() -> None:
    # jobs of which each reads memory in another share, in kernels that take some times as long as a
    # thread needs to wake up
    wake = float(WAKES[20])
    crowded = float(CROWDED[12])
    loads = [
        load_of({NODES: share * times * wake * 1e9, PRODUCT: (1 - share) * times * wake * 1e9}, 8.0)
        for share, times in ((0.0, 0.7), (0.2, 3.0), (0.5, 8.0), (0.9, 20.0), (0.7, 2.0))
    ]
    made = replace(IDEAL, seconds=UNIT, crowded=crowded, wake=wake)
    alone = [float(load.total @ UNIT) for load in loads]
    steps = np.stack([alone, [made.compute(load, 1)[0] for load in loads]], axis=1)
    np.testing.assert_allclose(_threads(loads, steps, np.array(UNIT), 2), (wake, crowded))
    assert _threads(loads, steps, np.array(UNIT), 1) == (0.0, 1.0)


def test_other_threads_share_what_is_left_when_they_have_woken_up() -> None:
    made = replace(MACHINE, crowded=1.0, wake=0.1)

    def seconds(blocks: float, kernels: int = 1) -> float:
        return float(made.compute(load_of({PRODUCT: 1e9}, blocks, kernels), 1)[0])

    assert seconds(0) == seconds(1.9) == pytest.approx(1)
    # as many threads as there are blocks, of four
    assert seconds(2) == pytest.approx(0.1 + 0.9 / 2) and seconds(9) == pytest.approx(0.1 + 0.9 / 4)
    # each kernel wakes them up, and short ones are done before
    assert seconds(9, 5) == pytest.approx(5 * (0.1 + 0.1 / 4)) and seconds(9, 20) == pytest.approx(
        1
    )


@pytest.mark.parametrize("strategy", ["global", "mini"])
def test_a_worker_with_a_view_of_its_own_computes_as_one_worker_does(strategy: str) -> None:
    """What workers share it does alone, and what each of them does, such as the work of the
    interpreter and updates, it does once.
    """
    job = gt.Job(backend="reference", hidden=6, seed=3, model="gcn", strategy=strategy)
    held = skeleton(job, GRAPH)
    view = held.strategy(job).batch(0, 0)
    one, four = (
        work_of(held, view, Placement.of(held.graph, size, job.partitioner, job.masters, 3))
        for size in (1, 4)
    )
    for own in (one.alone, four.alone):
        np.testing.assert_allclose(own.parts, one.load.parts)
        np.testing.assert_allclose(own.blocks, one.load.blocks)
    assert four.load.parts.shape[0] == 4 and (four.load.parts[..., STEPS].sum(axis=1) == 1).all()


def test_what_two_workers_cost_each_other_is_found_in_their_ratios() -> None:
    reading = np.array([0.0, 0.2, 0.5, 0.9])
    np.testing.assert_allclose(shared(reading, 1.6 * reading + 1.1 * (1 - reading)), (1.6, 1.1))
    # other programs may be busier while a worker is alone
    assert shared(reading, np.full(4, 0.9)) == (1.0, 1.0)


def test_workers_are_as_slow_as_together_and_threads_as_crowded() -> None:
    def seconds(part: int, workers: int, threaded: int) -> float:
        return float(MACHINE.compute(load_of({part: 1e9}, 8.0 * threaded), workers)[0])

    assert seconds(OPERATIONS, 1, 0) == pytest.approx(1) and seconds(NODES, 1, 0) == pytest.approx(
        1
    )
    # a worker of one thread never reads on several
    for part, one in ((OPERATIONS, 1.1), (NODES, 1.3), (EDGES, 1.3)):
        assert seconds(part, 4, 0) == seconds(part, 4, 1) == pytest.approx(one)
    assert seconds(EDGES, 1, 1) == pytest.approx(1.7 / 4) and seconds(EDGES, 2, 1) == pytest.approx(
        1.7 / 2
    )
    assert seconds(OPERATIONS, 8, 0) == pytest.approx(2.2)


def test_a_move_starts_once_whatever_the_number_of_workers() -> None:
    for size in (2, 4):
        sent = np.full(size, 1000)
        posted = np.full(size, 5 * (size - 1))
        moves = 5 * (1e-3 + 1e-4)
        carried = 1000 * 4e-9
        assert MACHINE.transfer(sent, posted, 4) == pytest.approx(
            carried + moves + 5 * (size - 2) * POST
        )
        assert MACHINE.transfer(sent, posted, 4, counted=True) == pytest.approx(
            1000 * 1e-9 + 5 * 1e-4 + 5 * (size - 1) * POST
        )
        # a collective takes a round on two workers, and two on four
        more = MACHINE.transfer(sent, posted, 4, 3) - MACHINE.transfer(sent, posted, 4)
        assert more == pytest.approx(3 * (5e-4 + size // 2 * 1e-4))
        assert MACHINE.transfer(sent, 0 * posted, 4, 3, True) == pytest.approx(
            1000 * 1e-9 + 3 * size // 2 * 1e-4
        )
    assert MACHINE.transfer(sent, posted, 8) == 2 * MACHINE.transfer(sent, posted, 4)


def test_the_speed_is_read_as_it_was_written(tmp_path: Path) -> None:
    write(MACHINE, tmp_path / "speed.json")
    assert read(tmp_path / "speed.json") == MACHINE


def test_a_message_costs_what_a_step_takes_more_on_two_workers() -> None:
    usual = [
        Talk(2e-3 + 5 * 3e-4 + 2 * 1e-4 + 1000 * 1e-8, 2e-3, 5, 2, 1000),
        Talk(4e-3 + 9 * 3e-4 + 1e-4 + 500 * 1e-8, 4e-3, 9, 1, 500),
    ]
    # one job that other programs have slowed
    assert message_seconds([*usual, Talk(9e-3, 2e-3, 5, 2, 0)], 1e-8, 1e-4) == pytest.approx(3e-4)
    assert message_seconds([Talk(1e-3, 2e-3, 5, 2, 0)], 1e-8, 1e-4) == 0


def test_waiting_is_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """On clocks of each worker that pass in messages and in given work alone, only the work counts,
    and of it the least.
    """
    clock = threading.local()
    post = SimComm._post
    gather = SimComm._gather_flat

    def later(seconds: float) -> None:
        clock.now = getattr(clock, "now", 0.0) + seconds

    def slow_post(self: SimComm, *args: Any) -> Callable[[], None]:
        receive = post(self, *args)

        def finish() -> None:
            later(50)
            receive()

        return finish

    def slow_gather(self: SimComm, *args: Any) -> None:
        later(70)
        gather(self, *args)

    monkeypatch.setattr(SimComm, "_post", slow_post)
    monkeypatch.setattr(SimComm, "_gather_flat", slow_gather)
    monkeypatch.setattr(messages, "thread_time", lambda: getattr(clock, "now", 0.0))

    def worker(comm: Comm) -> tuple[float, float, float]:
        working, number = Working(comm), count()

        def step() -> None:
            working.move_begin(
                [(1 - comm.rank, np.zeros(3))], [(1 - comm.rank, np.zeros(3))], Tag.ROWS
            ).end()
            working.all_sum(np.zeros(2))
            # the first run loads, and one is slowed
            later([99, 99, 4, 30, 3, 5][next(number)])

        return *working.least(step, messages.thread_time), working.waited

    for work, total, waited in run_simulated(2, worker):
        assert work == 3 and total == 123 and waited == 6 * 120


def test_two_workers_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    from graphtheta.inspect.planning import samples

    for name, value in (("WARM", 0), ("TIMED", 1), ("ROUNDS", 2), ("LOADING", 1)):
        monkeypatch.setattr(messages, name, value)
    monkeypatch.setattr(samples, "TALKING", samples.TALKING[:1])
    monkeypatch.setattr(samples, "TOGETHER", samples.TOGETHER[:1])
    mine, other = run_simulated(2, messages.program)
    assert (
        mine == other
        and mine.byte >= mine.wire >= 0
        and mine.byte > 0
        and mine.latency >= 0
        and mine.collective > 0
    )
    assert len(mine.ratios) == 1 and mine.ratios[0] > 0


def test_the_shortest_time_of_each_step_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    # the first views load kernels, and their time does not count
    times: dict[int, Iterator[Any]] = {
        rank: iter((np.array([[0, 0], [2, 4], [4, 1], [8, 8]]) + rank) / 64) for rank in range(2)
    }
    timed = rehearsal._timed
    monkeypatch.setattr(
        rehearsal, "_timed", lambda comm, *rest: (timed(comm, *rest), next(times[comm.rank]))[1]
    )
    monkeypatch.setattr(rehearsal, "TIMES", 3)
    job = JOB.change(mode="cooperative")
    found = rehearse(skeleton(job, GRAPH), job, pair_of(job.partitioner, job.masters), 2, 4)
    np.testing.assert_array_equal(found.seconds, [3 / 64, 5 / 64])
    # long ones are not repeated
    times |= {rank: iter(np.full((2, 1), 9.0)) for rank in range(2)}
    assert rehearse(
        skeleton(job, GRAPH), job, pair_of(job.partitioner, job.masters), 2, 4
    ).seconds.tolist() == [9, 9]


def test_workers_share_what_one_takes_longer_for() -> None:
    none = np.zeros(2, np.int64)
    found = Rehearsal(
        views=4,
        sent=none,
        messages=none,
        collectives=none,
        seconds=np.array([0.5, 0.6]),
        n_bytes=none,
        hits=0,
        misses=0,
        macrobatch=1,
    )
    # 0.2 of the interpreter, and 0.8 of the edges
    np.testing.assert_allclose(found.on(8, 1.0, 1.0, 1.0).seconds, [0.3] * 8)
    # independent workers make views of their own
    np.testing.assert_allclose(found.on(8, 1.0, 0.25, 0.0).seconds, [0.15] * 8)
    # all of it, and no less
    np.testing.assert_allclose(found.on(4, 1.0, 1.0, 9.0).seconds, [0.3] * 4)


def test_views_behind_a_cache_are_timed_after_others_have_loaded_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make = Training.rehearse
    epochs = []

    def listed(self: Training, epoch: int, *rest: Any) -> Any:
        epochs.append((self.job_comm.rank, epoch))
        return make(self, epoch, *rest)

    monkeypatch.setattr(Training, "rehearse", listed)
    job = JOB.change(mode="independent", feature_cache="4", cache_policy="lru")
    plain = JOB.change(mode="independent")
    held = skeleton(job, GRAPH)
    cached, none = (
        rehearse(held, each, pair_of(job.partitioner, job.masters), 2, 4) for each in (job, plain)
    )
    # the views that load kernels leave nothing in the cache
    assert [epoch for rank, epoch in epochs[:4] if rank == 0] == [
        1,
        0,
    ] and cached.hits + cached.misses > 0
    assert cached.sent.sum() <= none.sent.sum()


def test_views_behind_a_warm_cache_are_those_of_an_epoch_that_is_trained_again() -> None:
    job = JOB.change(mode="independent", feature_cache="8", cache_policy="lru")
    cold, warm = (
        rehearse(
            skeleton(job, GRAPH), job, pair_of(job.partitioner, job.masters), 2, 100, warm=warm
        )
        for warm in (False, True)
    )

    def trained(comm: Comm) -> np.ndarray:
        one = gt.Trainer(graph=GRAPH, comm=comm, job=job)
        counts = []
        for _ in range(2):
            one.train_epoch(0)
            counts.append(one.caches.counts())
        return counts[1] - counts[0]

    assert [warm.hits, warm.misses] == np.sum(run_simulated(2, trained), axis=0).tolist()
    assert (
        warm.hits > cold.hits
        and warm.hits + warm.misses == cold.hits + cold.misses
        and warm.sent.sum() < cold.sent.sum()
    )


def test_the_shorter_time_of_a_view_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    held, timed, times = skeleton(JOB, GRAPH), skeletons._timed, iter([0.5, 0.1, 0.2, 0.3])
    monkeypatch.setattr(
        skeletons, "_timed", lambda strategy, i: (timed(strategy, i)[0], next(times))
    )
    assert held.sampled(JOB, 2).seconds == pytest.approx((0.2 + 0.1) / 2)


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("compiled", "speed", "words", "apart"),
    [
        (0, MACHINE, (), False),
        (3, MACHINE, (), True),
        (0, None, (), True),
        (0, MACHINE, ("--recalibrate",), True),
    ],
)
def test_a_plan_is_made_in_a_process_that_compiles_and_measures_nothing(
    compiled: int,
    speed: Machine | None,
    words: tuple[str, ...],
    apart: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr("graphtheta.cli.plan.machine", lambda again: MACHINE)
    monkeypatch.setattr("graphtheta.cli.plan.recorded_speed", lambda: speed)
    monkeypatch.setattr(jit, "n_compiled", lambda: compiled)
    monkeypatch.setattr(
        subprocess,
        "run",
        lambda found, check: (started.append(found), subprocess.CompletedProcess(found, 7))[1],
    )
    argv = ["--dataset", "ring:n=64", "--backend", "reference", "--strategies", "global", *words]
    assert main(["plan", *argv]) == (7 if apart else 0)
    assert len(started) == apart and all(found[3:] == argv for found in started)
    assert ("shortest epoch" in capsys.readouterr().out) != apart
    assert run_main(plan(argv, ready=True)) == 0 and len(started) == apart


def test_kernels_that_are_loaded_are_not_compiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def add(x: int) -> int:
        return x + 41

    monkeypatch.setenv("GRAPHTHETA_CACHE", str(tmp_path / "kernels"))
    before = jit.n_compiled()
    for _ in range(2):
        assert jit.cached(numba.njit(**jit.OPTIONS)(add), "test add", frozenset())(1) == 42
        assert jit.n_compiled() == before + 1


@pytest.mark.second
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no peak of a process alone")
def test_peak_memory_is_that_of_this_process_alone() -> None:
    held = np.ones(60 << 20)
    code = "from graphtheta.base.memory import peak_bytes; print(peak_bytes())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 1 << 20 < int(done.stdout) < held.nbytes
