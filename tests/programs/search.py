"""Searches for wrong numbers: draws programs and compares all evaluations of each.

    python tests/programs/search.py --programs 20000 --seed 0

Every program runs eagerly (``eager``), on the reference back end, and with its generated kernels in
the emulator; samples of them against finite differences, on simulated ranks, on three threads, with
an update and another view afterwards, and with compiled kernels, which take seconds; those of
float32 also with values of bfloat16. Failures are grouped by what they say, and the first of each
group is made smaller and printed. The exit code is 1 if there is one.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import generator
from compare import Unfit, differences, quiet
from program import Case
from shrink import shrunk

# every how many programs an evaluation that takes longer runs
EVERY = {
    "differences": 5,
    "arrays": 4,
    "ranks": 6,
    "emulated ranks": 5,
    "sequence": 5,
    "emulated sequence": 3,
}
SHARE = 50


@dataclass
class Outcome:
    """What a search of some programs found.

    Attributes:
        programs: How many ran.
        comparisons, failures: By evaluation.
        found: By signature, the seeds of the programs that failed, and the text of the first.
    """

    programs: int = 0
    comparisons: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    found: dict[str, tuple[list[int], str, str]] = field(default_factory=dict)

    def add(self, other: Outcome) -> None:
        """Add another share of the search."""
        self.programs += other.programs
        self.comparisons += other.comparisons
        self.failures += other.failures
        for signature, (seeds, kind, text) in other.found.items():
            self.found.setdefault(signature, ([], kind, text))[0].extend(seeds)


def kinds_of(seed: int, case: Case, compiled: Collection[int] = ()) -> tuple[str, ...]:
    """The evaluations that run for the case of a seed. Accumulators always run on ranks, which move
    their messages in ways of their own.
    """
    moved = {"ranks", "emulated ranks"} if "class Accumulator" in case.text else set()
    more = [kind for kind, every in EVERY.items() if seed % every == 0 or kind in moved]
    more += ["rounded"] if case.dtype == "float32" else []
    return ("reference", "emulator", *more, *(["compiled", "threads"] if seed in compiled else []))


@quiet()
def search(
    seeds: Sequence[int],
    without: Collection[str] = (),
    compiled: Collection[int] = (),
    special: bool = False,
) -> Outcome:
    """Run the programs of some seeds."""
    outcome = Outcome()
    for seed in seeds:
        case = generator.program(seed, without, special).case()
        kinds = kinds_of(seed, case, compiled)
        outcome.programs += 1
        outcome.comparisons.update(kinds)
        for d in differences(case, kinds):
            outcome.failures[d.kind] += 1
            outcome.found.setdefault(d.signature, ([], d.kind, d.text))[0].append(seed)
    return outcome


def shares(options: argparse.Namespace) -> Iterator[tuple[Any, ...]]:
    """Arguments of ``search`` for parts of the whole."""
    last = options.seed + options.programs
    step = max(1, options.programs // options.compiled) if options.compiled else 0
    for first in range(options.seed, last, SHARE):
        seeds = range(first, min(first + SHARE, last))
        yield (
            seeds,
            options.without,
            frozenset(s for s in seeds if step and (s - options.seed) % step == 0),
            options.special,
        )


def report(outcome: Outcome, seconds: float, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Print what was found; returns it as rows."""
    print(
        f"{outcome.programs} programs in {seconds:.0f} s,"
        f" {outcome.programs / max(seconds, 1e-9):.1f} each second"
    )
    print(f"{'evaluation':<16}{'comparisons':>12}{'failures':>10}")
    for kind, n in outcome.comparisons.items():
        print(f"{kind:<16}{n:>12}{outcome.failures[kind]:>10}")
    rows = []
    for signature, (seeds, kind, text) in sorted(
        outcome.found.items(), key=lambda item: -len(item[1][0])
    ):
        print(
            f"\n{len(seeds)} of {signature}\n    seeds {', '.join(map(str, sorted(seeds)[:8]))}:"
            f" {text}"
        )
        rows.append({"signature": signature, "kind": kind, "seeds": sorted(seeds), "text": text})
        if len(rows) <= options.shrink:
            drawn = generator.program(min(seeds), options.without, options.special)
            small = shrunk(drawn, kind, signature)
            rows[-1]["case"] = small.case().printed()
            print(rows[-1]["case"])
            for d in _said(small, kind):
                print(f"    {d}")
    return rows


def _said(program: Any, kind: str) -> list[str]:
    try:
        return [f"{d.kind}: {d.name}: {d.text}" for d in differences(program.case(), (kind,))]
    except Unfit as error:
        return [str(error)]


def main(words: list[str]) -> int:
    """Search, or measure coverage, or find planted faults."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", type=int, default=2000)
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="of the first program; the others have those that follow",
    )
    parser.add_argument(
        "--compiled", type=int, default=0, help="how many of the programs are compiled, too"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=math.inf,
        help="of one process, after which no more programs begin",
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument(
        "--without",
        type=lambda text: tuple(text.split(",")),
        default=(),
        help="operations of generator.py that are left out",
    )
    parser.add_argument(
        "--special", action="store_true", help="with NaN and infinities among the inputs"
    )
    parser.add_argument(
        "--shrink", type=int, default=10, help="how many groups of failures are made smaller"
    )
    parser.add_argument("--out", type=Path, help="a JSON line with everything that was found")
    parser.add_argument(
        "--coverage",
        action="store_true",
        help="report which branches of the compiler the programs reach",
    )
    parser.add_argument(
        "--planted",
        nargs="?",
        const="",
        metavar="PART",
        help="how many programs find each of the planted faults whose name has a part",
    )
    options = parser.parse_args(words)
    if options.planted is not None:
        from planted import table

        return table(options.programs, options.seed, options.without, options.planted)
    if options.coverage:
        from coverage_of import measured

        return measured(options.programs, options.seed, options.without)
    begin = time.perf_counter()
    outcome = Outcome()
    if options.jobs > 1:
        with ProcessPoolExecutor(options.jobs) as pool:
            for future in [pool.submit(search, *share) for share in shares(options)]:
                outcome.add(future.result())
    else:
        for share in shares(options):
            outcome.add(search(*share))
            if time.perf_counter() - begin > options.seconds:
                break
    seconds = time.perf_counter() - begin
    rows = report(outcome, seconds, options)
    if options.out:
        with options.out.open("a", encoding="utf-8") as file:
            file.write(
                json.dumps(
                    {
                        "programs": outcome.programs,
                        "seed": options.seed,
                        "seconds": round(seconds, 1),
                        "programs each second": round(outcome.programs / max(seconds, 1e-9), 2),
                        "comparisons": outcome.comparisons,
                        "failures": outcome.failures,
                        "found": rows,
                    }
                )
                + "\n"
            )
    return 1 if outcome.found else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
