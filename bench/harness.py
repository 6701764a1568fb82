"""Compares contenders: each in a process of its own, in turns, on equal threads; checks and tables.

Machines are noisy and change their speed over minutes, so contenders take turns (in both orders),
and ratios are computed from medians over all rounds. A contender that fails is reported with its
last output and left out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from contender import BEGIN

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parent / ".bench"
TOLERANCE = 1e-3
# seconds after which a run is ended; peers may wait for ever for a process that failed
PATIENCE = 3600
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
# they choose kernels of BLAS for another processor; without them each library uses what this one
# has
BLAS_VARIABLES = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS")


@dataclass
class Contender:
    """A process to time.

    Attributes:
        name: For tables.
        command: Words that start it.
        variables: Of its environment.
        seconds: All times by case.
        checks: Numbers to compare by case.
        peak: The most memory any of its processes held, in bytes.
        version: What ran.
        more: What else each run reported.
        error: Last words, if it failed.
    """

    name: str
    command: list[str]
    variables: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    checks: dict[str, list[float]] = field(default_factory=dict)
    peak: int = 0
    version: str = ""
    more: list[dict[str, Any]] = field(default_factory=list)
    error: str = ""

    def run(self, threads: int) -> None:
        """Run once and keep what it reports."""
        settings = {name: str(threads) for name in THREAD_VARIABLES} | {
            "PYTHONPATH": str(HERE),
            "DGLBACKEND": "pytorch",
        }
        inherited = {
            name: value for name, value in os.environ.items() if name not in BLAS_VARIABLES
        }
        try:
            done = subprocess.run(
                self.command,
                capture_output=True,
                text=True,
                check=False,
                timeout=PATIENCE,
                env={**inherited, **settings, **self.variables},
            )
        except subprocess.TimeoutExpired:
            self.error = f"did not end within {PATIENCE} s"
            return
        lines = [line for line in done.stdout.splitlines() if line.startswith(BEGIN)]
        if done.returncode or not lines:
            words = [
                line
                for line in done.stderr.splitlines()
                if "Error" in line and not line.startswith(" ")
            ]
            self.error = (
                words[-1]
                if words
                else f"ended with status {done.returncode}"
                + " (no memory?)" * (done.returncode == -9)
            )
            return
        result = json.loads(lines[-1][len(BEGIN) :])
        for case, seconds in result["seconds"].items():
            self.seconds.setdefault(case, []).extend(seconds)
        self.checks, self.version = result["checks"], result["version"]
        self.peak = max(self.peak, result["peak"])
        self.more.append(result["more"])

    @property
    def figures(self) -> dict[str, Any]:
        """What else the last run reported."""
        return self.more[-1] if self.more else {}

    def median(self, case: str) -> float | None:
        """Seconds of a case, or None if it has none."""
        return median(self.seconds[case]) if self.seconds.get(case) else None


def script(folder: str, name: str, *words: object) -> list[str]:
    """A script of this folder in this environment."""
    return [sys.executable, str(HERE / folder / f"{name}.py"), *map(str, words)]


def on_workers(n: int, command: list[str]) -> list[str]:
    """A command on n workers of this machine."""
    mpiexec = Path(sys.executable).with_name("mpiexec")
    return [str(mpiexec) if mpiexec.exists() else "mpiexec", "-n", str(n), *command]


def peer(folder: Path, library: str, name: str, *words: object) -> list[str]:
    """A script of ``peers`` in the library's own environment, a folder of that name; nothing if
    there is none.
    """
    python = folder / library / "bin" / "python"
    if not python.exists():
        say(f"{library}: no environment in {folder / library}; see bench/README.md")
        return []
    return [str(python), str(HERE / "peers" / f"{name}.py"), *map(str, words)]


def race(contenders: list[Contender], rounds: int, threads: int) -> None:
    """Let all run in turns, every second round backwards.

    Args:
        contenders: They keep their results.
        rounds: How often each runs.
        threads: Of each.
    """
    for i in range(rounds):
        for c in contenders if i % 2 == 0 else contenders[::-1]:
            if not c.error:
                c.run(threads)
                shown = ", ".join(
                    f"{case} {median(s):.3g}" for case, s in list(c.seconds.items())[:4]
                )
                say(f"round {i + 1} of {rounds}: {c.name}: {c.error or shown}")


def disagreement(contenders: Iterable[Contender]) -> list[str]:
    """Which checked numbers of a case differ from those of the first contender that has the case,
    in words.
    """
    first: dict[str, tuple[str, list[float]]] = {}
    faults = []
    for c in contenders:
        for case, numbers in c.checks.items():
            name, expected = first.setdefault(case, (c.name, numbers))
            # written so that what is not a number disagrees
            if not all(
                abs(a - b) <= TOLERANCE * abs(b) for a, b in zip(numbers, expected, strict=True)
            ):
                faults.append(f"{case}: {c.name} has {numbers}, {name} has {expected}")
    return faults


# ---- results


def ratio(slow: float | None, fast: float | None) -> float | None:
    """How many times faster the second is."""
    return slow / fast if slow and fast else None


def paired(row: dict[str, Any], exact: dict[str, Any], name: str) -> dict[str, Any]:
    """A row with the mean difference of its "accuracies" to those of another row with the same
    seeds, and its standard error.

    Args:
        row, exact: Rows with "accuracies", one of each seed.
        name: Column of the difference; that of the error is "+-".
    """
    difference = [a - b for a, b in zip(row["accuracies"], exact["accuracies"], strict=True)]
    error = stdev(difference) / len(difference) ** 0.5 if len(difference) > 1 else 0.0
    return {**row, name: mean(difference), "+-": error}


def table(rows: list[dict[str, Any]], columns: list[str]) -> str:
    """Rows as text; numbers to three digits, nothing where there is none."""
    text = [[_shown(row.get(c)) for c in columns] for row in rows]
    widths = [max(len(line[i]) for line in [columns, *text]) for i in range(len(columns))]
    numbers = [any(isinstance(row.get(c), float) for row in rows) for c in columns]
    align = [str.rjust if n else str.ljust for n in numbers]
    return "\n".join(
        "  ".join(a(word, w) for a, word, w in zip(align, line, widths, strict=True)).rstrip()
        for line in [columns, *text]
    )


def _shown(x: Any) -> str:
    if not isinstance(x, float):
        return "" if x is None else str(x)
    return f"{x:.0f}" if abs(x) >= 100 else f"{x:.3g}"


def machine() -> dict[str, Any]:
    """What the figures belong to."""
    names = [
        line.split(":")[1].strip()
        for line in _lines("/proc/cpuinfo")
        if line.startswith("model name")
    ]
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def append(options: argparse.Namespace, rows: list[dict[str, Any]], **about: Any) -> None:
    """Append rows to the JSON lines of ``options.out``, if there is one; ``about`` is added to
    every line, and the machine.
    """
    if options.out:
        with options.out.open("a", encoding="utf-8") as f:
            f.writelines(
                json.dumps({**about, **row, "threads": options.threads, "machine": machine()})
                + "\n"
                for row in rows
            )


def finish(
    options: argparse.Namespace,
    rows: list[dict[str, Any]],
    columns: list[str],
    faults: list[str],
    findings: list[dict[str, Any]] | None = None,
    written: bool = False,
    **about: Any,
) -> int:
    """Print the tables, append JSON lines, draw; exit status 1 if contenders disagree.

    Args:
        options: Of ``parser``.
        rows: A row has what ``columns`` name, and more for the JSON; "seconds" is drawn under
            "label".
        columns: To print.
        faults: From ``disagreement``.
        findings: Figures across rows, as {"finding": text, "value": number}.
        written: Whether the rows are appended already.
        **about: Added to every JSON line, beside the machine.
    """
    findings = findings or []
    print(table(rows, columns), flush=True)
    if findings:
        print("", table(findings, ["finding", "value"]), sep="\n", flush=True)
    append(options, [*([] if written else rows), *findings], **about)
    if options.plot:
        draw(rows, options.plot, " ".join(v for v in about.values() if isinstance(v, str)))
    for fault in faults:
        say(f"contenders disagree: {fault}")
    return 1 if faults else 0


def draw(rows: list[dict[str, Any]], path: Path, title: str) -> None:
    """Seconds of all rows as bars, one colour a contender."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = [row for row in rows if row.get("seconds")]
    names = list(dict.fromkeys(row["contender"] for row in rows))
    figure, axes = plt.subplots(figsize=(8, 1 + 0.3 * len(rows)), layout="constrained")
    for name in names:
        own = [(i, row["seconds"]) for i, row in enumerate(rows) if row["contender"] == name]
        bars = axes.barh([i for i, _ in own], [s for _, s in own], label=name)
        axes.bar_label(bars, fmt="%.3g", padding=2)
    axes.set_yticks(range(len(rows)), [row["label"] for row in rows])
    axes.invert_yaxis()
    axes.set(xlabel="seconds", title=title)
    axes.margins(x=0.15)
    axes.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def parser(about: str | None, rounds: int) -> argparse.ArgumentParser:
    """Options every bench of this kind has."""
    made = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument(
        "--rounds",
        type=int,
        default=rounds,
        help=f"how often each contender runs, in turns; {rounds}",
    )
    made.add_argument("--threads", type=int, default=2, help="of every contender; 2")
    made.add_argument("--folder", type=Path, default=FOLDER, help="where inputs are kept; .bench")
    made.add_argument(
        "--envs",
        type=Path,
        help="folder of the peers' environments dgl and pyg; that of the inputs",
    )
    made.add_argument("--out", type=Path, help="JSON lines, one per row")
    made.add_argument("--plot", type=Path, help="picture of the times; needs matplotlib")
    return made


def say(text: str) -> None:
    """Progress, apart from the results."""
    print(text, file=sys.stderr, flush=True)
