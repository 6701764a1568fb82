"""A communicator that delays the messages of another one, as a slower link would.

For benchmarks and tests. Ranks on one machine exchange messages through memory, too fast to
measure how much communication a program overlaps with computation. Here a message that was sent at
time t arrives at

    max(t + latency, end of the message before it on the receiver's link) + bytes / bandwidth

and a collective takes as many latencies as a tree over the ranks has levels, counted from the
moment the last rank enters it. Ranks must share a clock, so all must run on one machine.

Several ranks may be given the role of the workers of one machine; messages between them are not
delayed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from time import monotonic
from typing import Any

import numpy as np

from graphtheta.errors import ConfigError

from .channel import Channel, Send
from .communicator import Comm
from .wrapped import WrappedComm

_STAMP = 8
_NUMBER = r"(\d{1,12}(?:\.\d*)?|\.\d+)"
_UNITS = {
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "bit/s": 1 / 8,
    "kbit/s": 1e3 / 8,
    "Mbit/s": 1e6 / 8,
    "Gbit/s": 1e9 / 8,
}


class SlowComm(WrappedComm):
    """Another communicator with slower links.

    Args:
        inner: Communicator that carries the messages.
        latency: Seconds from sending to receiving a message of no bytes.
        bandwidth: Bytes per second that a rank can receive.
        blocking: Whether ``move_begin`` waits for the messages: the baseline without overlap.
        per_machine: Ranks of a simulated machine.

    Attributes:
        link_seconds: Seconds that the messages received by this rank in moves spent on the link.
        exposed_seconds: Seconds of these that computation did not hide: this rank waited for them.
    """

    def __init__(
        self,
        inner: Comm,
        latency: float,
        bandwidth: float,
        blocking: bool = False,
        per_machine: int = 1,
    ):
        super().__init__(inner)
        self.latency = latency
        self.bandwidth = bandwidth
        self.blocking = blocking
        self.machines = np.arange(inner.size) // per_machine
        self._far = self.machines != self.machines[inner.rank]
        self._levels = int(np.ceil(np.log2(int(self.machines[-1]) + 1)))
        self._free_at = self.link_seconds = self.exposed_seconds = 0.0

    def open_channels(self, user: str, n: int) -> list[int]:
        """Those of the inner communicator, each with messages of its own here; collective."""
        numbers = super().open_channels(user, n)
        self._extend_channels(max(numbers, default=0))
        return numbers

    @property
    def _channel(self) -> Channel:
        # of its own: a reduction of long arrays has its own messages
        return self._channels[self._channel_number]

    def _enter(self, *operation: Any) -> None:
        # the inner communicator composes the error messages
        self.inner._enter(*operation)
        super()._enter(*operation)

    def _gather_flat(self, x: np.ndarray, out: np.ndarray) -> None:
        arrived = np.empty((self.size, x.nbytes + _STAMP), np.uint8)
        super()._gather_flat(_stamped(x.reshape(1, -1))[0], arrived)
        self._unpack(arrived, out, int(self._far.sum()) * x.nbytes)

    def _swap_flat(self, x: np.ndarray, out: np.ndarray) -> None:
        sent = _stamped(x)
        arrived = np.empty_like(sent)
        super()._swap_flat(sent, arrived)
        self._unpack(arrived, out, int(self._far.sum()) * x.nbytes // self.size)

    def _unpack(self, arrived: np.ndarray, out: np.ndarray, n_bytes: int) -> None:
        """Separate rows from time stamps; returns when the message of the last rank is due."""
        out.reshape(self.size, -1).view(np.uint8)[...] = arrived[:, :-_STAMP]
        began = float(arrived[:, -_STAMP:].copy().view(np.float64).max())
        self._arrive(began, self._levels, n_bytes)

    def _broadcast_flat(self, x: np.ndarray, root: int) -> None:
        stamps = np.empty((self.size, 1))
        super()._gather_flat(np.array([monotonic()]), stamps)
        super()._broadcast_flat(x, root)
        self._arrive(float(stamps.max()), self._levels, x.nbytes if self._far[root] else 0)

    def _post(
        self, sends: list[Send], recvs: list[Send], tag: int, at_most: bool
    ) -> Callable[[], None]:
        # time of sending and size of each message
        stamps = [np.empty(2) for _ in recvs]
        finish = super()._post(
            [pair for q, x in sends for pair in ((q, np.array([monotonic(), x.nbytes])), (q, x))],
            [
                pair
                for (q, x), stamp in zip(recvs, stamps, strict=True)
                for pair in ((q, stamp), (q, x))
            ],
            tag,
            at_most,
        )

        def finish_late() -> None:
            finish()
            began = monotonic()
            arrived = sorted(
                (float(sent), int(n_bytes))
                for (q, _), (sent, n_bytes) in zip(recvs, stamps, strict=True)
                if self._far[q]
            )
            self.link_seconds += (
                bool(arrived) * self.latency
                + sum(n_bytes for _, n_bytes in arrived) / self.bandwidth
            )
            for sent, n_bytes in arrived:
                self._free_at = self._due(sent, 1, n_bytes)
            self._wait_until(self._free_at)
            self.exposed_seconds += monotonic() - began

        if not self.blocking:
            return finish_late
        with self.ledger.waiting():
            finish_late()
        return lambda: None

    def _arrive(self, sent: float, latencies: int, n_bytes: int) -> None:
        """Return when bytes sent at time ``sent`` are due."""
        self._free_at = self._due(sent, latencies, n_bytes)
        self._wait_until(self._free_at)

    def _due(self, sent: float, latencies: int, n_bytes: int) -> float:
        return max(sent + latencies * self.latency, self._free_at) + n_bytes / self.bandwidth

    def _wait_until(self, due: float) -> None:
        if self._levels:
            self.until(lambda: monotonic() >= due, "waits for a slow link")


def _stamped(rows: np.ndarray) -> np.ndarray:
    """Bytes of rows [n, ...], with the time at the end of each."""
    raw = np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint8)
    return np.hstack([raw, np.tile(np.array([monotonic()]).view(np.uint8), (len(rows), 1))])


def read_link(text: str) -> tuple[float, float, bool, int]:
    """Parse a link such as "50us,10Gbit/s,blocking" or "50us,10Gbit/s,2 ranks a machine".

    Returns:
        Latency in seconds, bandwidth in bytes per second, whether moves block, and ranks of a
        machine.

    Raises:
        ConfigError: The text is not a valid link.
    """
    match = re.fullmatch(
        rf"{_NUMBER} *(s|ms|us) *, *{_NUMBER} *([kMG]?bit/s) *(, *blocking)?(?:, *(\d+) ranks a"
        r" machine)?",
        text.strip(),
    )
    if match is None or not float(match[3]) or match[6] == "0":
        raise ConfigError(
            f"GRAPHTHETA_LINK={text!r} is not valid; expected latency and bandwidth, such as"
            " 50us,10Gbit/s, optionally followed by ,blocking or ,2 ranks a machine"
        )
    return (
        float(match[1]) * _UNITS[match[2]],
        float(match[3]) * _UNITS[match[4]],
        match[5] is not None,
        int(match[6] or 1),
    )
