"""Memory that is used again, and passes by blocks of rows."""

import gc

import numpy as np
import pytest

from graphtheta.ops.parallel import buffers


def address(x):
    return x.__array_interface__["data"][0]


def test_memory_is_used_again_when_the_last_view_is_gone():
    store = buffers.Store()
    x = store.take(1 << 20)
    view = x[10:20]
    where = address(x)
    del x
    y = store.take(1 << 20)
    assert address(y) != where
    view[:] = 7
    del view
    gc.collect()
    assert address(store.take(1 << 20)) == where


def test_smaller_arrays_share_a_free_block_which_is_one_again_when_they_are_gone():
    store = buffers.Store()
    x = store.take(8 << 20)
    where = address(x)
    del x
    low, middle, high = (store.take(n << 20) for n in (2, 3, 3))
    assert sorted(map(address, (low, middle, high))) == [where + (n << 20) for n in (0, 2, 5)]
    # the one between the others last
    del low, high, middle
    gc.collect()
    assert address(store.take(8 << 20)) == where


def test_an_array_takes_the_smallest_range_and_no_small_part_of_a_large_one():
    store = buffers.Store()
    arrays = [store.take(n << 20) for n in (32, 4)]
    small = address(arrays[1])
    del arrays
    gc.collect()
    first, second = store.take(3 << 20), store.take(3 << 20)
    assert address(first) == small
    assert not np.may_share_memory(first, second)
    assert max(p.size for p in store._free) == 32 << 20


def test_memory_that_the_system_does_not_have_is_a_memory_error():
    with pytest.raises(MemoryError, match="bytes"):
        buffers.Store().take(1 << 60)


def test_what_is_kept_is_bounded_by_what_was_in_use():
    store = buffers.Store()
    for size in (1 << 20, 1 << 21, 1 << 22, 1 << 23):
        store.take(size)
    store.take(1 << 20)
    assert store._unused + store._used <= buffers.SLACK * store._most


@pytest.mark.parametrize("shape", [(3, 4), (1 << 10, 1 << 9), (0, 8), ()])
def test_empty_has_the_shape_and_type_asked_for(shape):
    x = buffers.empty(shape, np.float32)
    x[...] = 1
    assert x.shape == shape and x.dtype == np.float32 and x.flags.c_contiguous and x.flags.writeable


@pytest.mark.parametrize(
    "part", [np.s_[:], np.s_[:900], np.s_[..., 3:201], np.s_[::2], np.s_[..., ::-1]]
)
def test_add_in_place_and_not(rng, part):
    x, y = (rng.normal(size=(1 << 11, 1 << 8))[part] for _ in range(2))
    expected = x + y
    assert np.array_equal(buffers.add(x, y), expected)
    assert np.array_equal(buffers.add(x, y.copy()), expected)
    assert buffers.add(x, y, out=x) is x and np.array_equal(x, expected)


def test_rowwise_equals_the_function(rng):
    x = rng.normal(size=(1 << 12, 40))
    y = rng.normal(size=(1 << 12, 1))
    assert np.array_equal(buffers.rowwise(np.divide)(x, y), x / y)
    assert np.array_equal(
        buffers.rowwise(lambda a, axis: a.max(axis=axis))(x, axis=1), x.max(axis=1)
    )


def test_release_returns_free_blocks():
    store = buffers.Store()
    first = store.take(5 << 20)
    second = store.take(5 << 20)
    del first
    store.release()
    assert not store._free and store._unused == 0 and store._used == store._most == 5 << 20
    del second
    again = store.take(5 << 20)
    assert again.nbytes == 5 << 20 and store._used == 5 << 20
