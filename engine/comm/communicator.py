"""The communicator: one interface for MPI, a single rank, and simulated ranks.

An implementation supplies ``poll`` and four primitives on plain buffers. The collectives are built
on them here, once, so all implementations return the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from itertools import pairwise
from threading import Thread
from typing import Any, TypeVar

import numpy as np

from graphtheta.base.console import complain
from graphtheta.errors import CommError, GraphThetaError, ShapeError

from .call_site import call_site
from .channel import Pending, Send, Tag, check_move, check_rows, numbered, record_move
from .codec import decode, encode
from .failure import class_name, rebuild
from .ordered_reduce import fold
from .transport import Transport

T = TypeVar("T")
# Arrays up to this many bytes are copied behind the header of their collective; before longer ones
# the header is sent alone.
SHORT = 1 << 15
# kinds of dtypes that can be added up, and that have an order: letters of NumPy, and their names
SUMMED = ("fiu", "floats or integers")
ORDERED = ("fiub", "floats, integers or bools")


class Comm(Transport):
    """A group of ranks.

    Messages of one channel never match those of another. Within a channel all ranks run the same
    operations in the same order. Operations of different channels have no order, so each rank may
    interleave its work items as it likes. Code outside of work items uses channel 0.

    Attributes:
        rank: Number of this rank, 0 to ``size - 1``.
        size: Number of ranks.
        cores: Threads of this rank that may compute at the same time.
        machines: Number of the machine of each rank, [size] int64; ranks of one machine can share
            memory. Simulated ranks are on one machine, unless a test assigns other numbers.
        takes_threads: Whether threads of a rank that it has not started may use it, each in a
            channel of its own.
    """

    takes_threads = True

    def open_channels(self, user: str, n: int) -> list[int]:
        """Open channels until a user has ``n`` of its own, which no other user has.

        Args:
            user: What works in them at a time when another user may, such as "views".
            n: Number of channels, the same on all ranks.

        Returns:
            Their numbers, the same on all ranks, [n].

        Collective: all ranks.
        """
        self._enter("open_channels", user, n)
        self._gather_checked(np.empty(0, np.uint8))
        numbers = self._channels_of.setdefault(user, [])
        while len(numbers) < n:
            numbers.append(len(self._channels))
            self._extend_channels(numbers[-1])
        return numbers[:n]

    def barrier(self) -> None:
        """Return when every rank has called it.

        Collective: all ranks.
        """
        self._enter("barrier")
        self._gather_checked(np.empty(0, np.uint8))
        self._count(0)

    def all_sum(self, x: np.ndarray) -> np.ndarray:
        """Sum over the ranks, added in rank order.

        Args:
            x: Array of any shape, float or integer; same shape and dtype on every rank.

        Returns:
            New array like ``x``, with the same bits on every rank.

        Raises:
            CommError: If the dtype cannot be added up.

        Collective: all ranks.
        """
        return self._combined("all_sum", x, np.add, SUMMED)

    def all_max(self, x: np.ndarray) -> np.ndarray:
        """Maximum over the ranks, element by element; NaN on any rank gives NaN.

        Args:
            x: Array of any shape, float, integer or bool; same shape and dtype on every rank.

        Returns:
            New array like ``x``, with the same bits on every rank.

        Raises:
            CommError: If the dtype has no order.

        Collective: all ranks.
        """
        return self._combined("all_max", x, np.maximum, ORDERED)

    def all_min(self, x: np.ndarray) -> np.ndarray:
        """Minimum over the ranks, element by element; NaN on any rank gives NaN.

        Args:
            x: Array of any shape, float, integer or bool; same shape and dtype on every rank.

        Returns:
            New array like ``x``, with the same bits on every rank.

        Raises:
            CommError: If the dtype has no order.

        Collective: all ranks.
        """
        return self._combined("all_min", x, np.minimum, ORDERED)

    def all_gather(self, obj: Any) -> list[Any]:
        """Small objects of all ranks, on all ranks.

        Args:
            obj: Anything ``codec.encode`` accepts. For rows of data use ``gather_rows``.

        Returns:
            The objects in rank order; the own one is a copy too.

        Raises:
            FormatError: If the object cannot be encoded.

        Collective: all ranks.
        """
        self._enter("all_gather")
        return [decode(data) for data in self._gather_bytes(encode(obj))]

    def broadcast(self, obj: Any, root: int = 0) -> Any:
        """An object of one rank, on all ranks; large arrays travel without being copied into a
        message.

        Args:
            obj: On ``root`` anything ``codec.encode`` accepts; ignored elsewhere.
            root: The rank that has the object.

        Returns:
            On ``root`` the object itself, elsewhere a copy.

        Raises:
            FormatError: If the object cannot be encoded.

        Collective: all ranks.
        """
        if not 0 <= root < self.size:
            raise CommError(
                f"broadcast: root {root} is not one of the {self.size} ranks, at {call_site()};"
                f" give 0 to {self.size - 1}"
            )
        self._enter("broadcast", root)
        arrays: list[np.ndarray] = []
        data = encode(obj, arrays) if self.rank == root else b""
        head = np.array([self._channel.header, len(data)], np.int64)
        with self.ledger.waiting():
            self._broadcast_flat(head.view(np.uint8), root)
            self._check(head[:1])
            body = np.frombuffer(bytearray(data) or bytearray(int(head[1])), np.uint8)
            self._broadcast_flat(body, root)
            result = obj if self.rank == root else decode(body.data, arrays)
            for array in arrays:
                self._broadcast_flat(array.reshape(-1).view(np.uint8), root)
        if self.rank == root:
            self._count(len(data) + sum(array.nbytes for array in arrays))
        return result

    def gather_rows(self, x: np.ndarray) -> list[np.ndarray] | None:
        """Arrays of different lengths of all ranks, on rank 0.

        Args:
            x: Rows [n, ...]; n may differ between ranks and may be 0, dtype and trailing shape may
                not.

        Returns:
            On rank 0 the arrays in rank order (parts of one new array), elsewhere None. Rows travel
            along a binomial tree, so a rank receives and holds up to half of them meanwhile.

        Raises:
            ShapeError: If dtype or trailing shape differ between ranks; on all ranks.

        Collective: all ranks.
        """
        self._enter("gather_rows")
        x = np.ascontiguousarray(x)
        heads = [decode(data) for data in self._gather_bytes(encode((x.dtype.str, x.shape)))]
        check_rows("gather_rows", [(dtype, shape[1:]) for dtype, shape in heads])
        rank = self.rank
        at = np.cumsum([0, *(shape[0] for _, shape in heads)])
        rows = np.empty((at[_subtree(rank, self.size)] - at[rank], *x.shape[1:]), x.dtype)
        rows[: len(x)] = x
        step = 1
        while step < self.size:
            # one level of the tree: children send their subtrees, which follow each other, to their
            # parents
            sends: list[Send] = []
            recvs: list[Send] = []
            if rank % (2 * step) == step:
                sends = [(rank - step, rows)]
            elif rank % (2 * step) == 0 and rank + step < self.size:
                child = rank + step
                bounds = (at[child] - at[rank], at[_subtree(child, self.size)] - at[rank])
                recvs = [(child, rows[slice(*bounds)])]
            self.move_begin(sends, recvs, Tag.GATHER_ROWS).end()
            step *= 2
        return None if rank else [rows[a:b] for a, b in pairwise(at)]

    def all_to_all(self, parts: list[np.ndarray]) -> list[np.ndarray]:
        """Send ``parts[q]`` to rank q; only non-empty parts become messages.

        Args:
            parts: One array [n_q, ...] for each rank, of one dtype and trailing shape; lengths are
                free.

        Returns:
            What each rank sent here, in rank order; the own part is copied.

        Raises:
            ShapeError: If the number of parts is not ``size`` or dtypes or trailing shapes differ.
            CommError: If they differ between ranks.

        Collective: all ranks.
        """
        if len(parts) != self.size:
            raise ShapeError(
                f"all_to_all: expected {self.size} parts, one for each rank, got {len(parts)} at"
                f" {call_site()}"
            )
        parts = [np.ascontiguousarray(part) for part in parts]
        kinds = [(part.dtype.str, part.shape[1:]) for part in parts]
        check_rows("all_to_all", kinds)
        self._enter("all_to_all", *kinds[0])
        header = self._channel.header
        heads = np.array([(header, len(part)) for part in parts], np.int64)
        arriving = np.empty_like(heads)
        self._swap_into(heads, arriving)
        self._count(heads.nbytes)
        self._check(arriving[:, 0])
        result = [
            parts[q].copy() if q == self.rank else np.empty((n, *kinds[0][1]), parts[0].dtype)
            for q, n in enumerate(arriving[:, 1])
        ]
        others = [q for q in range(self.size) if q != self.rank]
        self.move_begin(
            [(q, parts[q]) for q in others], [(q, result[q]) for q in others], Tag.ALL_TO_ALL
        ).end()
        return result

    def swap(self, counts: np.ndarray) -> np.ndarray:
        """Send row q to rank q.

        Args:
            counts: [size, n] int64; n is the same on all ranks.

        Returns:
            The rows that the ranks sent here, in rank order, [size, n] int64.

        Collective: all ranks.
        """
        self._enter("swap", counts.shape)
        sent = np.insert(counts, 0, self._channel.header, axis=1)
        arriving = np.empty_like(sent)
        self._swap_into(sent, arriving)
        self._count(sent.nbytes)
        self._check(arriving[:, 0])
        return arriving[:, 1:]

    def start_thread(self, work: Callable[[], None], name: str) -> Callable[[], bool]:
        """Call a function in another thread of this rank, with a copy of the context variables.

        Args:
            work: May use this communicator in channels that no other thread uses.
            name: Of the thread.

        Returns:
            A function that says whether the thread has ended, to be polled.
        """
        thread = Thread(target=copy_context().run, args=(work,), name=name, daemon=True)
        thread.start()
        return lambda: not thread.is_alive()

    def changed(self) -> None:
        """Something has changed that other threads of this rank may wait for; those that poll at
        intervals need no call.
        """

    def together(self, work: Sequence[Callable[[], T]]) -> list[T]:
        """Run functions that communicate; returns their results in order. Some communicators merge
        their messages.

        Args:
            work: The functions, the same on every rank.
        """
        return [function() for function in work]

    @contextmanager
    def agreed(self) -> Iterator[None]:
        """A block that ends without an error on all ranks or with one on all, so that no rank
        waits for one that failed::

            with comm.agreed():
                manifest = read_manifest(folder)

        A rank that has an error raises its own. The others raise that of the lowest failing rank,
        with the text "rank r: ..." and the same class, or its nearest base in
        ``graphtheta.errors``.

        All ranks enter the block; some may do nothing in it. It sends no messages, except in other
        such blocks. Ranks agree on the errors of ``graphtheta.errors``, which are raised on
        purpose. Any other exception is a bug or comes from outside: as everywhere, it ends the job
        with the traceback of its rank.

        Collective: all ranks.
        """
        try:
            yield
        except GraphThetaError as error:
            if self.size > 1 and not error.agreed:
                self._agree(error)
            raise
        if self.size > 1:
            self._agree(None)

    def move_begin(
        self, sends: list[Send], recvs: list[Send], tag: int, *, at_most: bool = False
    ) -> Pending:
        """Start sending and receiving arrays whose sizes both sides know.

        Every rank begins the same moves, even with nothing to send or receive. Empty arrays are
        not sent.

        Args:
            sends: Pairs of destination rank and C-contiguous array.
            recvs: Pairs of source rank and C-contiguous, writable array to be filled.
            tag: Purpose of the move, 0 to 63, usually a ``Tag``.
            at_most: Receive buffers may be longer than the messages. A message fills the beginning
                of its buffer and must contain its own length.

        Returns:
            The pending move; call its ``end``.

        Raises:
            CommError: If a partner is out of range or this rank itself, or a buffer is not
                contiguous or writable.
        """
        sends = [item for item in sends if item[1].size]
        recvs = [item for item in recvs if item[1].size]
        check_move(rank=self.rank, size=self.size, sends=sends, recvs=recvs, tag=tag)
        channel = self._channel
        number = channel.next_move(tag)
        return record_move(
            channel.ledger,
            sends,
            recvs,
            tag,
            self._post(sends, recvs, numbered(tag, number), at_most),
        )

    def leave(self, text: str, code: int) -> int:
        """End the job after an uncaught error on this rank.

        Args:
            text: Message for the user, with a newline at its end; printed once if all ranks fail
                alike.
            code: Exit status.

        Returns:
            The exit status, if the caller must exit by itself.
        """
        if text:
            complain(text.removesuffix("\n"))
        return code

    def _agree(self, error: GraphThetaError | None) -> None:
        """End a block on whose errors ranks agree.

        Args:
            error: That of this rank, which goes on by itself; raises that of another rank if None.
        """
        self._enter("agreed")
        error_text = None if error is None else (class_name(error), str(error))
        heads = [decode(data) for data in self._gather_bytes(encode(error_text))]
        if error is not None:
            error.agreed = True
            return
        for rank, head in enumerate(heads):
            if head is not None:
                other = rebuild(head[0], f"rank {rank}: {head[1]}")
                other.agreed = True
                raise other

    def _combined(
        self, name: str, x: np.ndarray, combine: np.ufunc, kinds: tuple[str, str]
    ) -> np.ndarray:
        x = np.asarray(x)
        if x.dtype.kind not in kinds[0]:
            raise CommError(
                f"{name}: expected {kinds[1]}, got dtype {x.dtype} at {call_site()}; convert it"
                " first"
            )
        self._enter(name, x.dtype, x.shape)
        self._count(x.nbytes)
        if self.size > 1:
            if x.nbytes <= SHORT:
                raw = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
                return (
                    fold(self._gather_checked(raw).view(x.dtype), combine).reshape(x.shape).copy()
                )
            self._gather_checked(np.empty(0, np.uint8))
        return self._channel.reduction.combine(x, combine)


def _subtree(rank: int, size: int) -> int:
    """The last rank of a subtree of a binomial tree, plus 1."""
    # as many as its lowest bit that is set; the root has all
    return min(rank + (rank & -rank), size) if rank else size
