"""What programs share that draw an input from each of some seeds, and look for faults."""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from collections.abc import Callable, Iterable

Outcomes = tuple[Counter[str], list[str]]


def outcomes(seeds: Iterable[int], refused: Callable[[int], object]) -> Outcomes:
    """How many inputs were accepted, refused and at fault, and the faults.

    Args:
        seeds: Of the inputs.
        refused: Called with a seed; says whether its input was refused, and raises what is a fault.
    """
    counts: Counter[str] = Counter()
    faults = []
    for seed in seeds:
        try:
            counts["refused" if refused(seed) else "accepted"] += 1
        except Exception as error:
            counts["at fault"] += 1
            faults.append(f"seed {seed}: {type(error).__name__}: {error}")
    return counts, faults


def main(about: str | None, inputs: str, n: int, search: Callable[[range], Outcomes]) -> int:
    """The command line of a search; returns the exit code, 1 if there are faults.

    Args:
        about: Its help.
        inputs: What is drawn, the name of the option for their number.
        n: Their number by default.
        search: Called with the seeds.
    """
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(f"--{inputs}", dest="n", metavar="N", type=int, default=n)
    parser.add_argument("--seed", type=int, default=0, help="of the first one")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    counts, faults = search(range(options.seed, options.seed + options.n))
    print(*faults[:20], dict(counts), sep="\n")
    return 1 if faults else 0
