"""Drawn graphs go in through every entrance and come out again: as they are, and as predictions
under their ids.

``PYTHONPATH=tests python tests/front/test_every_entrance.py 10000`` draws more of them than the
test does.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from entrances import Given, GivenTypes, content
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import graphtheta as gt

DRAWS = 200
# entrances that a drawn graph is given to; each of them is as likely
ENTRANCES = 2
# spaces around values of text files and the character 0 are no part of texts, and a text without
# characters is none
LETTERS = st.characters(codec="utf-8", exclude_characters="\0")
ODD = [
    "007",
    "1",
    "1.0",
    "-0",
    "0x1f",
    "1e5",
    "true",
    "NA",
    "nan",
    "null",
    "#a",
    "//",
    "a,b",
    'a"b',
    '"',
    "a\tb",
    "a\nb",
    "a;b|c",
]
ODD += ["2020-01-01", str(2**64), "é", "src", "-", "'"]
TEXTS = (st.sampled_from(ODD) | st.text(LETTERS, min_size=1, max_size=4)).filter(
    lambda x: x == x.strip() and x
)
WHOLE = st.sampled_from(
    [0, 1, -1, 2**24 + 1, 2**31, -(2**31) - 1, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)]
)
WHOLE |= st.integers(-5, 5)
REAL = st.floats(width=32, allow_nan=False, allow_infinity=False)
NAMES = st.sampled_from(
    ["kind", "type_", "n_nodes", "x_values", "Zeit", "größe", "a1", "batch_size"]
)


def rows(values, n, width=None):
    """n values, or n rows of them."""
    cells = st.lists(values, min_size=n * (width or 1), max_size=n * (width or 1))
    return cells.map(lambda x: x if width is None else np.asarray(x).reshape(n, width))


@st.composite
def columns(draw, n, end=""):
    """Named columns: integers, floats, bools, texts or times, under names that end so."""
    out = {}
    for name in draw(st.lists(NAMES.map(lambda name: name + end), max_size=2, unique=True)):
        kind = draw(st.sampled_from(["whole", "real", "flag", "text", "time", "rows"]))
        if kind == "whole":
            out[name] = np.array(draw(rows(WHOLE, n)), np.int64)
        elif kind == "real":
            out[name] = np.array(draw(rows(REAL, n)), np.float64)
        elif kind == "flag":
            out[name] = np.array(draw(rows(st.booleans(), n)), bool)
        elif kind == "text":
            out[name] = np.array(draw(rows(TEXTS, n)), np.str_)
        elif kind == "time":
            out[name] = np.array(draw(rows(st.integers(-(2**32), 2**32), n)), "M8[s]")
        else:
            out[name] = draw(rows(REAL, n, 2)).astype(np.float32).reshape(n, 2)
    return out


@st.composite
def labels(draw, n):
    """Labels of every kind, some of which may be missing; None for no labels."""
    kind = draw(
        st.sampled_from(["none", "classes", "bools", "names", "several", "real", "several real"])
    )
    absent = np.array(draw(rows(st.sampled_from([False, False, True]), n)), bool) & (
        np.arange(n) > 0
    )
    if kind == "classes":
        return np.where(absent, -1, np.array(draw(rows(st.integers(0, 3), n)), int))
    if kind == "bools":
        return np.array(draw(rows(st.booleans(), n)), bool)
    if kind == "names":
        return np.array(
            [
                None if gone else name
                for gone, name in zip(absent, draw(rows(TEXTS, n)), strict=True)
            ],
            object,
        )
    if kind == "several":
        return draw(rows(st.integers(0, 1), n, 2))
    if kind == "real":
        return np.where(absent, np.nan, np.array(draw(rows(REAL, n))) + 0.5)
    if kind == "several real":
        return np.where(absent[:, None], np.nan, draw(rows(REAL, n, 2)) + 0.5)
    return None


def known(y, n):
    """Which nodes have a label, [n] bool."""
    if y is None:
        return np.ones(n, bool)
    if y.dtype.kind == "O":
        return np.array([value is not None for value in y.tolist()], bool)
    return ~np.isnan(np.asarray(y, float).reshape(n, -1)).any(axis=1) & (
        y.reshape(n, -1)[:, 0] != -1 if y.dtype.kind == "i" else True
    )


@st.composite
def masks(draw, y, n):
    """Some masks of nodes with labels."""
    parts = np.array(draw(rows(st.sampled_from([0, 0, 1, 2, 3]), n)))
    names = draw(
        st.sampled_from([("train",), ("train", "test"), ("train", "val", "test"), ("val",), ()])
    )
    found = {name: known(y, n) & (parts == ("train", "val", "test").index(name)) for name in names}
    return found if y is not None else {}


@st.composite
def ids(draw, n):
    """Unique ids, integers or texts; None for numbers."""
    kind = draw(st.sampled_from([None, WHOLE, TEXTS]))
    return (
        None
        if kind is None
        else np.array(draw(st.lists(kind, min_size=n, max_size=n, unique=True)))
    )


@st.composite
def graphs(draw):
    """The arguments of ``Given``."""
    n = draw(st.integers(1, 5))
    e = draw(st.integers(0, 6))
    ends = st.lists(st.integers(0, n - 1), min_size=e, max_size=e)
    y = draw(labels(n))
    number = draw(st.sampled_from([REAL, st.integers(-4, 4), st.booleans()]))
    return {
        "n": n,
        "src": np.array(draw(ends), np.int64),
        "dst": np.array(draw(ends), np.int64),
        "ids": draw(ids(n)),
        "x": draw(st.none() | rows(number, n, draw(st.integers(1, 3)))),
        "y": y,
        "masks": draw(masks(y, n)),
        "edge_attr": draw(st.none() | rows(number, e, draw(st.integers(1, 2)))),
        "edge_weight": draw(st.none() | rows(REAL, e).map(lambda x: np.array(x, np.float64))),
        "node_columns": draw(columns(n)),
        # types of columns of text files are stated by name, for both tables
        "edge_columns": draw(columns(e, "_of_edges")),
    }


@st.composite
def typed_graphs(draw):
    """The arguments of ``GivenTypes``."""
    counts = {
        kind: draw(st.integers(1, 4))
        for kind in draw(st.sampled_from([("a",), ("a", "b"), ("b", "é", "c")]))
    }
    ends = {}
    kinds = st.sampled_from(list(counts))
    for name in draw(
        st.lists(st.sampled_from(["to", "of", "index"]), min_size=1, max_size=3, unique=True)
    ):
        a = draw(kinds)
        b = draw(kinds)
        e = draw(st.integers(0, 4))
        end = lambda kind, e=e: np.array(
            draw(st.lists(st.integers(0, counts[kind] - 1), min_size=e, max_size=e)), np.int64
        )
        ends[a, name, b] = (end(a), end(b))
    of = draw(kinds)
    number = draw(st.sampled_from([REAL, st.integers(-4, 4)]))
    y = draw(labels(counts[of]).filter(lambda y: y is None or y.dtype.kind != "O"))
    return {
        "counts": counts,
        "ends": ends,
        "x": {
            kind: draw(rows(number, n, 1 + len(kind.encode()) % 2 + n % 2))
            for kind, n in counts.items()
            if draw(st.booleans())
        },
        "y": {} if y is None else {of: y},
        "masks": {name: {of: mask} for name, mask in draw(masks(y, counts[of])).items()},
        "node_columns": (
            {"kind": {of: np.array(draw(rows(WHOLE, counts[of])), np.int64)}}
            if draw(st.booleans())
            else {}
        ),
        "edge_columns": (
            {
                "when": {
                    key: np.array(draw(rows(WHOLE, len(pair[0]))), np.int64)
                    for key, pair in ends.items()
                }
            }
            if draw(st.booleans())
            else {}
        ),
    }


def check(made, entrances):
    """Compare what entrances make of a graph with the graph of its arrays, and what a model
    predicts of them.
    """
    wanted = made.arrays()
    trainer = trained(wanted) if wanted.train is not None and wanted.train.any() else None
    for entrance in entrances:
        found = getattr(made, entrance)()
        ordered = "networkx" not in entrance
        assert content(found, ordered) == content(wanted, ordered), entrance
        if trainer is not None:
            ids, out = trainer.predict()
            again, others = trainer.on(with_features(found)).predict()
            assert again.tolist() == ids.tolist(), entrance
            assert np.allclose(others, out, rtol=1e-4, atol=1e-5), entrance


def trained(graph):
    """A small model that has seen the graph once, if it can learn without diverging."""
    learns = graph.label_kind == "classes"
    trainer = gt.Trainer(
        "sage", with_features(graph), hidden=2, epochs=1 if learns else 0, backend="reference"
    )
    if learns:
        trainer.fit()
    return trainer


def with_features(graph):
    """The graph with small features, which differ from node to node, and without edge weights."""
    return graph.replace(x=np.sin(np.arange(graph.n_nodes * 3.0)).reshape(-1, 3), edge_weight=None)


def run(values, kind, choose):
    """Give one drawn graph to some of its entrances."""
    with tempfile.TemporaryDirectory() as folder:
        made = kind(Path(folder), **values)
        check(made, choose(made.entrances()))


def draws(n):
    """A property test of n draws."""

    @settings(
        max_examples=n,
        deadline=None,
        derandomize=n == DRAWS,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    @given(st.data())
    def entrances_agree(data):
        typed = data.draw(st.sampled_from([False, False, False, True]))
        values = data.draw(typed_graphs() if typed else graphs())
        choose = lambda names: data.draw(
            st.lists(st.sampled_from(names), min_size=ENTRANCES, max_size=ENTRANCES, unique=True)
        )
        run(values, GivenTypes if typed else Given, choose)

    return entrances_agree


test_drawn_graphs = pytest.mark.second(draws(DRAWS))


if __name__ == "__main__":
    # metrics of few nodes are often not defined
    logging.disable(logging.WARNING)
    draws(int(sys.argv[1]))()
    print(f"{sys.argv[1]} draws agree")
