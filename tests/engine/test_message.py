"""Messages: what is put in comes out, in place where it can, and rounded columns are the nearest
numbers of 16 bits.
"""

from __future__ import annotations

import numpy as np
import pytest

from graphtheta.base.bfloat16 import WIDE
from graphtheta.engine.partition import message
from graphtheta.engine.partition.exchange import pointers
from graphtheta.engine.partition.message import MessageBuffer, MessageLayout, halo_scope

COUNTS = [3, 0, 5]


def sent(columns, counts=COUNTS):
    """What arrives of some columns: messages written to one buffer and read from another."""
    layout = MessageLayout(columns)
    ptr = pointers(counts)
    out = MessageBuffer.of(layout, ptr, columns)
    into = MessageBuffer(layout, ptr)
    for (q, a), (p, b) in zip(out.messages(), into.messages(), strict=True):
        assert q == p and a.nbytes == counts[q] * layout.width
        b[:] = a
    return out, into


def test_columns_arrive_contiguous_and_aligned(rng):
    columns = {
        "s": rng.random((8, 2)).astype(np.float32),
        "z": rng.random((8, 2, 3)),
        "b": rng.random(8) < 0.5,
        "none": np.zeros((8, 0)),
    }
    out, into = sent(columns)
    for found in (out.read(), into.read()):
        for name, x in columns.items():
            np.testing.assert_array_equal(found[name], x)
            assert (
                found[name].flags.c_contiguous
                and found[name].flags.aligned
                and found[name].dtype == x.dtype
            )
    for q, rows in ((0, slice(0, 3)), (1, slice(3, 3)), (2, slice(3, 8))):
        for name, x in into.part(q).items():
            np.testing.assert_array_equal(x, columns[name][rows])
            assert x.flags.c_contiguous and x.flags.aligned


def test_a_column_alone_is_sent_and_received_in_place(rng):
    x = rng.random((8, 3))
    out, into = sent({"x": x, "none": np.zeros((8, 0))})
    assert all(np.shares_memory(message, x) for _, message in out.messages())
    assert all(np.shares_memory(message, into.read()["x"]) for _, message in into.messages())


def test_several_columns_from_one_partner_stay_where_they_land(rng):
    _, into = sent({"x": rng.random((4, 3)), "y": rng.random(4)}, [0, 4])
    ((_, message),) = into.messages()
    assert all(np.shares_memory(message, x) for x in into.read().values())


def test_nothing_is_sent_of_no_rows():
    out, into = sent({"x": np.zeros((0, 3)), "y": np.zeros(0)}, [0, 0])
    assert out.messages() == [] and into.read()["x"].shape == (0, 3)


@pytest.mark.parametrize("n", [2**28 + 5, 2**29 + 5])
def test_messages_of_more_bytes_than_32_bits_count(n, monkeypatch):
    """Their bounds may be those of sparse rows, of 32 bits. The memory is not touched."""
    monkeypatch.setattr(message.buffers, "empty", np.empty)
    entries = MessageLayout({"at": np.zeros(0, np.int32), "value": np.zeros(0, np.float32)})
    ((q, sent),) = MessageBuffer(entries, np.array([0, 0, n], np.int32)).messages()
    assert q == 1 and sent.nbytes == 8 * n


# ---- in 16 bits


def nearest(x):
    """The nearest number of 8 significant bits, to even between two, by arithmetic."""
    mantissa, exponent = np.frexp(x.astype(np.float64))
    return np.ldexp(np.round(mantissa * 256) / 256, exponent).astype(np.float32)


def rounded(x, counts=COUNTS):
    with halo_scope("bf16"):
        return sent({"x": x, "more": x}, counts)[1].read()["x"]


@pytest.mark.parametrize("counts", [COUNTS, [8]])
def test_wide_numbers_are_rounded_to_the_nearest(rng, counts):
    x = (rng.standard_normal((8, WIDE)) * 10.0 ** rng.integers(-30, 30, (8, WIDE))).astype(
        np.float32
    )
    x[0, :6] = 0, 1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, np.inf, -np.inf
    found = rounded(x, counts)
    np.testing.assert_array_equal(found, np.where(np.isinf(x), x, nearest(x)))
    assert np.all(np.abs(found[1:] - x[1:]) <= 2.0**-8 * np.abs(x[1:]))
    assert found[0, 1:4].tolist() == [1, 1 + 2**-6, -1]


def test_what_is_not_a_number_stays_so():
    x = np.full((8, WIDE), 0x7F800001, np.uint32).view(np.float32)
    x[:, 1] = np.uint32(0xFFFFFFFF).view(np.float32)
    assert np.isnan(rounded(x)).all()


def test_narrow_and_wide_types_are_sent_as_they_are(rng):
    columns = {
        "scores": rng.random((8, WIDE - 1)).astype(np.float32),
        "double": rng.random((8, WIDE)),
        "id": np.arange(8),
    }
    with halo_scope("bf16"):
        _, into = sent(columns)
        assert (
            MessageLayout(
                {"z": np.zeros((0, 2, WIDE), np.float32), "s": np.zeros((0, 2), np.float32)}
            ).width
            == 2 * WIDE * 2 + 8
        )
    for name, x in into.read().items():
        np.testing.assert_array_equal(x, columns[name])
