"""Standardised features of a graph with types: a scale for the columns of each type, in training
and on other graphs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.base.npy import in_files
from graphtheta.base.typed_rows import TypedRows
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError, DataError
from graphtheta.graph.store.from_graph import write_store

pytestmark = pytest.mark.reference

RNG = np.random.default_rng(0)
SIZES = {"paper": 40, "author": 50, "topic": 110}
WIDTHS = {"paper": 7, "author": 4}
ENDS = {
    (a, name, b): (RNG.integers(0, SIZES[a], n), RNG.integers(0, SIZES[b], n))
    for a, name, b, n in (
        ("author", "writes", "paper", 150),
        ("topic", "of", "paper", 60),
        ("author", "knows", "author", 60),
    )
}
# columns of other means and deviations, one of them constant
FEATURES = {
    name: (RNG.standard_normal((SIZES[name], d)) * np.arange(1, d + 1) + 10).astype(np.float32)
    for name, d in WIDTHS.items()
}
TRAIN = np.arange(40) % 3 == 0
FEATURES["paper"][:, 2] = 4
LABELS: dict[str, Any] = {
    "y": {"paper": RNG.integers(0, 3, 40)},
    "train": {"paper": TRAIN},
    "val": {"paper": np.arange(40) % 3 == 1},
}
RAW = gt.Graph(ENDS, SIZES, x=FEATURES, **LABELS)
FORMS = {
    "apart": RAW,
    "sparse": RAW.replace(x=RAW.x.tocsr()),
    "dense": RAW.replace(x=RAW.x.toarray()),
}
SCALED = RAW.with_standardised_features()
UNLABELLED = {"y": None, "train": None, "val": None, "test": None}
KEYS: dict[str, Any] = {
    "model": "rgcn",
    "hidden": 5,
    "epochs": 2,
    "dtype": "float64",
    "backend": "reference",
    "seed": 4,
}


def whole(x: Any) -> np.ndarray:
    return x if isinstance(x, np.ndarray) else x.toarray()


def turned(**x: Any) -> gt.Graph:
    """The graph with its types in another order, without labels."""
    return gt.Graph(
        {name: ENDS[name] for name in reversed(ENDS)},
        {name: SIZES[name] for name in reversed(SIZES)},
        x={name: FEATURES[name] for name in ("author", "paper")} | x,
    )


@pytest.mark.parametrize("name", FORMS)
def test_a_type_is_scaled_over_its_own_nodes(name: str) -> None:
    """Over its training nodes, or all of them if it has none; nodes of other types stay 0."""
    graph = FORMS[name].with_standardised_features()
    x = whole(graph.x)
    papers = graph.nodes_of("paper")
    authors = graph.nodes_of("author")
    expected = np.zeros_like(x)
    for rows, columns, fitted, of in (
        (papers, slice(0, 7), TRAIN, "paper"),
        (authors, slice(7, 11), np.full(50, True), "author"),
    ):
        mean = FEATURES[of][fitted].mean(axis=0)
        deviation = FEATURES[of][fitted].std(axis=0)
        expected[rows, columns] = np.divide(
            FEATURES[of] - mean, deviation, out=np.zeros_like(FEATURES[of]), where=deviation > 1e-6
        )
    np.testing.assert_allclose(x, expected, rtol=1e-5, atol=1e-5)
    assert not x[papers, 2].any() and graph.meta["feature_scale"]["widths"] == [7, 4, 0]
    assert isinstance(graph.x, np.ndarray if name == "dense" else TypedRows)
    unmasked = FORMS[name].replace(**UNLABELLED).with_standardised_features()
    np.testing.assert_allclose(whole(unmasked.x)[papers].mean(axis=0), 0, atol=1e-5)
    again = graph.with_standardised_features()
    np.testing.assert_allclose(whole(again.x), x, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        again.meta["feature_scale"]["mean"],
        graph.meta["feature_scale"]["mean"],
        rtol=1e-5,
        atol=1e-5,
    )


def test_columns_of_all_nodes_have_one_scale() -> None:
    graph = gt.Graph(
        RAW.edge_index,
        RAW.n_nodes,
        x=RAW.x.toarray(),
        node_columns={"type": RAW.node_columns["type"]},
    )
    scaled = graph.with_standardised_features()
    np.testing.assert_allclose(scaled.x.mean(axis=0), 0, atol=1e-5)
    assert "widths" not in scaled.meta["feature_scale"]


def test_readout_nodes_do_not_count() -> None:
    """Nodes of whole graphs are scaled without those that were added to read them out."""
    base = gt.Graph([[0, 1, 2], [1, 0, 3]], 4, x=[[1.0], [2.0], [3.0], [6.0]])
    graph = gt.whole_graphs(
        base, [0, 1], graph_of=[0, 0, 1, 1], train=[True, False]
    ).with_standardised_features()
    np.testing.assert_allclose(
        whole(graph.x)[:, 0], [*(np.array([1, 2, 3, 6]) - 3) / np.sqrt(3.5), 0, 0], rtol=1e-6
    )


def numbers(
    comm: Any, graph: Any, others: list[Any], **keys: Any
) -> tuple[np.ndarray, list[np.ndarray]]:
    """What a training gives, and predictions on other graphs."""
    made = gt.Trainer(
        **{**KEYS, **keys},
        comm=comm,
        **({"graph": graph} if isinstance(graph, gt.Graph) else {"dataset": graph}),
    )
    losses = [row["loss"] for row in made.fit().history]
    found = [one.predict("all") for one in (made, *map(made.on, others))]
    return np.concatenate(
        [losses, *(np.ravel(x) for _, x in sorted(made.model.state().items()))]
    ), [x[1] for x in found if x is not None]


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"model": "hgt", "heads": 2, "hidden": 6},
        {"model": "sage"},
        {
            "strategy": "mini",
            "batch_size": 5,
            "fanout": (3, 2),
            "mode": "independent",
            "views_per_step": 2,
        },
    ],
    ids=["global", "hgt", "without types", "independent"],
)
def test_any_number_of_workers_and_any_form(tmp_path: Path, keys: dict[str, Any]) -> None:
    store = tmp_path / "raw.store"
    write_store(RAW, store, SerialComm())
    forms = {"apart": RAW, "sparse": FORMS["sparse"], "dense": FORMS["dense"], "store": store}
    chosen = {"apart": 1, "sparse": 2, "dense": 3, "store": 4}
    expected, out = run_simulated(1, numbers, SCALED, [], **keys)[0]
    for name, size in chosen.items():
        given = str(store) if name == "store" else forms[name].with_standardised_features()
        more = {"normalise_features": "standard", "split": "public"} if name == "store" else {}
        found, again = run_simulated(size, numbers, given, [], **keys, **more)[0]
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(again[0], out[0], rtol=1e-6, atol=1e-6)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("model", ["rgcn", "sage", "hgt"])
@pytest.mark.parametrize("size", [1, 3])
def test_the_scale_is_applied_to_other_graphs(tmp_path: Path, model: str, size: int) -> None:
    """To the same values in any form, also those in files, and in another order of the types."""
    for name, graph in FORMS.items():
        write_store(graph.replace(**UNLABELLED), tmp_path / name, SerialComm())
    held = gt.load(tmp_path / "apart")
    assert in_files(held.x.blocks[0])
    over_others = RAW.replace(train=RAW.val, val=RAW.train).with_standardised_features()
    others = [
        RAW,
        RAW.replace(**UNLABELLED),
        FORMS["sparse"],
        FORMS["dense"],
        held,
        gt.load(tmp_path / "sparse"),
        gt.load(tmp_path / "dense"),
        over_others,
        turned(),
        turned().with_standardised_features(),
        turned(topic=sp.csr_array((110, 0))).replace(x=turned().x.tocsr()),
    ]
    keys = {"model": model, **({"heads": 1} if model == "hgt" else {})}
    _, found = run_simulated(size, numbers, SCALED, others, **keys)[0]
    moved = np.concatenate([turned().nodes_of(name) for name in SIZES])
    for i, out in enumerate(found[1:]):
        np.testing.assert_allclose(out[moved] if i >= 8 else out, found[0], rtol=1e-4, atol=1e-5)
    # a model of values as they are, and one of values that were scaled over all nodes together, get
    # such values
    together = FORMS["dense"].replace(meta={}).with_standardised_features()
    together = together.replace(meta={**RAW.meta, **together.meta})
    for trained, other in ((RAW, SCALED), (together, RAW), (together, held)):
        _, (own, other) = run_simulated(size, numbers, trained, [other], **keys)[0]
        np.testing.assert_allclose(other, own, rtol=1e-4, atol=1e-4)


def test_graphs_with_fewer_and_with_unknown_types() -> None:
    """A type that the model does not know has no columns; without an edge that leads from it
    nothing else changes.
    """
    fewer = gt.Graph(
        {name: ENDS[name] for name in ENDS if "topic" not in name},
        {name: SIZES[name] for name in WIDTHS},
        x=FEATURES,
    )
    more = gt.Graph(
        {**ENDS, ("venue", "near", "venue"): ([0], [1])},
        {"venue": 3, **SIZES},
        x={**FEATURES, "venue": np.ones((3, 2))},
    )
    trainer = gt.Trainer("sage", SCALED, **{key: x for key, x in KEYS.items() if key != "model"})
    trainer.fit()
    cut = RAW.keep_edges(RAW.edge_columns["relation"] != 1)
    papers = trainer.on(fewer).predict(fewer.nodes_of("paper"))[1]  # type: ignore[index]
    np.testing.assert_allclose(
        papers, trainer.on(cut).predict(cut.nodes_of("paper"))[1], rtol=1e-5, atol=1e-5
    )  # type: ignore[index]
    for form in (more, more.replace(x=more.x.tocsr()), more.replace(x=more.x.toarray())):
        found = trainer.on(form).predict(form.nodes_of("author"))[1]  # type: ignore[index]
        np.testing.assert_allclose(
            found, trainer.predict(RAW.nodes_of("author"))[1], rtol=1e-5, atol=1e-5
        )  # type: ignore[index]


def run(comm: Any, **keys: Any) -> list[float]:
    """Losses of the epochs."""
    keys = {
        **KEYS,
        "dataset": "raw.store",
        "normalise_features": "standard",
        "dropout": 0.2,
        "out": "run",
        **keys,
    }
    return [row["loss"] for row in gt.Trainer(comm=comm, **keys).fit().history]


def test_a_run_that_goes_on_and_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On other numbers of workers; the weights bring the scale."""
    monkeypatch.chdir(tmp_path)
    write_store(RAW, "raw.store", SerialComm())
    expected = run(SerialComm(), out="whole", epochs=4)
    for epochs, size in ((1, 3), (2, 1), (4, 2)):
        # a run that may resume writes checkpoints
        found = run_simulated(size, run, epochs=epochs, resume=True)[0]
        np.testing.assert_allclose(found, expected[:epochs], rtol=1e-7)
    flags = [
        "--model",
        "rgcn",
        "--hidden",
        "5",
        "--epochs",
        "2",
        "--normalise-features",
        "standard",
        "--out",
        "trained",
    ]
    assert main(["train", "--dataset", "raw.store", *flags]) == 0
    own = gt.open_run("trained").predict()
    for graph in (RAW, FORMS["sparse"], turned()):
        other = gt.open_run("trained", graph.replace(**UNLABELLED)).predict(graph.nodes_of("paper"))
        expected = own[1][:40]  # type: ignore[index]
        np.testing.assert_allclose(other[1], expected, rtol=1e-5, atol=1e-5)  # type: ignore[index]


