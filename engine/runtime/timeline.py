"""The timeline of all ranks in one file: clocks that agree, and one trace a rank, gathered when the run is over."""
from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from graphtheta.errors import FormatError

from ..comm.call_site import collective
from ..comm.communicator import Comm
from ..comm.event_log import Trace

TRACE_FILE = "trace.json"
# barriers that clocks are compared at
ROUNDS = 10


@contextmanager
def tracing(comm: Comm, path: Path) -> Iterator[Trace]:
    """A ``with`` block whose timeline is written to a file.

    At the end rank 0 takes the events of all ranks and writes ``path``; no file system need be shared. After an error ranks
    cannot be relied on to meet, and each that still can writes its own events beside ``path``, as a timeline in itself.

    Args:
        comm: All ranks; its ledger is traced.
        path: File to write.

    Raises:
        FormatError: The file cannot be written; on all ranks together.

    Collective: all ranks of comm.
    """
    _agree_writable(comm, path)
    ahead, doubt = clock_offset(comm)
    trace = Trace()
    origin = float(comm.broadcast(perf_counter())) + ahead
    about = {"clock": f"rank 0's; those of other ranks agree with it to {1e6 * doubt:.0f} us"}
    comm.ledger.record(trace)
    try:
        yield trace
    except BaseException:
        comm.ledger.record(None)
        with suppress(OSError):
            write_events(part_of(path, comm.rank), [trace.encode(comm.rank, origin)], about)
        raise
    comm.ledger.record(None)
    _gather(comm, path, trace.encode(comm.rank, origin), about)


def clock_offset(comm: Comm) -> tuple[float, float]:
    """How far this rank's clock is ahead of that of rank 0.

    Nobody leaves a barrier before the last has entered it: each barrier bounds the difference of two clocks from both sides.
    Clocks that may agree for all that is seen, as they do on one machine, are taken to agree.

    Returns:
        Seconds ahead, and how wrong that can be on any rank.

    Collective: all ranks of comm.
    """
    times = np.empty((ROUNDS, 2))
    for row in times:
        row[0] = perf_counter()
        comm.barrier()
        row[1] = perf_counter()
    every = comm.all_gather(times)
    bounds = [((mine[:, 0] - every[0][:, 1]).max(), (mine[:, 1] - every[0][:, 0]).min()) for mine in every]
    ahead = [0.0 if low <= 0 <= high else (low + high) / 2 for low, high in bounds]
    doubt = max(max(high - a, a - low) for (low, high), a in zip(bounds[1:], ahead[1:], strict=True)) if comm.size > 1 else 0.0
    return float(ahead[comm.rank]), float(doubt)


def part_of(path: Path, rank: int) -> Path:
    """Where a rank leaves its own events when a run ends by an error."""
    return path.with_name(f"{path.stem}-rank-{rank}{path.suffix}")


def files_of(path: Path) -> list[Path]:
    """The timelines a run left that was to write ``path``: that file, or those of its ranks."""
    return sorted(file for file in (path, *path.parent.glob(f"{path.stem}-rank-*{path.suffix}")) if file.is_file())


def write_events(path: Path, parts: Iterable[str], about: dict[str, Any]) -> None:
    """Write a file of the Chrome trace format; it appears whole or not at all.

    Args:
        parts: What ``Trace.encode`` returned.
        about: What else to say in the file.
    """
    aside = path.with_name(path.name + ".part")
    with aside.open("w", encoding="utf-8") as f:
        f.write('{"displayTimeUnit": "ms", "otherData": ' + json.dumps(about) + ', "traceEvents": [\n')
        for i, part in enumerate(parts):
            f.write(",\n" * (i > 0) + part)
        f.write("\n]}\n")
    os.replace(aside, path)


@collective
def _gather(comm: Comm, path: Path, own: str, about: dict[str, Any]) -> None:
    """Write the events of all ranks on rank 0."""
    # a tenth of the text; rank 0 unpacks one part at a time
    parts = comm.gather_rows(np.frombuffer(zlib.compress(own.encode(), 1), np.uint8))
    error = None
    try:
        if parts is not None:
            write_events(path, (zlib.decompress(part.tobytes()).decode() for part in parts), about)
    except OSError as e:
        error = FormatError(f"{path}: the timeline cannot be written: {e.strerror or e}")
    comm.agree(error)


@collective
def _agree_writable(comm: Comm, path: Path) -> None:
    """Make the folder, so that a run that cannot leave its timeline fails at once."""
    error = None
    try:
        if comm.rank == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
            for old in files_of(path):
                old.unlink()
    except OSError as e:
        error = FormatError(f"{path}: the timeline cannot be written: {e.strerror or e}; choose another folder with --out")
    comm.agree(error)
