"""The stream triad a = b + s c, which measures memory bandwidth, in a compiled loop on all threads.

PYTHONPATH=bench python bench/own/triad.py TIMES ELEMENTS
"""

from __future__ import annotations

import sys
from time import perf_counter

import numba
import numpy as np
from contender import report


@numba.njit(parallel=True, cache=True)
def triad(a, b, c, s):
    for i in numba.prange(len(a)):
        a[i] = b[i] + s * c[i]


def main(times: str, elements: str) -> None:
    a, b, c = (np.full(int(elements), x, np.float32) for x in (0, 1, 2))
    seconds = []
    for _ in range(int(times) + 1):
        began = perf_counter()
        triad(a, b, c, np.float32(3))
        seconds.append(perf_counter() - began)
    report({"triad": seconds[1:]}, {}, f"numba {numba.__version__}")


if __name__ == "__main__":
    main(*sys.argv[1:])
