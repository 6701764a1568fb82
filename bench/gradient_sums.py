"""Sums of gradients: messages to all other ranks against messages to O(log P) of them.

    python bench/gradient_sums.py                                    2, 4 and 8 ranks; 64 counted
    python bench/gradient_sums.py --ranks 4 8 --link 50us,10Gbit/s   over slowed links

*direct*: each rank sends a short array to all others; of a long one, each sums one slice and sends
it to all others. *gathered*: arrays of all ranks are gathered in rounds of doubling distances.
*halved*: slices are summed in such rounds, and gathered. *chosen* is what training uses: gathered
below 1 MiB / P, else halved. Seconds are medians; "messages" and "sent" (bytes) are those of a
rank. For 64 ranks they are computed, and seconds are those of a link of 20 us and 25 Gbit/s, with 8
us for each message and a latency for each round.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from contender import BEGIN
from harness import finish, parser, say
from overlap import on_links

from graphtheta.engine.comm.channel import Tag
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.ordered_reduce import ONE_ROUND, fold
from graphtheta.engine.runtime.start import run_main, start
from graphtheta.engine.train import doubling
from graphtheta.engine.train.doubling import PendingSum

SIZES = [1 << 8, 1 << 12, 1 << 15, 1 << 17, 1 << 20, 1 << 23]
LIMITS = {"gathered": 1 << 62, "halved": -1, "chosen": ONE_ROUND}
WAYS = ["direct", *LIMITS]
WARM = 3
TIMED = 15
COUNTED = 64
LATENCY = 20e-6
BANDWIDTH = 25e9 / 8
POST = 8e-6
COLUMNS = ["ranks", "link", "bytes", *WAYS, "messages", "direct messages", "sent", "direct sent"]


def direct(comm: Comm, x: np.ndarray) -> np.ndarray:
    """The sum by messages to all other ranks."""
    others = [q for q in range(comm.size) if q != comm.rank]
    n = len(x)
    ends = n * np.arange(comm.size + 1) // comm.size
    short = x.nbytes * comm.size <= ONE_ROUND
    slices = [slice(0, n) if short else slice(ends[q], ends[q + 1]) for q in range(comm.size)]
    own = slices[comm.rank]
    parts = np.empty((comm.size, own.stop - own.start), x.dtype)
    comm.move_begin(
        [(q, x[slices[q]]) for q in others], [(q, parts[q]) for q in others], Tag.REDUCE
    ).end()
    parts[comm.rank] = x[own]
    total = fold(parts, np.add)
    if not short:
        x[own] = total
        comm.move_begin(
            [(q, total) for q in others], [(q, x[slices[q]]) for q in others], Tag.REDUCE
        ).end()
    return total if short else x


def summed(way: str, comm: Comm, x: np.ndarray) -> np.ndarray:
    """The sum by one of ``WAYS``."""
    if way == "direct":
        return direct(comm, x)
    doubling.ONE_ROUND = LIMITS[way]
    one = PendingSum(comm, x)
    while one.advance():
        pass
    return one.total


def sent(comm: Comm, way: str, n_bytes: int) -> list[int]:
    """Messages and bytes of this rank."""
    before = comm.ledger.snapshot()
    found = summed(way, comm, np.ones(n_bytes // 4, np.float32))
    assert (found == comm.size).all()
    since = comm.ledger.since(before)["other"]
    return [int(since["messages"]), int(since["bytes"])]


def measure(sizes: list[int]) -> int:
    """Time all ways, on all ranks, and print what rank 0 found."""
    comm = start()
    rows = []
    for n_bytes in sizes:
        times: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(WARM + TIMED):
            for way in WAYS:
                x = np.ones(n_bytes // 4, np.float32)
                comm.barrier()
                began = perf_counter()
                summed(way, comm, x)
                times[way].append(float(comm.all_max(np.array(perf_counter() - began))))
        rows.append(
            {
                "bytes": n_bytes,
                **{way: median(found[WARM:]) for way, found in times.items()},
                **figures([np.array(sent(comm, way, n_bytes)) for way in ("chosen", "direct")]),
            }
        )
    if comm.rank == 0:
        print(BEGIN + json.dumps(rows), flush=True)
    return 0


def figures(found: list[np.ndarray]) -> dict[str, int]:
    """Columns from messages and bytes of the chosen and the direct way."""
    (messages, own), (before, other) = (x.tolist() for x in found)
    return {"messages": messages, "direct messages": before, "sent": own, "direct sent": other}


def counted(n_bytes: int) -> dict[str, Any]:
    """A row of ``COUNTED`` ranks."""
    most = {}
    for way, limit in LIMITS.items():
        doubling.ONE_ROUND = limit
        most[way] = np.max(doubling.sent(n_bytes // 4, 4, COUNTED), axis=1)[::-1]
    short = n_bytes * COUNTED <= ONE_ROUND
    most["direct"] = (
        np.array([COUNTED - 1, (COUNTED - 1) * n_bytes])
        if short
        else np.array([2 * (COUNTED - 1), most["halved"][1]])
    )
    # messages of a direct move are under way together
    waits = {way: 2 - short if way == "direct" else int(most[way][0]) for way in WAYS}
    seconds = {
        way: waits[way] * LATENCY + float(most[way][0]) * POST + float(most[way][1]) / BANDWIDTH
        for way in WAYS
    }
    return {
        "ranks": COUNTED,
        "link": "computed",
        "bytes": n_bytes,
        **seconds,
        **figures([most["chosen"], most["direct"]]),
    }


def main() -> int:
    options = parser(__doc__, rounds=1)
    options.add_argument(
        "--ranks", type=int, nargs="+", default=[2, 4, 8], help="of a thread each; 2 4 8"
    )
    options.add_argument(
        "--link", default="", help="latency and bandwidth, such as 50us,10Gbit/s; none"
    )
    options.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes of an array")
    options.add_argument("--measure", action="store_true")
    options = options.parse_args()
    if options.measure:
        return run_main(lambda: measure(options.sizes))
    rows = []
    for ranks in options.ranks:
        words = [sys.executable, __file__, "--measure", "--sizes", *map(str, options.sizes)]
        one = on_links("", ranks, options.link, words)
        done = subprocess.run(
            one.command,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=900,
            env={**os.environ, **one.variables},
        )
        found = json.loads(
            next(line for line in done.stdout.splitlines() if line.startswith(BEGIN))[len(BEGIN) :]
        )
        rows += [{"ranks": ranks, "link": options.link or "memory", **row} for row in found]
        say(f"{ranks} ranks measured")
    if not options.link:
        rows += [counted(n_bytes) for n_bytes in options.sizes]
    return finish(options, rows, COLUMNS, [], bench="gradient_sums")


if __name__ == "__main__":
    sys.exit(main())
