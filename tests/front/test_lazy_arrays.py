"""Arrays whose rows are read when they are used: NumPy's arrays and these cannot be told apart by
their values.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as drawn

import graphtheta as gt
from graphtheta.base import lazy_array
from graphtheta.base.lazy_array import LazyArray
from graphtheta.base.npy import map_npy
from graphtheta.engine.store.memory import MemoryColumn
from graphtheta.engine.store.quantised import QuantisedColumn
from graphtheta.graph.data import lazy
from graphtheta.graph.schema.rescaled import Recoded, Rescaled
from graphtheta.graph.store.text import StoredTexts, text_parts

ROWS, WIDTH = 7, 3
MATRIX = np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)
TEXTS = np.array(["a", "", "ccc", "ä€", "b", "dd", "x"])


def mapped(folder, values):
    np.save(folder / "values.npy", values)
    return folder / "values.npy"


# from a folder to an array, and to its values
KINDS = {
    "extended": lambda folder: lazy.Extended(np.arange(5), 2, lambda k: 50 + k),
    "extended rows": lambda folder: lazy.Extended(
        map_npy(mapped(folder, MATRIX[:4])), 3, lambda k: MATRIX[4 + k]
    ),
    "extended to a wider type": lambda folder: lazy.Extended(
        np.arange(5, dtype=np.int32), 2, lambda k: k, np.int64
    ),
    "extended by nothing": lambda folder: lazy.Extended(np.arange(ROWS), 0, lambda k: k),
    "without": lambda folder: lazy.Without(10, np.array([0, 4, 5])),
    "kept": lambda folder: lazy.MatchingNumbers(
        2 * ROWS, lambda begin, end: np.arange(begin, end) % 2 == 1
    ),
    "selected": lambda folder: lazy.Selected(
        np.arange(10) ** 2, lazy.Without(10, np.array([0, 4, 5]))
    ),
    "recoded": lambda folder: Recoded(
        map_npy(mapped(folder, np.arange(ROWS))), lambda codes: codes + 1
    ),
    "rescaled": lambda folder: Rescaled(
        map_npy(mapped(folder, MATRIX)), lambda rows, numbers: 2 * rows
    ),
    "texts": lambda folder: StoredTexts(*text_parts(TEXTS), "ids"),
    "mapped": lambda folder: gt.MappedColumn(mapped(folder, MATRIX)),
    "mapped axes": lambda folder: gt.MappedColumn(
        mapped(folder, np.arange(ROWS * 6).reshape(ROWS, 2, 3))
    ),
    "codes": lambda folder: QuantisedColumn(
        MemoryColumn(np.arange(ROWS * WIDTH).reshape(ROWS, WIDTH)), *np.ones((2, WIDTH), np.float32)
    ),
}
EXPECTED = {
    "extended": [0, 1, 2, 3, 4, 50, 51],
    "extended to a wider type": [0, 1, 2, 3, 4, 0, 1],
    "without": [1, 2, 3, 6, 7, 8, 9],
    "kept": [1, 3, 5, 7, 9, 11, 13],
    "selected": [1, 4, 9, 36, 49, 64, 81],
    "texts": TEXTS,
    "rescaled": 2 * MATRIX,
    "mapped": MATRIX,
    "extended rows": MATRIX,
    "codes": MATRIX + 1,
    "recoded": np.arange(1, ROWS + 1),
}


@pytest.fixture(autouse=True, scope="module")
def chunks_of_three_rows():
    with pytest.MonkeyPatch.context() as patch:
        for module in (lazy, lazy_array):
            patch.setattr(module, "CHUNK", 3)
        yield


@pytest.fixture(scope="module", params=KINDS)
def array(request, tmp_path_factory):
    return KINDS[request.param](tmp_path_factory.mktemp("files"))


@pytest.mark.parametrize("kind", EXPECTED)
def test_values(kind, tmp_path):
    array = KINDS[kind](tmp_path)
    assert np.array_equal(np.asarray(array), EXPECTED[kind]) and isinstance(array, LazyArray)


def whole(array):
    """All values, read in the plainest way."""
    return array.read(np.arange(array.shape[0])).astype(array.dtype)


def integers(length):
    return st.integers(-length - 1, length)


def indices(shape):
    """Indices of every kind, some of them wrong."""
    n = shape[0]
    masks = st.integers(1, len(shape)).flatmap(lambda axes: drawn.arrays(bool, shape[:axes]))
    lists = st.lists(integers(n), max_size=4)
    arrays = drawn.arrays(
        np.int64,
        drawn.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3),
        elements=integers(n),
    )
    wrong = st.sampled_from([1.0, "a", np.ones(n + 1, bool), [0.5], n, -n - 1, [[0, n]]])
    one = st.one_of(
        integers(n),
        st.slices(n),
        st.none(),
        st.just(...),
        st.booleans(),
        masks,
        lists,
        arrays,
        wrong,
        arrays.map(lambda x: x.astype(np.int8)),
        integers(n).map(np.int32),
    )
    several = st.lists(one, max_size=4).map(tuple)
    return st.one_of(
        drawn.basic_indices(shape, allow_newaxis=True),
        drawn.integer_array_indices(shape),
        one,
        several,
    )


def outcome(read):
    """What an expression gives: its values, shape and type, or that there is no such index."""
    try:
        found = np.asarray(read())
    except IndexError:
        return "IndexError"
    return found.shape, found.dtype.kind, found.tolist()


@pytest.mark.one_in(6)
@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_every_index_gives_what_numpy_gives(array, data):
    values = whole(array)
    key = data.draw(indices(values.shape))
    found, wanted = outcome(lambda: array[key]), outcome(lambda: values[key])
    # numbers that are broadcast with nothing, as in x[False, [7]], are not checked by NumPy
    unchecked = found == "IndexError" and wanted != found and not np.prod(wanted[0])
    assert found == wanted or unchecked


def test_one_number_is_a_number(array):
    first = (0,) * array.ndim
    assert type(array[first]) is type(whole(array)[first]) and np.ndim(array[first]) == 0


USES = {
    "asarray": np.asarray,
    "array": np.array,
    "copy": lambda x: np.array(x, copy=True),
    "as text": lambda x: np.asarray(x, dtype="U8"),
    "iteration": lambda x: np.stack(list(x)),
    "zip": lambda x: [a for a, b in zip(x, x, strict=True) if np.array_equal(a, b)],
    "length": lambda x: [len(x), x.ndim, x.size, *x.shape],
    "equal": lambda x: x == x[1],
    "equal from the left": lambda x: x[:1] == x,
    "reversed": lambda x: np.stack(list(reversed(x))),
    "contains": lambda x: [x[2] in x, "nowhere" in x],
    "list": lambda x: x.tolist(),
    "unique": np.unique,
    "concatenate": lambda x: np.concatenate((x, x)),
    "sort": np.sort,
    "method": lambda x: x.reshape(-1),
    "transposed": lambda x: x.T,
    "nonzero": lambda x: x.astype(str).nonzero()[0],
    "index": lambda x: np.arange(100)[x.argsort(axis=0)],
    "where": lambda x: np.where(x == x[0], 1, 0),
}


@pytest.mark.one_in(4)
@pytest.mark.filterwarnings("ignore:elementwise comparison")
@pytest.mark.parametrize("use", USES)
def test_what_is_done_with_arrays(array, use):
    assert np.array_equal(USES[use](array), USES[use](whole(array)))


@pytest.mark.parametrize(
    "number",
    [
        np.max,
        np.sum,
        np.mean,
        lambda x: x.min(),
        lambda x: x.max(initial=9),
        lambda x: -x + 2 * x,
        np.sqrt,
        lambda x: x.max(axis=0),
        lambda x: x.sum(0, dtype=np.float64),
        lambda x: np.add.reduce(x),
    ],
)
def test_what_is_computed_with_numbers(array, number):
    if array.dtype.kind != "U":
        assert np.array_equal(number(array), number(whole(array)))


def test_it_cannot_be_changed(array):
    for change in (
        lambda: array.__setitem__(0, array[0]),
        lambda: array.sort(),
        lambda: array.fill(0),
    ):
        with pytest.raises(ValueError, match="read-only"):
            change()
    copy = np.array(array)
    copy[0] = copy[1]
    assert not np.array_equal(copy, array)
    with pytest.raises(ValueError, match="truth value of an array"):
        bool(array)
    with pytest.raises(AttributeError, match="no attribute 'tocsr'"):
        array.tocsr  # noqa: B018


def test_a_pickled_one_has_its_values(array):
    assert np.array_equal(pickle.loads(pickle.dumps(array)), whole(array))


def test_a_graph_of_a_store(tmp_path):
    """Ends of edges and features of a store are arrays for its user, also where loops are added or
    left out.
    """
    plain = gt.Graph(
        [[0, 1, 2, 3, 4, 0, 2], [1, 2, 3, 4, 0, 2, 2]], 5, x=np.arange(10).reshape(5, 2)
    )
    gt.import_graph(plain, to=tmp_path / "s.store")
    for change in (lambda g: g, lambda g: g.with_self_loops(), lambda g: g.without_self_loops()):
        stored = change(gt.load(str(tmp_path / "s.store")))
        expected = change(plain)
        assert list(zip(stored.src, stored.dst, strict=True)) == list(
            zip(expected.src, expected.dst, strict=True)
        )
        assert (
            stored.src[-1] == expected.src[-1]
            and stored.dst[::-2].tolist() == expected.dst[::-2].tolist()
        )
        assert np.array_equal(stored.x[:2], expected.x[:2]) and np.array_equal(
            np.asarray(stored.x), expected.x
        )
        assert (stored.x @ np.eye(2) == expected.x).all()
