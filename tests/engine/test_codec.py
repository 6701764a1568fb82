from __future__ import annotations

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal

from graphtheta.engine.comm.codec import LARGE, decode, encode
from graphtheta.errors import FormatError

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(-9, 9), inner)
    ),
)
dtypes = hnp.boolean_dtypes() | hnp.integer_dtypes() | hnp.floating_dtypes(sizes=(32, 64))
arrays = hnp.arrays(dtypes, hnp.array_shapes(min_dims=0, min_side=0))


@given(plain)
def test_objects_come_back_equal_and_of_the_same_type(obj):
    assert repr(decode(encode(obj))) == repr(obj)


@given(arrays)
def test_arrays_come_back(x):
    got = decode(encode([x]))[0]
    assert got.dtype == x.dtype and got.shape == x.shape and got.flags.writeable
    assert_array_equal(got, x)


SCALARS = [
    np.float32(1.5),
    np.int64(-3),
    np.bool_(True),
    np.str_("a"),
    np.str_(""),
    np.array("a"),
    np.array(["", "bc"]),
    np.array([]),
]


@pytest.mark.parametrize("x", SCALARS)
def test_scalars_and_strings(x):
    got = decode(encode(x))
    assert type(got) is type(x) and got.dtype == x.dtype
    assert_array_equal(got, x)


def test_layout_does_not_matter():
    x = np.arange(24).reshape(2, 3, 4).T[::2]
    assert_array_equal(decode(encode(x)), x)


def test_large_arrays_are_set_aside():
    large = np.arange(LARGE, dtype=np.uint8)
    small = np.arange(3)
    aside: list[np.ndarray] = []
    data = encode((large, small, large.reshape(2, -1)), aside)
    assert len(data) < 1000 and [x.nbytes for x in aside] == [LARGE, LARGE]
    room: list[np.ndarray] = []
    got = decode(data, room)
    for box, x in zip(room, aside, strict=True):
        box[...] = x
    assert_array_equal(got[0], large)
    assert_array_equal(got[1], small)
    assert_array_equal(got[2], large.reshape(2, -1))


@pytest.mark.parametrize(
    "obj",
    [object(), {1}, 1j, int, 2**64, np.array([None]), np.zeros(2, [("a", "i4")]), [{"a": (len,)}]],
)
def test_refused(obj):
    with pytest.raises(FormatError, match="cannot encode"):
        encode(obj)


def test_damaged():
    data = encode({"a": np.arange(9), "b": (1, 2)})
    for n in range(len(data)):
        with pytest.raises(FormatError):
            decode(data[:n])
    with pytest.raises(FormatError):
        decode(data + b"x")
    for payload in (
        ["|O", [1], b"12345678"],
        ["<f8", [3], b"12345678"],
        ["nonsense", [1], b""],
        [1],
        7,
    ):
        with pytest.raises(FormatError):
            decode(msgpack.packb(msgpack.ExtType(2, msgpack.packb(payload))))
