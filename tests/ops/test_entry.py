"""Reads without a look for negative indices."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from graphtheta.ops.compile.entry import entry


@pytest.mark.parametrize(
    "array", [np.arange(9, dtype=np.int32), np.arange(9.0)[::2], np.arange(9) % 2 == 0]
)
def test_entries_are_those_of_the_array(array):
    read = numba.njit(lambda x, i: entry(x, i))
    assert [read(array, i) for i in range(len(array))] == array.tolist()


def test_a_read_does_not_ask_whether_the_index_is_negative():
    def compared(function) -> bool:
        made = numba.njit(_nrt=False)(function)
        made.compile((numba.int32[::1], numba.int64))
        return "icmp slt" in next(iter(made.inspect_llvm().values()))

    assert compared(lambda x, i: x[i])
    assert not compared(lambda x, i: entry(x, i))
