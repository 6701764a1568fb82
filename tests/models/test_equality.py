"""Same numbers: every two of a strategy, a placement and a model on several ranks as on one, in
float64 with dropout on.
"""

from __future__ import annotations

import numpy as np
import pytest
from equality import (
    EDGE_MODELS,
    LINK_MODELS,
    MODELS,
    PLACEMENTS,
    STRATEGIES,
    TASKS,
    alone,
    pairs,
    run,
)

from graphtheta.engine.comm.simulated import run_simulated

MODELS_OF = {"node": MODELS, "link": LINK_MODELS, "edge": EDGE_MODELS}


@pytest.mark.one_in(7)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("placement", PLACEMENTS, ids=" ".join)
def test_same_numbers_on_any_number_of_ranks(placement, task):
    # each task meets 2, 3, 4 and 8 ranks, each placement three of them, and each of them every
    # strategy and every model
    number = PLACEMENTS.index(placement)
    wanted, wanted_edges = alone(task, number)
    for losses, grads in wanted.values():
        assert np.isfinite(losses).all() and np.isfinite(grads).all() and np.abs(grads).max() > 1e-3
    size = (2, 3, 4, 8)[(number + list(TASKS).index(task)) % 4]
    results = run_simulated(size, run, placement, task, number)
    numbers, edges = results[0]
    for strategy, levels in wanted_edges.items():
        for mine, theirs in zip(edges[strategy], levels, strict=True):
            np.testing.assert_array_equal(
                mine, theirs, err_msg=f"edges of {strategy} on {size} ranks"
            )
    assert numbers.keys() == wanted.keys()
    assert {strategy for strategy, _ in numbers} == STRATEGIES.keys()
    assert {model for _, model in numbers} == MODELS_OF[task].keys()
    for key, found in numbers.items():
        for mine, theirs, what in zip(found, wanted[key], ("losses", "gradients"), strict=True):
            error = np.abs(mine - theirs).max() / np.abs(theirs).max()
            assert error < 1e-9, (
                f"{what} of {' / '.join(key)} on {size} ranks differ by {error:.1e}"
            )
    for other, _ in results[1:]:
        assert all(np.array_equal(other[key][1], numbers[key][1]) for key in numbers), (
            "ranks disagree on the gradients"
        )


@pytest.mark.parametrize("models", [MODELS, LINK_MODELS, EDGE_MODELS])
def test_every_pair_of_a_strategy_and_a_model_is_met(models):
    met = {pair for number in range(len(PLACEMENTS)) for pair in pairs(models, number)}
    assert met == set(pairs(models))


@pytest.mark.parametrize("task", TASKS)
def test_the_matrix_tests_something(task):
    """Views and samples are neither empty nor all alike, nor are losses of a share of the pairs."""
    numbers, edges = alone(task, 0)
    assert len({losses.tobytes() for losses, _ in numbers.values()}) == len(numbers)
    sampled, replaced = edges["mini sampled"], edges["mini replaced"]
    assert all(level.shape[1] for levels in edges.values() for level in levels)
    assert any((level[1] > 1).any() for level in sampled)
    assert not all(np.array_equal(a, b) for a, b in zip(sampled, replaced, strict=True))
