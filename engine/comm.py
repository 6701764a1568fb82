"""How ranks talk: one interface for MPI, a single rank, and simulated ranks.

An implementation supplies four primitives on plain buffers; everything that gives a result its value is here, once, so
that all implementations agree.
"""
from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from graphtheta.errors import CommError, ShapeError

from .channel import TASK, Channel, Pending, Send, Tag, check_move, check_rows, follow
from .codec import decode, encode
from .failure import kinds, rebuild
from .ledger import Ledger
from .reduction import Reduction
from .site import call_site, collective, describe, digest, mismatch

# An encoded object up to this size travels together with its length.
FRAME = 248


class Comm(ABC):
    """A group of ranks.

    Messages of one channel never match those of another. Within a channel all ranks run the same operations in the
    same order; between channels there is no order, so that tasks with a channel each may take turns on every rank as
    they like. Outside of tasks channel 0 is used.

    Attributes:
        rank: Number of this rank, 0 to ``size - 1``.
        size: Number of ranks.
        cores: Threads of this rank that may compute at the same time.
    """

    def __init__(self, rank: int, size: int, strict: bool = False) -> None:
        self.rank = rank
        self.size = size
        self.cores = 1
        self._strict = strict
        self._channels = [self._new_channel(Ledger())]

    @property
    def ledger(self) -> Ledger:
        """Account of time, bytes and messages of the current channel; that of channel 0 contains the others.

        A collective counts as one message with the bytes this rank contributes; with one rank nothing is counted.
        """
        return self._now.ledger

    @collective
    def open_channels(self, n: int) -> None:
        """Have at least so many channels besides channel 0.

        Args:
            n: Their number, the same on all ranks.
        """
        while len(self._channels) <= n:
            self._channels.append(self._new_channel(self._channels[0].ledger.branch()))

    def until(self, ready: Callable[[], bool], line: str) -> None:
        """Return when ``ready``; meanwhile other tasks of this rank may compute.

        Args:
            ready: Cheap and without side effects on what others see; called from any thread, often.
            line: What is waited for, for messages about ranks that wait for each other.
        """
        task = TASK.get()
        if task is None:
            self.poll(ready, line)
        else:
            task.wait(ready, line)

    @abstractmethod
    def poll(self, ready: Callable[[], bool], line: str) -> None:
        """Return when ``ready``, without letting other tasks compute."""

    def _new_channel(self, ledger: Ledger) -> Channel:
        return Channel(ledger, Reduction(self.size, self._gather_into, self._swap_into))

    @property
    def _number(self) -> int:
        task = TASK.get()
        return 0 if task is None else task.channel

    @property
    def _now(self) -> Channel:
        return self._channels[self._number]

    @property
    def operation(self) -> tuple[Any, ...]:
        """The collective being run in the current channel, for error messages."""
        return self._now.operation

    @abstractmethod
    def _gather_flat(self, x: np.ndarray, out: np.ndarray) -> None:
        """Write every rank's ``x`` [n] into ``out`` [size, n]."""

    @abstractmethod
    def _swap_flat(self, x: np.ndarray, out: np.ndarray) -> None:
        """Send row q of ``x`` [size, n] to rank q and write the rows received into ``out`` [size, n]."""

    @abstractmethod
    def _broadcast_flat(self, x: np.ndarray, root: int) -> None:
        """Fill the bytes ``x`` [n] with those of ``root``."""

    @abstractmethod
    def _post(self, sends: list[Send], recvs: list[Send], tag: int) -> Callable[[], None]:
        """Start messages between distinct ranks; returns the function that waits for them."""

    @collective
    def barrier(self) -> None:
        """Return when every rank has called it."""
        self._enter("barrier")
        self._gather(np.zeros(1, np.uint8))
        self._count(0)

    @collective
    def all_sum(self, x: np.ndarray) -> np.ndarray:
        """Sum over the ranks, added in rank order.

        Args:
            x: Array of any shape, float or integer; same shape and dtype on every rank.

        Returns:
            New array like ``x``, with the same bits on every rank.

        Raises:
            CommError: If the dtype cannot be added up.
        """
        x = np.asarray(x)
        if x.dtype.kind not in "fiu":
            raise CommError(f"all_sum: expected floats or integers, got dtype {x.dtype} at {call_site()}; convert it first")
        self._enter("all_sum", str(x.dtype), x.shape)
        return self._reduce(x, np.add)

    @collective
    def all_max(self, x: np.ndarray) -> np.ndarray:
        """Maximum over the ranks, element by element; NaN on any rank gives NaN.

        Args:
            x: Array of any shape, float, integer or bool; same shape and dtype on every rank.

        Returns:
            New array like ``x``, with the same bits on every rank.

        Raises:
            CommError: If the dtype has no order.
        """
        return self._extreme("all_max", x, np.maximum)

    @collective
    def all_min(self, x: np.ndarray) -> np.ndarray:
        """Minimum over the ranks, element by element; NaN on any rank gives NaN.

        Args:
            x: Array of any shape, float, integer or bool; same shape and dtype on every rank.

        Returns:
            New array like ``x``, with the same bits on every rank.

        Raises:
            CommError: If the dtype has no order.
        """
        return self._extreme("all_min", x, np.minimum)

    @collective
    def all_gather(self, obj: Any) -> list[Any]:
        """Small objects of all ranks, on all ranks.

        Args:
            obj: Anything ``codec.encode`` accepts. For rows of data use ``gather_rows``.

        Returns:
            The objects in rank order; the own one is a copy too.

        Raises:
            FormatError: If the object cannot be encoded.
        """
        self._enter("all_gather")
        return [decode(data) for data in self._gather_bytes(encode(obj))]

    @collective
    def broadcast(self, obj: Any, root: int = 0) -> Any:
        """An object of one rank, on all ranks; large arrays travel without being copied into a message.

        Args:
            obj: On ``root`` anything ``codec.encode`` accepts; ignored elsewhere.
            root: The rank that has the object.

        Returns:
            On ``root`` the object itself, elsewhere a copy.

        Raises:
            FormatError: If the object cannot be encoded.
        """
        self._check_rank(root, "broadcast")
        self._enter("broadcast", root)
        arrays: list[np.ndarray] = []
        data = encode(obj, arrays) if self.rank == root else b""
        n_bytes = np.array([len(data)], np.int64).view(np.uint8)
        with self.ledger.waiting():
            self._broadcast_flat(n_bytes, root)
            body = np.frombuffer(bytearray(data) or bytearray(int(n_bytes.view(np.int64)[0])), np.uint8)
            self._broadcast_flat(body, root)
            result = obj if self.rank == root else decode(body.data, arrays)
            for array in arrays:
                self._broadcast_flat(array.reshape(-1).view(np.uint8), root)
        if self.rank == root:
            self._count(len(data) + sum(array.nbytes for array in arrays))
        return result

    @collective
    def gather_rows(self, x: np.ndarray, root: int = 0) -> list[np.ndarray] | None:
        """Arrays of different lengths of all ranks, on one rank.

        Args:
            x: Rows [n, ...]; n may differ between ranks and may be 0, dtype and trailing shape may not.
            root: The rank that receives.

        Returns:
            On ``root`` the arrays in rank order (copies), elsewhere None.

        Raises:
            ShapeError: If dtype or trailing shape differ between ranks; on all ranks.
        """
        self._check_rank(root, "gather_rows")
        self._enter("gather_rows", root)
        x = np.ascontiguousarray(x)
        heads = [decode(data) for data in self._gather_bytes(encode((x.dtype.str, x.shape)))]
        check_rows("gather_rows", [(dtype, shape[1:]) for dtype, shape in heads])
        if self.rank != root:
            self.move_begin([(root, x)], [], Tag.GATHER_ROWS).end()
            return None
        parts = [x.copy() if q == root else np.empty(shape, x.dtype) for q, (_, shape) in enumerate(heads)]
        self.move_begin([], [(q, part) for q, part in enumerate(parts) if q != root], Tag.GATHER_ROWS).end()
        return parts

    @collective
    def all_to_all(self, parts: list[np.ndarray]) -> list[np.ndarray]:
        """Send ``parts[q]`` to rank q; only non-empty parts become messages.

        Args:
            parts: One array [n_q, ...] for each rank, of one dtype and trailing shape; lengths are free.

        Returns:
            What each rank sent here, in rank order; the own part is copied.

        Raises:
            ShapeError: If the number of parts is not ``size`` or dtypes or trailing shapes differ.
        """
        if len(parts) != self.size:
            raise ShapeError(f"all_to_all: expected {self.size} parts, one for each rank, got {len(parts)} at {call_site()}")
        parts = [np.ascontiguousarray(part) for part in parts]
        kinds = [(part.dtype.str, part.shape[1:]) for part in parts]
        check_rows("all_to_all", kinds)
        self._enter("all_to_all")
        heads = np.array([(len(part), digest(kinds[0])) for part in parts], np.int64)
        arriving = np.empty_like(heads)
        self._swap_into(heads, arriving)
        self._count(heads.nbytes)
        strange = np.flatnonzero(arriving[:, 1] != heads[0, 1])
        if len(strange):
            raise ShapeError(
                f"all_to_all: rank {self.rank} sends {kinds[0][0]} rows of shape {kinds[0][1]}, rank {strange[0]} another "
                f"dtype or row shape, at {call_site()}; use one dtype and trailing shape on all ranks"
            )
        result = [
            parts[q].copy() if q == self.rank else np.empty((n, *kinds[0][1]), parts[0].dtype)
            for q, n in enumerate(arriving[:, 0])
        ]
        others = [q for q in range(self.size) if q != self.rank]
        self.move_begin([(q, parts[q]) for q in others], [(q, result[q]) for q in others], Tag.ALL_TO_ALL).end()
        return result

    @collective
    def agree(self, error: Exception | None) -> None:
        """Raise on all ranks if any rank has an error, so that none waits for one that has given up.

        Args:
            error: What went wrong on this rank, or None.

        Raises:
            Exception: A rank with an error raises its own; the others raise the error of the lowest failing rank, of
                the same class where that is a builtin or ours (otherwise its nearest such base), text "rank r: ...".
        """
        self._enter("agree")
        own = None if error is None else (kinds(error), str(error))
        heads = [decode(data) for data in self._gather_bytes(encode(own))]
        if error is not None:
            raise error
        for rank, head in enumerate(heads):
            if head is not None:
                raise rebuild(head[0], f"rank {rank}: {head[1]}")

    def move_begin(self, sends: list[Send], recvs: list[Send], tag: int) -> Pending:
        """Start sending and receiving arrays whose sizes both sides know.

        Messages between two ranks with one tag are received in the order in which they were sent. Empty arrays are
        not sent at all.

        Args:
            sends: Pairs of destination rank and C-contiguous array.
            recvs: Pairs of source rank and C-contiguous, writable array to be filled.
            tag: Kind of move, 0 to 32767, usually a ``Tag``.

        Returns:
            The pending move; call its ``end``.

        Raises:
            CommError: If a partner is out of range or this rank itself, or a buffer is not contiguous or writable.
        """
        sends = [item for item in sends if item[1].size]
        recvs = [item for item in recvs if item[1].size]
        check_move(self.rank, self.size, sends, recvs, tag)
        return follow(self.ledger, sends, recvs, tag, self._post(sends, recvs, int(tag)))

    def leave(self, text: str, code: int) -> int:
        """End this rank's part after an uncaught error; other processes of the job end too.

        Args:
            text: What to tell the user, complete with newline; printed at most once in the job if all ranks fail alike.
            code: Exit status to end with.

        Returns:
            The exit status, if the caller is to exit by itself.
        """
        sys.stderr.write(text)
        sys.stderr.flush()
        return code

    def _enter(self, *operation: Any) -> None:
        self._now.operation = operation
        if self._strict:
            self._check_together()

    def _check_together(self) -> None:
        now = self._now
        now.calls += 1
        own = np.array([digest((now.calls, now.operation))], np.int64)
        if (self._gather(own) == own).all():
            return
        lines = self._gather_bytes(f"call {now.calls}, {describe(now.operation)} at {call_site()}".encode())
        raise CommError(mismatch([line.decode() for line in lines]))

    def _count(self, n_bytes: int, messages: int = 1) -> None:
        if self.size > 1:
            self.ledger.sent(n_bytes, messages)

    def _gather(self, x: np.ndarray) -> np.ndarray:
        out = np.empty((self.size, *x.shape), x.dtype)
        self._gather_into(x, out)
        return out

    def _gather_into(self, x: np.ndarray, out: np.ndarray) -> None:
        with self.ledger.waiting():
            self._gather_flat(x, out)

    def _swap_into(self, x: np.ndarray, out: np.ndarray) -> None:
        with self.ledger.waiting():
            self._swap_flat(x, out)

    def _gather_bytes(self, data: bytes) -> list[bytes]:
        frame = np.zeros(8 + FRAME, np.uint8)
        frame[:8].view(np.int64)[0] = len(data)
        frame[8 : 8 + len(data)] = np.frombuffer(data[:FRAME], np.uint8)
        frames = self._gather(frame)
        lengths = frames[:, :8].copy().view(np.int64)[:, 0]
        rest = int(lengths.max()) - FRAME
        if rest > 0:
            tail = np.zeros(rest, np.uint8)
            tail[: max(len(data) - FRAME, 0)] = np.frombuffer(data[FRAME:], np.uint8)
            frames = np.concatenate([frames, self._gather(tail)], axis=1)
        self._count(len(data))
        return [row[8 : 8 + n].tobytes() for row, n in zip(frames, lengths, strict=True)]

    def _extreme(self, name: str, x: np.ndarray, combine: np.ufunc) -> np.ndarray:
        x = np.asarray(x)
        if x.dtype.kind not in "fiub":
            raise CommError(f"{name}: expected floats, integers or bools, got dtype {x.dtype} at {call_site()}")
        self._enter(name, str(x.dtype), x.shape)
        return self._reduce(x, combine)

    def _reduce(self, x: np.ndarray, combine: np.ufunc) -> np.ndarray:
        result = self._now.reduction.combine(x, combine)
        self._count(x.nbytes)
        return result

    def _check_rank(self, root: int, name: str) -> None:
        if not 0 <= root < self.size:
            raise CommError(f"{name}: root {root} is not one of the {self.size} ranks, at {call_site()}")
