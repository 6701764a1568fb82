"""The number of views in flight by a profile: same numbers, and the choice by the costs."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import graphs
import numpy as np
import pytest

import graphtheta as gt
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.ledger import FIELDS, STAGES
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError
from graphtheta.train.pipeline.costs import Costs
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


def trained(comm: Comm, epochs: int = 2, **keys: Any) -> tuple[np.ndarray, gt.Trainer]:
    """Losses, and the trainer."""
    one = gt.Trainer("sage", GRAPH, comm=comm, **{**KEYS, **keys})
    return np.array([one.train_epoch(epoch) for epoch in range(epochs)]), one


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "keys",
    [{}, {"mode": "independent", "macrobatch": 4}, {"staleness": 2, "views_per_step": 2}],
    ids=str,
)
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
    monkeypatch.setattr(
        Costs, "best", lambda costs, most, cores, together: (min(most, cores), "cores")
    )
    results = run_simulated(2, trained, views_in_flight=4, pipeline="auto")
    assert [one.training.queue.in_flight for _, one in results] == [2, 2]


def test_waiting_is_hidden_by_more_views_and_one_worker_needs_one() -> None:
    keys = {"views_in_flight": 6, "pipeline": "auto", "views_per_step": 6}
    ((_, one),) = run_simulated(1, trained, **keys, epochs=4)
    assert one.training.queue.in_flight == 1
    assert one.pipeline.line.endswith("the processor limits")
    ((_, other),) = run_simulated(1, trained, **keys, epochs=0)
    books = {stage: dict.fromkeys(FIELDS, 0.0) for stage in STAGES}
    books |= {
        "batch": {"seconds": 0.6, "wait": 3.0},
        "gather": {"seconds": 1.2, "wait": 0.0},
        "reduce": {"seconds": 0.0, "wait": 0.6},
    }
    for _ in range(WARM + PROFILED):
        other.pipeline._count(books, 6)
    # of the 5.4 seconds of a step of six views 1.8 are computed
    assert other.training.queue.in_flight == 6 and np.allclose(
        astuple(other.pipeline.costs), (0.1, 0.2, 0.5, 0.1)
    )
    assert np.isclose(other.pipeline.costs.seconds(6, other.training.job_comm.cores, 6), 0.3)


def test_a_short_run_ends_before_the_choice() -> None:
    ((_, one),) = run_simulated(
        1, trained, epochs=1, views_in_flight=2, pipeline="auto", batch_size=20
    )
    assert one.strategy.steps_per_epoch < WARM + PROFILED and not one.pipeline.line


def test_the_choice_is_twice_the_fewest_views_of_the_least_time() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        costs = Costs(*rng.random(4))
        cores = int(rng.integers(1, 5))
        together = int(rng.integers(1, 5))
        most = int(rng.integers(1, 20))
        flight, limit = costs.best(most, cores, together)
        times = [costs.seconds(f, cores, together) for f in range(1, most + 1)]
        fewest = 1 + next(i for i, t in enumerate(times) if t <= 1.02 * min(times))
        assert times == sorted(times, reverse=True) and flight == (
            1 if fewest == 1 else min(2 * fewest, most)
        )
        # the minimax over all divisions of cores among stages is not below the bound of shared
        # cores
        bounds = costs.bounds(fewest, cores, together)
        split = min(
            (
                max(costs.prepare / c, costs.compute / (cores - c))
                for c in np.linspace(0, cores, 99)[1:-1]
            ),
            default=np.inf,
        )
        assert split >= (costs.prepare + costs.compute) / cores - 1e-9
        assert bounds[("cores", "updates", "flight").index(limit)] * 1.02 >= max(bounds)


def test_one_view_after_another_takes_the_sum_of_the_stages() -> None:
    costs = Costs(prepare=2, compute=3, prepare_wait=4, compute_wait=1)
    assert costs.seconds(1, 1, 1) == costs.whole == 10
    # with two, each waits while the other one computes, as long as the updates allow it
    assert costs.seconds(2, 1, 1) == 5 and costs.bounds(3, 1, 1) == (5, 4, 10 / 3)


def test_errors() -> None:
    with pytest.raises(ConfigError, match="give --views-in-flight"):
        gt.Job(strategy="mini", pipeline="auto")
    with pytest.raises(ConfigError, match="only with mini or cluster"):
        gt.Job(pipeline="auto", views_in_flight=2)
