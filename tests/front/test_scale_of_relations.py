"""Standardised edge attributes of a graph with relations: a scale for the columns of each relation,
in training and on other graphs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import DataError

pytestmark = pytest.mark.reference

RNG = np.random.default_rng(0)
SIZES = {"a": 20, "b": 25}
ENDS = {
    (s, name, t): (RNG.integers(0, SIZES[s], n), RNG.integers(0, SIZES[t], n))
    for s, name, t, n in (("a", "near", "a", 60), ("a", "rates", "b", 90), ("b", "of", "a", 50))
}
NEAR, RATES, OF = ENDS
# columns of other means and deviations; one relation has none, and a column is constant
ATTRIBUTES = {
    name: (
        (RNG.standard_normal((len(ENDS[name][0]), d)) * np.arange(1, d + 1) + 10 * d).astype(
            np.float32
        )
    )
    for name, d in ((NEAR, 3), (RATES, 2))
}
ATTRIBUTES[NEAR][:, 1] = 4
FEATURES = {name: RNG.standard_normal((n, 4)) for name, n in SIZES.items()}
RAW = gt.Graph(
    ENDS,
    SIZES,
    x=FEATURES,
    edge_attr=ATTRIBUTES,
    y={"a": RNG.integers(0, 3, 20)},
    train={"a": np.arange(20) < 12},
)
SCALED = RAW.with_standardised_edge_attr()
CODES = RAW.edge_columns["relation"]


def expected(chosen: dict[Any, np.ndarray]) -> np.ndarray:
    """Attributes scaled over some edges of each relation."""
    out = np.zeros((200, 5))
    at = 0
    for code, name in enumerate((NEAR, RATES)):
        x = ATTRIBUTES[name][chosen[name]]
        mean = x.mean(axis=0)
        deviation = x.std(axis=0)
        scaled = np.divide(
            ATTRIBUTES[name] - mean,
            deviation,
            out=np.zeros_like(ATTRIBUTES[name]),
            where=deviation > 1e-5,
        )
        out[np.flatnonzero(code == CODES), at : at + x.shape[1]] = scaled
        at += x.shape[1]
    return out


def test_a_relation_is_scaled_over_its_own_edges() -> None:
    """Over its training edges, or all of them if it has none; edges of other relations stay 0."""
    whole = {name: np.full(len(x), True) for name, x in ATTRIBUTES.items()}
    np.testing.assert_allclose(SCALED.edge_attr, expected(whole), atol=1e-5)
    assert SCALED.meta["edge_attr_scale"]["widths"] == [3, 2, 0]
    masked = RAW.replace(edge_train=np.concatenate((np.arange(60) % 2 == 0, np.full(140, False))))
    np.testing.assert_allclose(
        masked.with_standardised_edge_attr().edge_attr,
        expected(whole | {NEAR: np.arange(60) % 2 == 0}),
        atol=1e-5,
    )
    again = SCALED.with_standardised_edge_attr()
    np.testing.assert_allclose(again.edge_attr, SCALED.edge_attr, atol=1e-5)
    np.testing.assert_allclose(
        again.meta["edge_attr_scale"]["mean"], SCALED.meta["edge_attr_scale"]["mean"], atol=1e-5
    )


def test_an_inverse_relation_has_the_columns_of_the_one_it_reverses() -> None:
    after = SCALED.with_inverse_relations()
    before = RAW.with_inverse_relations().with_standardised_edge_attr()
    np.testing.assert_allclose(before.edge_attr, after.edge_attr, atol=1e-5)
    assert before.meta["edge_attr_scale"]["widths"] == [3, 2, 0]


def test_attributes_of_all_relations_have_one_scale() -> None:
    """Where they are not those of each relation side by side."""
    graph = gt.Graph(
        RAW.edge_index, 45, edge_attr=RAW.edge_attr, edge_columns={"relation": CODES}
    ).with_standardised_edge_attr()
    np.testing.assert_allclose(graph.edge_attr.mean(axis=0), 0, atol=1e-5)
    assert "widths" not in graph.meta["edge_attr_scale"]


def outputs(comm: Any, graph: gt.Graph, others: list[gt.Graph]) -> list[np.ndarray]:
    """Predictions of a model on its own graph and on others."""
    trainer = gt.Trainer(
        "gat_e",
        graph,
        heads=1,
        hidden=4,
        epochs=2,
        dtype="float64",
        backend="reference",
        seed=3,
        comm=comm,
    )
    trainer.fit()
    return [
        found[1]
        for one in (trainer, *map(trainer.on, others))
        if (found := one.predict()) is not None
    ]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("size", [1, 3])
def test_the_scale_is_applied_to_other_graphs(size: int) -> None:
    """Also with the relations in another order, and where values were scaled over other edges or
    not at all.
    """
    blank: dict[str, Any] = {"y": None, "train": None}
    over_others = (
        RAW.replace(edge_train=np.arange(200) % 3 == 0)
        .with_standardised_edge_attr()
        .replace(edge_train=None)
    )
    turned = gt.Graph(
        {name: ENDS[name] for name in reversed(ENDS)},
        SIZES,
        x=FEATURES,
        edge_attr={name: ATTRIBUTES[name] for name in reversed(ATTRIBUTES)},
    )
    others = [RAW, RAW.replace(**blank), over_others, turned, turned.with_standardised_edge_attr()]
    own, *found = run_simulated(size, outputs, SCALED, others)[0]
    for x in found:
        np.testing.assert_allclose(x, own, rtol=1e-4, atol=1e-5)
    # a model of values as they are gets them so
    own, back = run_simulated(size, outputs, RAW, [SCALED])[0]
    np.testing.assert_allclose(back, own, rtol=1e-4, atol=1e-4)


def test_what_does_not_fit() -> None:
    wide = RAW.replace(edge_attr=np.ones((200, 6), np.float32))
    with pytest.raises(
        DataError,
        match=(
            r"edge_attr has 6 columns, but those of its relations are 5.*before columns are added"
        ),
    ):
        wide.with_standardised_edge_attr()
    with pytest.raises(
        DataError,
        match=(
            "edges of a relation have values in columns of edge_attr that belong to other relations"
        ),
    ):
        RAW.replace(edge_attr=np.ones((200, 5), np.float32)).with_standardised_edge_attr()
    trainer = gt.Trainer(
        "gat_e", SCALED, heads=1, hidden=4, epochs=1, dtype="float64", backend="reference"
    )
    plain = gt.Graph(RAW.edge_index, 45, x=SCALED.x.toarray(), edge_attr=RAW.edge_attr)
    with pytest.raises(
        DataError,
        match="has no relations, but the attributes of each relation have a scale of their own",
    ):
        trainer.on(plain)
