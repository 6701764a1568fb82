"""The number of views in flight by a profile: same numbers, and the choice by the costs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import product
from typing import Any

import graphs
import numpy as np
import pytest
from covering import covering

import graphtheta as gt
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.ledger import FIELDS
from graphtheta.engine.comm.ledger import STAGES as LEDGER
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.runtime.affinity import available_cores, dealt
from graphtheta.engine.train.stages import STAGES
from graphtheta.errors import ConfigError
from graphtheta.train.pipeline.costs import LIMITS, Costs, enough
from graphtheta.train.pipeline.divisions import as_text, every_division, free
from graphtheta.train.pipeline.profile import PROFILED, WARM, Pipeline

GRAPH = graphs.random_graph(90, 400)
KEYS: dict[str, Any] = {
    "strategy": "mini",
    "batch_size": 2,
    "fanout": "3,3",
    "hidden": 4,
    "dtype": "float64",
    "backend": "reference",
    "seed": 3,
}


def give_processors(monkeypatch: pytest.MonkeyPatch, processors: Sequence[int]) -> None:
    """Let each rank have these processors of its own."""
    monkeypatch.setattr(
        "graphtheta.train.pipeline.profile.own_processors", lambda _: list(processors)
    )


def trained(comm: Comm, epochs: int = 2, **keys: Any) -> tuple[np.ndarray, gt.Trainer]:
    """Losses, and the trainer."""
    one = gt.Trainer("sage", GRAPH, comm=comm, **{**KEYS, **keys})
    return np.array([one.train_epoch(epoch) for epoch in range(epochs)]), one


SCHEDULES: list[dict[str, Any]] = [
    {},
    {"mode": "independent", "macrobatch": 4},
    {"staleness": 2, "views_per_step": 2},
]
needs_two = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="threads cannot be bound to two processors",
)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("keys", SCHEDULES, ids=str)
def test_losses_are_those_of_any_number_of_views_in_flight(keys: dict[str, Any]) -> None:
    (exact, _), *_ = run_simulated(2, trained, **keys)
    results = run_simulated(2, trained, views_in_flight=4, pipeline="auto", **keys)
    chosen = set()
    for losses, one in results:
        np.testing.assert_array_equal(losses, exact)
        chosen.add((one.training.queue.in_flight, one.pipeline.line))
    # every worker has chosen the same
    assert len(chosen) == 1 and "of at most 4 views in flight" in next(iter(chosen))[1]


def test_workers_of_machines_with_other_cores_choose_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Views in flight decide which channel a view has."""
    choose = Pipeline._choose

    def chosen(pipeline: Pipeline) -> None:
        comm = pipeline._training.job_comm
        # simulated ranks run on one core
        comm.cores = 2 + comm.rank
        choose(pipeline)
        comm.cores = 1

    monkeypatch.setattr(Pipeline, "_choose", chosen)
    # as many views as the first team has processors
    monkeypatch.setattr(
        Costs, "seconds", lambda costs, division, flight, _: 1 / min(flight, division[0][1])
    )
    monkeypatch.setattr("graphtheta.train.pipeline.costs.SPARE", 1)
    results = run_simulated(2, trained, views_in_flight=4, pipeline="auto")
    assert [one.training.queue.in_flight for _, one in results] == [2, 2]


def test_waiting_is_hidden_by_more_views_and_one_worker_needs_one() -> None:
    keys = {"views_in_flight": 6, "pipeline": "auto", "views_per_step": 6}
    ((_, one),) = run_simulated(1, trained, **keys, epochs=4)
    assert one.training.queue.in_flight == 1
    assert one.pipeline.line.endswith("the processor limits")
    ((_, other),) = run_simulated(1, trained, **keys, epochs=0)
    books = {stage: dict.fromkeys(FIELDS, 0.0) for stage in LEDGER}
    books |= {
        "batch": {"seconds": 0.6, "wait": 3.0},
        "gather": {"seconds": 1.2, "wait": 0.0},
        "reduce": {"seconds": 0.0, "wait": 0.6},
    }
    for _ in range(WARM + 2 * PROFILED):
        other.pipeline._count(books, 6)
    # of the 5.4 seconds of a step of six views 1.8 are computed
    costs = other.pipeline.costs
    assert other.training.queue.in_flight == 6
    assert np.allclose([costs.alone(stage) for stage in STAGES], (0.1, 0, 0.2))
    assert np.allclose([costs.wait[stage] for stage in STAGES], (0.5, 0, 0.1))
    assert np.isclose(other.pipeline.seconds, 0.3)


def test_a_short_run_ends_before_the_choice() -> None:
    ((_, one),) = run_simulated(
        1, trained, epochs=1, views_in_flight=2, pipeline="auto", batch_size=20
    )
    assert one.strategy.steps_per_epoch < WARM + 2 * PROFILED and not one.pipeline.line


