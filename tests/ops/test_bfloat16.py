"""Rounding to bfloat16: to the nearest number, and what is no number stays none."""

from __future__ import annotations

import numpy as np

from graphtheta.base.bfloat16 import BFLOAT16
from graphtheta.ops.rows.bfloat16 import as_float, expanded, round_rows, rounded


def of_bits(bits: np.ndarray) -> np.ndarray:
    """Float32 numbers from their upper 16 bits, without ``expanded``."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


ALL = of_bits(np.arange(1 << 16))


def test_every_bfloat16_number_survives() -> None:
    again = expanded(rounded(ALL))
    numbers = ~np.isnan(ALL)
    np.testing.assert_array_equal(again[numbers].view(np.uint32), ALL[numbers].view(np.uint32))
    assert np.isnan(again[~numbers]).all()


def test_numbers_are_rounded_to_the_nearest_and_ties_to_even() -> None:
    # the finite numbers of one sign, and infinity as if it were the next one
    steps = np.arange(0x7F80)
    below, above = of_bits(steps).astype(np.float64), of_bits(steps + 1).astype(np.float64)
    above[-1] = 2.0**128
    for part in (0.0, 0.25, 0.49, 0.5, 0.51, 0.75):
        between = (below + (above - below) * part).astype(np.float32)
        up = (part > 0.5) | ((part == 0.5) & (steps % 2 == 1))
        nearest = of_bits(steps + up)
        np.testing.assert_array_equal(expanded(rounded(between)), nearest)
        np.testing.assert_array_equal(expanded(rounded(-between)), -nearest)


def test_nan_is_neither_rounded_to_infinity_nor_to_zero() -> None:
    bits = np.array([0x7F800001, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF, 0x7FC00000], np.uint32)
    assert np.isnan(expanded(rounded(bits.view(np.float32)))).all()


def test_layout_and_shape() -> None:
    x = np.random.default_rng(0).standard_normal((5, 6, 4)).astype(np.float32)
    for view in (x, x[::-1], x.transpose(2, 0, 1), x[:0], x[1, 2, 3]):
        short = rounded(view)
        assert short.dtype == BFLOAT16
        assert short.shape == view.shape
        np.testing.assert_allclose(as_float(short), view, rtol=2**-8)
    assert as_float(x) is x


def test_other_numbers_are_converted_first() -> None:
    x = np.linspace(-3, 3, 13)
    for dtype in (np.float64, np.float16):
        same = rounded(x.astype(dtype).astype(np.float32))
        np.testing.assert_array_equal(rounded(x.astype(dtype)), same)
        out = np.zeros(2 * len(x), BFLOAT16)
        round_rows(x.astype(dtype), out[: len(x)])
        np.testing.assert_array_equal(out[: len(x)], same)
        assert not np.any(out[len(x) :])
