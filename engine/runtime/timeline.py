"""The timeline of all ranks: event logs with aligned clocks, written to one file at the end."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from graphtheta.base.atomic import BEGINNINGS, atomic_file, file_errors, make_folder, remove_file
from graphtheta.base.strict_json import to_json

from ..comm.communicator import Comm
from ..comm.event_log import EventLog

TRACE_FILE = "trace.json"
# what to do if it cannot be written
REMEDY = "choose another folder with --out"
# number of barriers at which clocks are compared
ROUNDS = 10


@contextmanager
def tracing(comm: Comm, path: Path) -> Iterator[EventLog]:
    """A ``with`` block whose timeline is written to a file.

    At the end rank 0 receives the events of all ranks and writes ``path``; no shared file system
    is needed. After an error collectives may fail, so each rank that can writes its own events to
    a timeline beside ``path``.

    Args:
        comm: All ranks; its ledger records the events.
        path: File to write.

    Raises:
        FormatError: The file cannot be written; raised on all ranks.

    Collective: all ranks of comm.
    """
    _agree_writable(comm, path)
    ahead, doubt = clock_offset(comm)
    log = EventLog()
    origin = float(comm.broadcast(perf_counter())) + ahead
    about = {"clock": f"rank 0's; those of other ranks agree with it to {1e6 * doubt:.0f} us"}
    comm.ledger.record(log)
    try:
        yield log
    except BaseException:
        comm.ledger.record(None)
        with suppress(OSError):
            write_events(part_of(path, comm.rank), [log.encode(comm.rank, origin)], about)
        raise
    comm.ledger.record(None)
    _gather(comm, path, log.encode(comm.rank, origin), about)


def clock_offset(comm: Comm) -> tuple[float, float]:
    """How far this rank's clock is ahead of that of rank 0.

    No rank leaves a barrier before the last one has entered it, so each barrier bounds the
    difference of two clocks from both sides. If the bounds include zero, as on one machine, the
    difference is zero.

    Returns:
        Seconds ahead, and the largest error that these can have on any rank.

    Collective: all ranks of comm.
    """
    times = np.empty((ROUNDS, 2))
    for row in times:
        row[0] = perf_counter()
        comm.barrier()
        row[1] = perf_counter()
    every = comm.all_gather(times)
    bounds = [
        ((mine[:, 0] - every[0][:, 1]).max(), (mine[:, 1] - every[0][:, 0]).min()) for mine in every
    ]
    ahead = [0.0 if low <= 0 <= high else (low + high) / 2 for low, high in bounds]
    doubt = (
        max(max(high - a, a - low) for (low, high), a in zip(bounds[1:], ahead[1:], strict=True))
        if comm.size > 1
        else 0.0
    )
    return float(ahead[comm.rank]), float(doubt)


def part_of(path: Path, rank: int) -> Path:
    """The file of one rank's events, for a run that ends with an error."""
    return path.with_name(f"{path.stem}-rank-{rank}{path.suffix}")


def files_of(path: Path) -> list[Path]:
    """Existing timelines of a run that writes ``path``: this file, or those of its ranks."""
    return sorted(
        file
        for file in (path, *path.parent.glob(f"{path.stem}-rank-*{path.suffix}"))
        if file.is_file()
    )


def write_events(path: Path, parts: Iterable[str], about: dict[str, Any]) -> None:
    """Write a file of the Chrome trace format; it appears whole or not at all.

    Args:
        parts: Results of ``EventLog.encode``.
        about: Further entries of the file.
    """
    with atomic_file(path, BEGINNINGS["timeline"]) as f:
        f.write(
            (
                '{"displayTimeUnit": "ms", "otherData": ' + to_json(about) + ', "traceEvents": [\n'
            ).encode()
        )
        for i, part in enumerate(parts):
            f.write((",\n" * (i > 0) + part).encode())
        f.write(b"\n]}\n")


def _gather(comm: Comm, path: Path, events: str, about: dict[str, Any]) -> None:
    """Write the events of all ranks on rank 0.

    Collective: all ranks of comm.
    """
    # compressed to a tenth; rank 0 decompresses one part at a time
    parts = comm.gather_rows(np.frombuffer(zlib.compress(events.encode(), 1), np.uint8))
    with comm.agreed(), file_errors(path, "the timeline", REMEDY):
        if parts is not None:
            write_events(path, (zlib.decompress(part.tobytes()).decode() for part in parts), about)


def _agree_writable(comm: Comm, path: Path) -> None:
    """Make the folder and remove old timelines; an unwritable folder raises before the run.

    Collective: all ranks of comm.
    """
    with comm.agreed(), file_errors(path, "the timeline", REMEDY):
        if comm.rank == 0:
            make_folder(path.parent)
            for old in files_of(path):
                remove_file(old, BEGINNINGS["timeline"])
