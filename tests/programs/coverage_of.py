"""Which branches of the edge compiler the programs of a search reach; needs the package
``coverage``.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path

FOLDERS = (
    "ops/autodiff",
    "ops/edge/backend",
    "ops/edge/codegen",
    "ops/edge",
    "ops/functions",
    "ops/edge/source",
)
ROOT = Path(__file__).resolve().parent.parent.parent


def measured(programs: int, seed: int, without: Collection[str]) -> int:
    """Search under measurement, and print a table of files and of lines with branches that were not
    taken.
    """
    try:
        import coverage
    except ModuleNotFoundError:
        print("--coverage needs the package coverage: pip install coverage", file=sys.stderr)
        return 2
    # what is imported before counts as not run, so the compiler is imported under measurement
    for name in [name for name in sys.modules if name.startswith("graphtheta") or name in MODULES]:
        del sys.modules[name]
    measurement = coverage.Coverage(
        branch=True, data_file=None, include=[str(ROOT / folder / "*") for folder in FOLDERS]
    )
    with measurement.collect():
        import search

        outcome = search.search(range(seed, seed + programs), without)
    print(f"{outcome.programs} programs, {sum(outcome.failures.values())} failures")
    print(f"{'file':<40}{'branches':>9}{'taken':>8}  lines with branches that were not taken")
    together: dict[str, tuple[int, int]] = {}
    files = (
        file
        for file in measurement.get_data().measured_files()
        if file.startswith(tuple(f"{ROOT}/{folder}/" for folder in FOLDERS))
    )
    for file in sorted(files):
        analysis = measurement._analyze(file)
        numbers = analysis.numbers
        missing = analysis.missing_branch_arcs()
        taken = numbers.n_branches - numbers.n_missing_branches
        for name in (Path(file).parent.relative_to(ROOT).as_posix(), "all"):
            before = together.get(name, (0, 0))
            together[name] = before[0] + numbers.n_branches, before[1] + taken
        if numbers.n_branches:
            shown = ", ".join(map(str, sorted(missing)))
            print(
                f"{Path(file).relative_to(ROOT)!s:<40}{numbers.n_branches:>9}"
                f"{taken / numbers.n_branches:>8.0%}  {shown}"
            )
    for name, (branches, taken) in sorted(together.items()):
        print(f"{name:<40}{branches:>9}{taken / max(branches, 1):>8.0%}")
    return 0


MODULES = ("search", "generator", "compare", "eager", "emulator", "program", "shrink", "planted")
