"""Inference on a grown graph of several types whose nodes have no ids: numbers of later types change when nodes are appended."""
from __future__ import annotations

import numpy as np
import pytest
from grown_graphs import check

import graphtheta as gt

pytestmark = pytest.mark.reference


def molecules(n: int) -> gt.Graph:
    """The first n of some small graphs, one of them without edges."""
    rng = np.random.default_rng(1)
    made = [gt.Graph(rng.integers(0, nodes, (2, edges)), nodes, x=rng.normal(size=(nodes, 3)))
            for nodes, edges in ((3, 4), (4, 4), (1, 0), (5, 6), (6, 9), (7, 20), (3, 3))]
    return gt.whole_graphs(made[:n], np.arange(n) % 2, train=np.arange(n) < 3, val=np.arange(n) >= 3)


def of_types(users: int, items: int, seed: int = 5) -> gt.Graph:
    """Users and items with dense features of their own widths and no ids; the first ones are the same for all numbers."""
    rng = np.random.default_rng(seed)
    x = {"user": rng.normal(size=(40, 3)), "item": rng.normal(size=(40, 5))}
    y, rated = rng.integers(0, 2, 40), rng.integers(0, 30, (2, 90))
    new = np.array([[u, i] for u in range(30, users) for i in (0, items - 1)] + [[1, i] for i in range(30, items)], int).reshape(-1, 2).T
    ends = np.concatenate((rated, new), axis=1)
    return gt.Graph({("user", "rates", "item"): ends, ("item", "rated", "user"): ends[::-1]}, {"user": users, "item": items},
                    x={"user": x["user"][:users], "item": x["item"][:items]}, y={"item": y[:items]},
                    train={"item": np.arange(items) < 20}, val={"item": np.arange(items) >= 20})


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("compare", ["values", "degrees"])
@pytest.mark.parametrize(("users", "items"), [(32, 30), (30, 31), (32, 33)])
def test_nodes_of_several_types_without_ids(tmp_path, users, items, compare, size):
    work = check("rgcn", of_types(30, 30), of_types(users, items), tmp_path / "kept", size, layers=2, compare=compare)
    assert work.appended == users + items - 60 and work.changed < users + items


@pytest.mark.parametrize("compare", ["values", "degrees"])
@pytest.mark.parametrize("readout", ["sum", "set2set"])
def test_whole_graphs(tmp_path, readout, compare):
    work = check("gin", molecules(5), molecules(7), tmp_path / "kept", 3, layers=2, readout=readout, compare=compare)
    # two graphs of ten nodes, and a readout node for each
    assert work.appended == work.changed == 12
