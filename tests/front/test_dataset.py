"""Loading by name, path and options; the named graphs, where their folder is there."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from graphtheta.errors import ConfigError, FormatError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.datasets import dataset
from graphtheta.graph.datasets.dataset import data_dirs, load
from graphtheta.graph.datasets.sources import FACTS
from graphtheta.run.job.job import Job
from graphtheta.train.loop.prepare import load_graph

FOLDER = Path(
    os.environ.get("GRAPHTHETA_DATA", Path(__file__).resolve().parents[3] / "shared" / "data")
)
data = pytest.mark.skipif(
    not (FOLDER / "cora.npz").is_file(), reason="no data folder; set GRAPHTHETA_DATA"
)


def named(name: str, **options) -> Graph:
    return load(name, data_dir=FOLDER, **options)


def test_options_in_the_name_or_beside_it():
    assert (
        load("rmat:scale=6,edge_factor=4").digest() == load("rmat", scale=6, edge_factor=4).digest()
    )
    assert load("rmat:scale=6, directed=yes").n_edges < load("rmat:scale=6").n_edges
    assert load("ring:n=7").n_nodes == 7
    assert load("sbm:graph_seed=1").digest() != load("sbm").digest()
    # the same twice is no contradiction
    assert load("ring:n=7,symmetric=yes", n=7, symmetric=True).n_nodes == 7


def test_the_seed_changes_splits_and_nothing_else():
    a, b = (load("sbm", split="random", seed=s) for s in (1, 2))
    assert (a.train != b.train).any() and a.with_masks(None).digest() == b.with_masks(None).digest()
    assert load("sbm", seed=5).digest() == load("sbm").digest()


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("nowhere", {}, ["'nowhere'", "sbm, rmat, ring, star"]),
        ("rmat:scale", {}, ["'scale' is not key=value"]),
        ("rmat:scale=6, scale=7", {}, ["the option scale is given twice", "drop one"]),
        ("rmat:scale=6", {"scale": 7}, ["the dataset has scale=6", "scale=7 is given", "drop one"]),
        ("ring:split=random", {"split": "none"}, ["has split=random", "split=none is given"]),
        ("ring:symmetric=yes", {"symmetric": False}, ["has symmetric=yes", "symmetric=False"]),
        ("rmat:depth=3", {}, ["no option 'depth'", "scale, edge_factor"]),
        ("rmat:scale=big", {}, ["scale must be a whole number", "'big'"]),
        ("rmat:a=nan", {}, ["a must be a finite number, got 'nan'"]),
        ("rmat", {"scale": 2.5}, ["scale must be a whole number", "2.5"]),
        ("rmat:directed=perhaps", {}, ["directed must be yes"]),
        ("ring", {"split": "thirds"}, ["unknown split 'thirds'", "public"]),
        ("ring", {"symmetric": "perhaps"}, ["symmetric must be yes, no or auto"]),
        ("ring", {"normalise_features": "max"}, ["normalise_features must be", "standard"]),
        ("ring", {"train_per_class": -1}, ["train_per_class must not be negative"]),
        ("cora:colour=red", {}, ["cora has no option 'colour'", "it has no options"]),
    ],
)
def test_unknown_words(name, options, words):
    with pytest.raises(ConfigError) as caught:
        load(name, **options)
    for word in words:
        assert word in str(caught.value)


def test_a_missing_folder(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"cora\.npz is not in .*GRAPHTHETA_DATA.*sbm"):
        load("cora", data_dir=tmp_path)
    monkeypatch.setenv("GRAPHTHETA_DATA", str(tmp_path / "empty"))
    with pytest.raises(ConfigError, match="empty"):
        load("cora")
    with pytest.raises(FormatError, match="does not exist"):
        load(tmp_path / "a.npz")
    # without any choice: beside the current folder or beside the checkout
    monkeypatch.delenv("GRAPHTHETA_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_dirs(None) == [
        Path("../shared/data"),
        Path(__file__).resolve().parents[3] / "shared" / "data",
        tmp_path / "graphtheta" / "data",
    ]


def test_files_by_path_and_by_name(tmp_path):
    np.savez(
        tmp_path / "mine.npz",
        edge_index=[[0, 1, 2, 3, 3], [1, 2, 0, 3, 0]],
        y=np.arange(4) % 2,
        x=np.eye(4),
    )
    g = load(tmp_path / "mine.npz", split="auto")
    assert (g.train | g.val | g.test).all()
    for g in (load(tmp_path / "mine.npz"), load("mine", data_dir=tmp_path)):
        assert g.name == "mine" and g.train is None
    g = load(
        str(tmp_path / "mine.npz"),
        split="none",
        symmetric=True,
        self_loops="no",
        normalise_features="standard",
    )
    assert g.train is None and g.n_edges == 8 and (g.src != g.dst).all()
    np.testing.assert_allclose(g.x.mean(axis=0), 0, atol=1e-6)
    assert load(f"{tmp_path / 'mine.npz'}:self_loops=yes").n_edges == 8
    with pytest.raises(ConfigError, match="no option 'n'"):
        load(tmp_path / "mine.npz", n=3)
    with pytest.raises(ConfigError, match="mine"):
        load("other", data_dir=tmp_path)


def test_public_is_asked_for_and_not_there():
    with pytest.raises(ConfigError, match="has no split of its own"):
        dataset.split_nodes(Graph([[0], [1]], y=[0, 1]), "public", 0, {})


def test_every_name_has_a_line():
    assert set(dataset.names()) == set(dataset.ENTRIES) and all(dataset.names().values())
    assert dataset.generated() == ["sbm", "rmat", "ring", "star"]


# name: nodes, edges, features, edge attributes, classes, training, validation and test nodes or
# edges
FIGURES = {
    "cora": (2708, 10556, 1433, 0, 7, 140, 500, 1000),
    "citeseer": (3327, 9228, 3703, 0, 6, 120, 500, 1000),
    "amazon_photo": (7487, 238_086, 745, 0, 8, 160, 240, 7087),
    "amazon_computers": (13381, 491_556, 767, 0, 10, 200, 300, 12881),
    "coauthor_cs": (18333, 163_788, 6805, 0, 15, 300, 450, 17583),
    "mol_tox21": (145_459, 302_190, 34, 9, 10, 103_714, 20_925, 20_820),
    "traffic_chicago_regional": (12982, 39018, 3, 8, 0, 22_389, 7494, 7407),
    "bitcoin_otc": (5881, 35592, 3, 1, 0, 21_356, 7118, 7118),
    "fb15k_237": (14541, 310_116, 32, 32, 0, 272_115, 17_535, 20_466),
    "wn18rr": (40943, 93003, 32, 11, 0, 86_835, 3034, 3134),
    "graphchallenge_sbm_50k": (50_000, 1_018_039, 0, 0, 44, 880, 1320, 47_800),
}


@data
@pytest.mark.parametrize("name", FIGURES)
def test_named_graphs(name):
    g = named(name)
    masks = (
        (g.train, g.val, g.test) if g.train is not None else (g.edge_train, g.edge_val, g.edge_test)
    )
    counts = tuple(int(m.sum()) for m in masks)
    assert (g.n_nodes, g.n_edges, g.n_features, g.n_edge_features, g.n_classes, *counts) == FIGURES[
        name
    ]
    # what the list of data sets says
    facts = FACTS[name]
    assert FIGURES[name][:3] == (facts.nodes, facts.edges, facts.features)
    assert g.n_classes == facts.classes
    g.require_training()


@data
def test_row_normalisation_is_the_usual_one():
    total = np.asarray(named("citeseer").x.sum(axis=1)).ravel()
    assert (np.isclose(total, 1) | (total == 0)).all() and (total == 0).sum() == 15
    assert named("cora", normalise_features="none").x.data.max() == 1


@data
def test_random_splits_of_the_protocols():
    photo = named("amazon_photo", seed=3)
    assert (photo.train != named("amazon_photo").train).any()
    assert (np.bincount(photo.y[photo.train]) == 20).all() and (
        np.bincount(photo.y[photo.val]) == 30
    ).all()
    assert (photo.to_scipy() != photo.to_scipy().T).nnz == 0
    cora = named("cora", split="random", train_per_class=5)
    assert [int(m.sum()) for m in (cora.train, cora.val, cora.test)] == [35, 500, 1000]
    assert int(named("cora", split="random", val_per_class=9).val.sum()) == 63


@data
def test_molecules_hide_the_element():
    g = named("mol_tox21")
    assert g.meta["class_names"][0] == "Z=6" and g.meta["class_names"][-1] == "other"
    # no edge joins two parts: whole molecules are split
    part = np.select([g.train, g.val, g.test], [0, 1, 2])
    assert (part[g.src] == part[g.dst]).all()
    # no feature alone says the class
    for column in g.x.T:
        chosen = column > 0
        guesses = sum(
            np.bincount(g.y[chosen == side]).max()
            for side in (True, False)
            if (chosen == side).any()
        )
        assert guesses / g.n_nodes < 0.9
    assert named("mol_tox21:hide=degree+hydrogens").n_features < g.n_features
    with pytest.raises(ConfigError, match="hide names colour"):
        named("mol_tox21", hide="colour")


@data
def test_traffic_is_split_by_region():
    g = named("traffic_chicago_regional")
    ends = [set(g.src[m]) | set(g.dst[m]) for m in (g.edge_train, g.edge_val, g.edge_test)]
    assert not (ends[0] & ends[1] or ends[0] & ends[2] or ends[1] & ends[2])
    assert g.edge_y[g.edge_train].mean() == pytest.approx(0, abs=1e-5) and g.edge_y[
        g.edge_train
    ].std() == pytest.approx(1, abs=1e-5)
    flow = g.edge_y * g.meta["target_deviation"] + g.meta["target_mean"]
    assert flow.min() == pytest.approx(0, abs=0.01) and flow.max() == pytest.approx(
        18007.5, rel=1e-3
    )
    assert named("traffic_chicago_regional", coordinates=True).n_features == 5
    assert (named("traffic_chicago_regional", seed=1).edge_train != g.edge_train).any()


@data
def test_topologies_take_random_features():
    assert named("road_usa_bay").x is None
    assert named("road_usa_bay:features=4").n_features == 4


@data
def test_some_colleges():
    g = named("facebook100:colleges=2,target=gender")
    assert (g.n_nodes, g.n_classes, g.n_features) == (8621, 2, 77)
    key = g.src * g.n_nodes + g.dst
    assert (np.diff(key) > 0).all() and (np.sort(g.dst * g.n_nodes + g.src) == key).all()


@data
def test_graphs_of_several_types():
    g = named("hetero_acm:labels=20")
    assert (
        g.node_types == ("paper", "author", "subject")
        and g.n_relations == 4
        and g.n_features == 1902 + 1902 + 60
    )
    assert [int(mask.sum()) for mask in (g.train, g.val, g.test)] == [60, 1000, 1000] and g.train[
        :4019
    ].sum() == 60
    with pytest.raises(ConfigError, match="labels=7 is not among its splits, 20, 40, 60"):
        named("hetero_acm:labels=7")
    g = named("hetero_movielens100k:inverse=no")
    assert (g.n_nodes, g.n_edges, g.n_relations, g.n_edge_features, g.y) == (
        2677,
        234725,
        6,
        4,
        None,
    )


def test_a_key_of_a_job_beside_another_option_of_its_dataset():
    for name, keys in (
        ("sbm:split=random", {"split": "fraction"}),
        ("sbm:self_loops=no", {"self_loops": "yes"}),
        ("sbm:split=random,train_per_class=3", {"train_per_class": 4}),
    ):
        ((key, value),) = keys.items()
        with pytest.raises(ConfigError, match=rf"the dataset has {key}=\w+, but {key}={value} is"):
            load_graph(Job(dataset=name, **keys))
    # keys at their defaults choose nothing, and a job has a seed of its own
    assert load_graph(Job(dataset="sbm:split=random,seed=3", seed=1)).train is not None