def costs_of(divided: Any, serial: Any = (0, 0, 0), wait: Any = (0, 0, 0)) -> Costs:
    return Costs(*(dict(zip(STAGES, map(float, x), strict=True)) for x in (divided, serial, wait)))


def test_the_choice_is_twice_the_fewest_views_of_the_least_time() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        costs = costs_of(*rng.random((3, 3)))
        division = free(int(rng.integers(1, 5)))
        together = int(rng.integers(1, 5))
        times = [costs.seconds(division, f, together) for f in range(1, 1 + rng.integers(1, 20))]
        fewest = 1 + next(i for i, t in enumerate(times) if t <= 1.02 * min(times))
        assert enough(times) == (1 if fewest == 1 else min(2 * fewest, len(times)))
        bounds = costs.bounds(division, fewest, together)
        limit = costs.limit(division, fewest, together)
        assert bounds[LIMITS.index(limit)] * 1.02 >= max(bounds)


def test_one_view_after_another_takes_the_sum_of_the_stages() -> None:
    costs = costs_of((1, 1, 3), wait=(3, 1, 1))
    assert costs.seconds(free(1), 1, 1) == 10
    # with two, each waits while the other one computes, as long as the updates allow it
    assert costs.seconds(free(1), 2, 1) == 5 and costs.bounds(free(1), 3, 1) == (5, 4, 10 / 3)


def test_costs_are_fitted_to_times_on_one_thread_and_on_several() -> None:
    def books(threads: int) -> dict[str, dict[str, float]]:
        """Of each stage of the ledger 1 second cannot be divided, and ``i`` seconds can."""
        return {stage: {"seconds": 1 + i / threads, "wait": 0.5} for i, stage in enumerate(LEDGER)}

    costs = Costs.of(books(1), books(4), threads=4)
    at = [LEDGER.index("batch"), LEDGER.index("fetch")]
    rest = sum(range(len(LEDGER))) - sum(at)
    assert np.allclose(list(costs.divided.values()), [*at, rest])
    assert np.allclose(list(costs.serial.values()), [1, 1, len(LEDGER) - 2])
    assert np.isclose(sum(costs.wait.values()), len(LEDGER) / 2)
    # noise may make more threads slower, and more than their number faster
    for faster in (0.9, 1.1):
        several = {
            s: {"seconds": b["seconds"] * faster**40, "wait": 0} for s, b in books(1).items()
        }
        found = Costs.of(books(1), several, threads=4)
        for stage in STAGES:
            assert 0 <= found.divided[stage] <= found.alone(stage)


def minimax(times: list[float], processors: int) -> float:
    """BGL's formula: the least time of the slowest stage, over every way to give stages, or
    several together, processors of their own.
    """
    least = np.inf
    for owner in product(range(len(times)), repeat=len(times)):
        teams = sorted(set(owner))
        if len(teams) == 1:
            continue
        for sizes in product(range(1, processors + 1), repeat=len(teams)):
            if sum(sizes) <= processors:
                loads = (
                    sum(t for t, o in zip(times, owner, strict=True) if o == team) / n
                    for team, n in zip(teams, sizes, strict=True)
                )
                least = min(least, max(loads))
    return least


def test_the_division_is_that_of_the_minimax() -> None:
    rng = np.random.default_rng(1)
    for processors in (2, 3, 4, 7):
        divisions = list(every_division(processors))
        assert len(set(divisions)) == len(divisions)
        assert all(sum(n for _, n in each) == processors for each in divisions)
        for _ in range(20):
            # whole processors, as BGL assumes, and updates that do not wait for each other
            times = [*rng.random(2), 3 * rng.random()]
            costs = costs_of(times)
            division = costs.best_division(divisions, 64, 64)
            busiest = costs.bounds(division, 64, 64)[0]
            assert np.isclose(busiest, minimax(times, processors))
            # without a division, no processor is idle
            assert costs.bounds(free(processors), 64, 64)[0] <= busiest * (1 + 1e-12)
    # 3 ms to sample, 1 to fetch and 6 to compute on two processors
    assert as_text(costs_of((3, 1, 6)).best_division(list(every_division(2)), 8, 8)) == (
        "sampling+features=1,compute=1"
    )