def test_a_run_that_was_begun_with_one_scale_for_all_types_is_not_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a version that had no scales of types."""
    monkeypatch.chdir(tmp_path)
    write_store(RAW, "raw.store", SerialComm())
    sizes = gt.Trainer._sizes.fget  # type: ignore[attr-defined]
    with monkeypatch.context() as earlier:
        earlier.setattr(
            gt.Trainer,
            "_sizes",
            property(
                lambda self: {name: n for name, n in sizes(self).items() if name != "scaled_types"}
            ),
        )
        run(SerialComm(), epochs=1, resume=True)
    with pytest.raises(
        ConfigError,
        match=(
            "3 types of nodes and edges have features in a scale of their own, but 0 have in the"
            " run in"
        ),
    ):
        run(SerialComm(), epochs=2, resume=True)


@pytest.mark.second
def test_what_does_not_fit() -> None:
    with pytest.raises(
        DataError,
        match=(
            r"x has 12 columns, but those of its types are 11.*standardise them before columns are"
            r" added"
        ),
    ):
        RAW.replace(
            x=np.concatenate((RAW.x.toarray(), np.ones((200, 1))), axis=1)
        ).with_standardised_features()
    for form in (np.asarray, sp.csr_array):
        with pytest.raises(
            DataError,
            match=r"nodes of a type have values in columns of x that belong to other types",
        ):
            RAW.replace(x=form(RAW.x.toarray() + np.eye(200, 11))).with_standardised_features()
    trainer = gt.Trainer("sage", SCALED, **{key: x for key, x in KEYS.items() if key != "model"})
    plain = gt.Graph(RAW.edge_index, RAW.n_nodes, x=RAW.x.toarray())
    with pytest.raises(
        DataError,
        match=r"has no types of nodes, but the features of each type have a scale of their own",
    ):
        trainer.on(plain)
    split = RAW.replace(train=np.stack((RAW.train, RAW.val), axis=1), val=None, test=None)
    with pytest.raises(DataError, match="split_index=K"):
        split.with_standardised_features()
