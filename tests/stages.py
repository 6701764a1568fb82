"""Which cases of a long table are in which stage of the tests; see ``one_in`` in setup.cfg."""

from __future__ import annotations

import zlib


def stages(name: str, n_cases: int, first: int, second: int = 1) -> list[int]:
    """The stage of each case, 1 to 3: each case of ``first`` is in the first stage, none if it is
    0, and of the others one in ``second`` in the second.

    Tables begin with their plainest cases; the name of the test draws with which one the first
    stage begins, and which of the others are in the second: as tables are products of options,
    every other case could have the same value of one.
    """
    found = [3] * n_cases
    if first:
        begin = zlib.crc32(name.encode()) % min(first, n_cases)
        found[begin::first] = [1] * len(found[begin::first])
    later = [number for number in range(n_cases) if found[number] == 3]
    later.sort(key=lambda number: zlib.crc32(f"{name} {number}".encode()))
    for number in later[: -(-len(later) // second)]:
        found[number] = 2
    return found