@needs_two
@pytest.mark.parametrize(
    ("size", "keys", "threads"),
    covering((1, 2), SCHEDULES, ("sampling+features=1,compute=1", "auto")),
    ids=str,
)
def test_losses_are_those_of_any_stage_threads(
    size: int, keys: dict[str, Any], threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_processors(monkeypatch, available_cores()[:2])
    exact, *_ = run_simulated(size, trained, **keys)
    results = run_simulated(size, trained, views_in_flight=4, stage_threads=threads, **keys)
    for losses, one in results:
        np.testing.assert_array_equal(losses, exact[0])
        stages = one.training.queue.stages
        assert sorted(name for each in stages for name in each.stages) == sorted(STAGES)
        processors = [i for each in stages for i in each.processors]
        assert len(set(processors)) == len(processors) == 2
        if threads == "auto":
            assert f"stage_threads={one.pipeline.stage_threads}" in one.pipeline.line
            assert one.training.queue.in_flight == 4


@needs_two
def test_views_in_flight_are_chosen_for_the_threads_of_stages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    give_processors(monkeypatch, available_cores()[:2])
    keys = {"stage_threads": "sampling+features=1,compute=1", "pipeline": "auto"}
    for losses, one in run_simulated(2, trained, views_in_flight=6, **keys):
        assert np.isfinite(losses).all() and one.pipeline.stage_threads == keys["stage_threads"]
        assert "with stage_threads=sampling+features=1,compute=1 (" in one.pipeline.line


STAGE_THREADS = {
    "": "expected free, auto, or the processors",
    "yes": "expected free, auto, or the processors",
    "sampling": "expected free, auto, or the processors",
    "sampling=0,features=1,compute=1": "1 to 4096 each",
    "sampling=-1,features=1,compute=1": "1 to 4096 each",
    "sampling=1.5,features=1,compute=1": "1 to 4096 each",
    "sampling=\u00b2,features=1,compute=1": "1 to 4096 each",
    "sampling=99999999999,features=1,compute=1": "1 to 4096 each",
    "sampling=1,features=1,compute=1,": "expected free, auto, or the processors",
    "sampling=1,feature=1,compute=1": "no stage 'feature'.*features",
    "sampling+=1,features=1,compute=1": "no stage ''",
    "sampling=1,compute=1": "stage features is missing",
    "sampling=1,features=1,compute=1,sampling=2": "sampling is given twice",
    "sampling+features=1,features=1,compute=1": "stage features is given twice",
    "sampling+sampling=1,features=1,compute=1": "stage sampling is given twice",
    "sampling+features+compute=2": "share the same processors",
}


@pytest.mark.parametrize("text", STAGE_THREADS)
def test_texts_that_are_no_stage_threads(text: str) -> None:
    with pytest.raises(ConfigError, match=STAGE_THREADS[text]):
        gt.Job(strategy="mini", views_in_flight=2, stage_threads=text)


def test_stage_threads_with_spaces_are_those_without() -> None:
    job = gt.Job(
        strategy="mini", views_in_flight=2, stage_threads=" sampling + features = 1 , compute=2 "
    )
    assert job.stage_threads == "sampling+features=1,compute=2"


@pytest.mark.parametrize("size", [1, 2])
def test_too_few_processors_are_refused_on_all_workers(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a job that is refused binds nothing, so that any machine can stand for the one of the message
    monkeypatch.setattr("graphtheta.train.pipeline.divisions.can_bind", lambda: True)
    for threads, processors, message in (
        (
            "sampling=1,features=1,compute=1",
            2,
            r"needs 3 processors.* worker \d has 2 .*give fewer",
        ),
        ("sampling+features=1,compute=1", 1, "needs 2 processors.* has 1 of its own; start fewer"),
        ("auto", 1, "needs 2 processors.* drop --stage-threads"),
    ):
        give_processors(monkeypatch, range(processors))
        with pytest.raises(ConfigError, match=message):
            run_simulated(size, trained, views_in_flight=2, stage_threads=threads)


def test_a_platform_that_binds_no_threads_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    with pytest.raises(ConfigError, match="this operating system does not offer; drop"):
        run_simulated(1, trained, views_in_flight=2, stage_threads="auto")


def test_processors_are_dealt_to_the_workers_of_a_machine() -> None:
    assert dealt({0: [0, 1, 2, 3], 1: [0, 1, 2, 3]}) == {0: [0, 1], 1: [2, 3]}
    assert dealt({3: [4, 5], 7: [6]}) == {3: [4, 5], 7: [6]}
    assert dealt({0: [0], 1: [0], 2: [0]}) == {0: [], 1: [], 2: [0]}
    rng = np.random.default_rng(0)
    for _ in range(100):
        allowed = {
            int(rank): sorted(rng.choice(8, rng.integers(1, 9), replace=False).tolist())
            for rank in rng.choice(9, rng.integers(1, 5), replace=False)
        }
        own = dealt(allowed)
        everyone = [core for cores in own.values() for core in cores]
        assert sorted(everyone) == sorted({core for cores in allowed.values() for core in cores})
        assert all(set(own[rank]) <= set(allowed[rank]) for rank in allowed)


def test_errors() -> None:
    with pytest.raises(ConfigError, match="give --views-in-flight"):
        gt.Job(strategy="mini", pipeline="auto")
    with pytest.raises(ConfigError, match="only with mini or cluster"):
        gt.Job(pipeline="auto", views_in_flight=2)
    with pytest.raises(ConfigError, match="give --views-in-flight"):
        gt.Job(strategy="mini", stage_threads="auto")
    with pytest.raises(ConfigError, match="only with mini or cluster"):
        gt.Job(stage_threads="auto", views_in_flight=2)
