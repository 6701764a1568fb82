"""The sort that kernels call, against NumPy's."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from graphtheta.ops.kernels.heap_sort import sort


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 9) | st.integers(-(1 << 62), 1 << 62), max_size=40))
def test_keys_are_sorted_and_values_stay_with_them(numbers):
    keys = np.array(numbers, np.int64)
    values = np.arange(len(keys), dtype=np.int32)
    in_order = keys.copy()
    sort(in_order, values)
    np.testing.assert_array_equal(in_order, np.sort(keys))
    np.testing.assert_array_equal(keys[values], in_order)
    np.testing.assert_array_equal(np.sort(values), np.arange(len(keys)))
    alone = keys.copy()
    sort(alone, alone)
    np.testing.assert_array_equal(alone, in_order)
