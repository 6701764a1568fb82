"""What every communicator must do: functions that run on each rank, called by tests and by programs
under mpiexec.
"""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from graphtheta.engine.comm.channel import Tag
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.train.doubling import PendingSum
from graphtheta.errors import CommError, DataError, FormatError, MemoryLimitError, ShapeError
from graphtheta.train.reuse.caching.shared_memory import mates, share


def awkward(rank: int, n: int) -> np.ndarray:
    """Floats of very different size, whose sum depends on the order of addition."""
    i = np.arange(n) + 17 * rank
    return (np.sin(i) * 10.0 ** (i % 9 - 4)).astype(np.float32)


def in_order(parts: list[np.ndarray]) -> np.ndarray:
    total = parts[0].copy()
    for part in parts[1:]:
        total = total + part
    return total


def sums_keep_shape_and_dtype(comm: Comm) -> None:
    for dtype in (np.float32, np.float64, np.int64, np.int32, np.uint8):
        for shape in ((), (3,), (2, 3), (0,), (0, 4)):
            x = np.full(shape, comm.rank + 1, dtype)
            total = comm.all_sum(x)
            assert total.dtype == dtype and total.shape == shape and total is not x
            assert_array_equal(total, np.full(shape, comm.size * (comm.size + 1) // 2, dtype))


def sums_are_exact_for_integers(comm: Comm) -> None:
    big = np.array([2**58 + comm.rank, -(2**62) // comm.size])
    assert_array_equal(
        comm.all_sum(big),
        [2**58 * comm.size + sum(range(comm.size)), -(2**62) // comm.size * comm.size],
    )


def sums_have_the_same_bits_everywhere(comm: Comm) -> None:
    # 400,001 elements take the two-round way with a remainder
    for n in (1, 1000, 400_001):
        total = comm.all_sum(awkward(comm.rank, n))
        assert total.tobytes() == in_order([awkward(q, n) for q in range(comm.size)]).tobytes()


def sums_take_any_layout(comm: Comm) -> None:
    x = np.arange(12.0).reshape(3, 4)[:, ::2].T
    assert_array_equal(comm.all_sum(x), x * comm.size)


def extremes(comm: Comm) -> None:
    x = np.array([comm.rank, -comm.rank], np.int64)
    assert_array_equal(comm.all_max(x), [comm.size - 1, 0])
    assert_array_equal(comm.all_min(x), [0, 1 - comm.size])
    assert (
        comm.all_max(np.array(comm.rank == comm.size - 1))
        and comm.all_max(np.zeros(2, bool)).dtype == bool
    )
    with_nan = np.array([np.nan if comm.rank == 0 else 1.0, 2.0], np.float32)
    assert_array_equal(comm.all_max(with_nan), np.array([np.nan, 2], np.float32))
    assert_array_equal(comm.all_min(with_nan), np.array([np.nan, 2], np.float32))


def refuses_dtypes(comm: Comm) -> None:
    for call, x in (
        (comm.all_sum, np.ones(2, bool)),
        (comm.all_sum, np.array(["a"])),
        (comm.all_max, np.array([1j])),
    ):
        with pytest.raises(CommError, match="expected"):
            call(x)


def gathers_objects(comm: Comm) -> None:
    own = {
        "rank": comm.rank,
        "pair": (1, "é"),
        3: [None, True, b"x", np.float32(0.5)],
        "x": np.arange(comm.rank * 200),
    }
    for q, got in enumerate(comm.all_gather(own)):
        assert got["rank"] == q and got["pair"] == (1, "é") and got[3] == [None, True, b"x", 0.5]
        assert type(got[3][3]) is np.float32
        assert_array_equal(got["x"], np.arange(q * 200))
        got["x"][:] = 0  # writable, and a copy
    assert_array_equal(own["x"], np.arange(comm.rank * 200))


def refuses_objects(comm: Comm) -> None:
    for obj in (object(), np.array([object()]), {1, 2}, len):
        with pytest.raises(FormatError, match="cannot encode"):
            comm.all_gather(obj)


def broadcasts(comm: Comm) -> None:
    for root in range(comm.size):
        obj = {
            "large": np.arange(50_000.0).reshape(100, 500),
            "small": (1, np.int32(2)),
            "none": np.empty((0, 3)),
        }
        got = comm.broadcast(obj if comm.rank == root else None, root)
        assert_array_equal(got["large"], obj["large"])
        assert (
            got["small"] == (1, 2) and got["none"].shape == (0, 3) and got["large"].flags.writeable
        )
    with pytest.raises(CommError, match="root"):
        comm.broadcast(1, root=comm.size)


def sums_in_rounds(comm: Comm) -> None:
    # one that is short, and one that is long on any number of ranks
    pending = sums = [PendingSum(comm, awkward(comm.rank, n)) for n in (7, 200_003)]
    while pending:
        pending = [one for one in pending if one.advance()]
    for one in sums:
        assert_allclose(
            one.total,
            in_order([awkward(q, len(one.total)) for q in range(comm.size)]),
            rtol=1e-4,
            atol=2e-2,
        )
        assert len(set(comm.all_gather(crc32(one.total.tobytes())))) == 1


def gathers_rows(comm: Comm) -> None:
    got = comm.gather_rows(np.full((comm.rank, 2), comm.rank, np.float32))
    if comm.rank:
        assert got is None
        return
    assert got is not None
    for q, part in enumerate(got):
        assert part.dtype == np.float32
        assert_array_equal(part, np.full((q, 2), q))


def refuses_uneven_rows(comm: Comm) -> None:
    if comm.size > 1:
        with pytest.raises(ShapeError, match="trailing shape"):
            comm.gather_rows(np.ones((2, 1 + (comm.rank == 1))))


def all_to_all(comm: Comm) -> None:
    # q + rank rows for rank q; nothing at all between rank 0 and itself
    got = comm.all_to_all(
        [np.full((q + comm.rank, 3), 100 * comm.rank + q, np.int64) for q in range(comm.size)]
    )
    for q, part in enumerate(got):
        assert_array_equal(part, np.full((q + comm.rank, 3), 100 * q + comm.rank))
    with pytest.raises(ShapeError, match=r"expected .* parts"):
        comm.all_to_all([np.ones(1)] * (comm.size + 1))


def swaps_counts(comm: Comm) -> None:
    sent = np.array([[100 * comm.rank + q, q] for q in range(comm.size)], np.int64)
    assert_array_equal(
        comm.swap(sent), [[100 * q + comm.rank, comm.rank] for q in range(comm.size)]
    )
    assert comm.together([lambda: int(comm.all_sum(np.array(1))), lambda: comm.rank]) == [
        comm.size,
        comm.rank,
    ]


def moves(comm: Comm) -> None:
    others = [q for q in range(comm.size) if q != comm.rank]
    sends = [(q, np.full((q + 1, 2), comm.rank, np.float32)) for q in others]
    block = np.zeros((comm.rank + 1, comm.size, 2), np.float32)
    recvs = [(q, np.empty((comm.rank + 1, 2), np.float32)) for q in others]
    empty = [(q, np.empty((0, 2))) for q in others]
    pending = comm.move_begin(sends + empty, recvs, Tag.TO_MIRRORS)
    pending.end()
    for q, array in recvs:
        block[:, q] = array
        assert (array == q).all()
    with pytest.raises(CommError, match="twice"):
        pending.end()


def moves_stay_in_order(comm: Comm) -> None:
    # only the first two ranks have messages, but every rank begins every move
    partners = [1 - comm.rank] if comm.size > 1 and comm.rank < 2 else []
    boxes = [np.full(3, float(i)) if not partners else np.empty(3) for i in range(4)]
    # the second pair has another purpose and is waited for first
    pendings = [
        comm.move_begin(
            [(q, np.full(3, float(i))) for q in partners],
            [(q, boxes[i]) for q in partners],
            1 + i // 2,
        )
        for i in range(4)
    ]
    for i in (3, 0, 2, 1):
        pendings[i].end()
        assert (boxes[i] == i).all()


def moves_of_unknown_length(comm: Comm) -> None:
    """Also where buffer and message differ by whole pieces, or a message is some pieces long."""
    others = [q for q in range(comm.size) if q != comm.rank]
    room, unwritten = 4000, 255
    for lengths in ((1, 7), (1000, 999), (2000, 1), (3, 3000), (4000, 4000), (2001, 1000)):
        sends = [
            (q, np.full(n + comm.rank, i, np.uint8)) for q in others for i, n in enumerate(lengths)
        ]
        boxes = [
            (q, np.full(room + comm.size, unwritten, np.uint8)) for q in others for _ in lengths
        ]
        comm.move_begin(sends, boxes, 1, at_most=True).end()
        for place, (q, box) in enumerate(boxes):
            i = place % len(lengths)
            assert (box[: lengths[i] + q] == i).all()


def refuses_bad_moves(comm: Comm) -> None:
    for partner in (-1, comm.rank, comm.size):
        with pytest.raises(CommError, match="cannot exchange"):
            comm.move_begin([(partner, np.ones(1))], [], 1)
    if comm.size > 1:
        other = (comm.rank + 1) % comm.size
        with pytest.raises(CommError, match="not contiguous"):
            comm.move_begin([(other, np.ones((4, 4))[:, 0])], [], 1)
        with pytest.raises(CommError, match="read-only"):
            comm.move_begin([], [(other, np.broadcast_to(np.ones(1), (1,)))], 1)
        with pytest.raises(CommError, match="tag"):
            comm.move_begin([(other, np.ones(1))], [], 64)


class OwnError(DataError):
    """An error of a plug-in, which other ranks may not know, and cannot make from a text."""

    def __init__(self, row: int, why: str):
        super().__init__(f"row {row} is {why}")


def agrees(comm: Comm) -> None:
    with comm.agreed():
        value = comm.rank
    assert value == comm.rank
    last = comm.size - 1
    for failing in ({last}, {0}, {last, last // 2}, set(range(comm.size))):
        for error, kind in (
            (FormatError("bad edge"), FormatError),
            (OwnError(3, "bad"), DataError),
            (MemoryLimitError("no room"), MemoryLimitError),
        ):
            with pytest.raises(kind) as caught, comm.agreed():
                if comm.rank in failing:
                    raise error
            if comm.rank in failing:
                assert caught.value is error
            else:
                assert type(caught.value) is kind
                assert str(caught.value) == f"rank {min(failing)}: {error}"
    comm.barrier()


def agrees_in_blocks_of_blocks(comm: Comm) -> None:
    """Wherever a rank fails, and whatever the others do then, all leave the outer block alike."""

    def fail(at: str, where: str) -> None:
        if comm.rank == comm.size // 2 and at == where:
            raise DataError(at)

    for at in ("before", "inside", "behind"):
        passed = False
        with pytest.raises(DataError) as caught, comm.agreed():
            fail(at, "before")
            with comm.agreed():
                fail(at, "inside")
            passed = True
            fail(at, "behind")
        assert str(caught.value).endswith(at) and passed == (at == "behind")
        comm.barrier()
    with comm.agreed(), pytest.raises(DataError), comm.agreed():
        fail("inside", "inside")
    comm.barrier()


def agrees_before_returning(comm: Comm) -> None:
    def rows() -> int:
        with comm.agreed():
            if comm.rank:
                return comm.rank
            raise DataError("no rows")

    with pytest.raises(DataError, match="no rows"):
        rows()
    comm.barrier()


def counts_messages_and_bytes(comm: Comm) -> None:
    comm.barrier()
    before = comm.ledger.snapshot()
    with comm.ledger.stage("reduce"):
        comm.all_sum(np.ones(10))
    with comm.ledger.stage("move"):
        others = [q for q in range(comm.size) if q != comm.rank]
        boxes = [(q, np.empty(5, np.float32)) for q in others]
        comm.move_begin([(q, np.ones(5, np.float32)) for q in others], boxes, 1).end()
    spent = comm.ledger.since(before)
    alone = comm.size == 1
    assert (spent["reduce"]["bytes"], spent["reduce"]["messages"]) == ((0, 0) if alone else (80, 1))
    assert (spent["move"]["bytes"], spent["move"]["messages"]) == (20 * len(others), len(others))
    assert (
        spent["other"]["bytes"] == 0 and spent["move"]["wait"] > 0 and spent["move"]["seconds"] > 0
    )


def workers_of_a_machine_share_memory(comm: Comm) -> None:
    assert len(comm.machines) == comm.size
    parts = share(comm, 100 + comm.rank)
    for q, part in zip(mates(comm), parts, strict=True):
        assert len(part) == 100 + q and part.flags.writeable == (q == comm.rank) and not part.any()
    comm.barrier()
    parts[list(mates(comm)).index(comm.rank)][:] = comm.rank + 1
    comm.barrier()
    for q, part in zip(mates(comm), parts, strict=True):
        assert (part == q + 1).all()


def users_have_channels_of_their_own(comm: Comm) -> None:
    views = comm.open_channels("views", 2)
    loaders = comm.open_channels("loaders", 1)
    more = comm.open_channels("views", 4)
    assert more[:2] == views == comm.open_channels("views", 2)
    assert len({0, *more, *loaders}) == 6
    assert set(comm.all_gather(repr((more, loaders)))) == {repr((more, loaders))}


CONTRACT = [
    sums_keep_shape_and_dtype,
    sums_are_exact_for_integers,
    sums_have_the_same_bits_everywhere,
    sums_take_any_layout,
    extremes,
    refuses_dtypes,
    gathers_objects,
    refuses_objects,
    broadcasts,
    sums_in_rounds,
    gathers_rows,
    refuses_uneven_rows,
    all_to_all,
    swaps_counts,
    moves,
    moves_stay_in_order,
    moves_of_unknown_length,
    refuses_bad_moves,
    agrees,
    agrees_in_blocks_of_blocks,
    agrees_before_returning,
    counts_messages_and_bytes,
    workers_of_a_machine_share_memory,
    users_have_channels_of_their_own,
]
