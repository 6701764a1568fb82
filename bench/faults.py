"""Deliberate faults of one rank: time until the job ends, and its message.

    python bench/faults.py
    python bench/faults.py --faults killed "sleeps in apply" --ranks 4 --out faults.jsonl

Each fault is one run of ``tests/engine/fault_program.py``, in which rank 1 has the fault. Seconds
are counted from the fault to the end of the last process. The exit code is 1 if a job ended with
code 0 or had to be killed by this script.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import HERE, machine, say, table

TESTS = HERE.parent / "tests"
PROGRAM = TESTS / "engine" / "fault_program.py"
COLUMNS = ["fault", "ranks", "seconds", "status", "message"]
# words of the launcher about ranks that were killed
BANNER = ("=", "YOUR APPLICATION", "This typically", "Please see")


def run(fault: str, ranks: int, limit: float) -> dict[str, Any]:
    """One job with a fault: seconds until it has ended, its exit status (None if it did not end)
    and the first lines it said.
    """
    mpiexec = Path(sys.executable).with_name("mpiexec")
    command = [
        str(mpiexec) if mpiexec.exists() else "mpiexec",
        "-n",
        str(ranks),
        sys.executable,
        str(PROGRAM),
        fault,
    ]
    with tempfile.TemporaryDirectory() as folder:
        stamp = Path(folder) / "time"
        environment = {**os.environ, "PYTHONPATH": str(TESTS), "FAULT_TIME": str(stamp)}
        job = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        try:
            words = job.communicate(timeout=limit)[1]
            status = job.returncode
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGTERM)
            words = job.communicate()[1]
            status = None
        seconds = time.time() - float(stamp.read_text(encoding="utf-8"))
    # where this machine keeps things is of no interest
    for folder in (TESTS.parent, Path(sys.prefix)):
        words = words.replace(f"{folder}/", "")
    lines = [
        line.strip() for line in words.splitlines() if line.strip() and not line.startswith(BANNER)
    ]
    # the sentence that names the rank stands below a headline
    first = " ".join(lines[:2]) if lines and lines[0].endswith(":") else "".join(lines[:1])
    return {
        "fault": fault,
        "ranks": ranks,
        "seconds": seconds,
        "status": status,
        "message": first,
        "text": words,
    }


def main() -> int:
    sys.path[:0] = [str(TESTS / "engine")]
    from fault_program import FAULTS

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--faults",
        nargs="+",
        choices=FAULTS,
        default=list(FAULTS),
        metavar="FAULT",
        help=f"of {', '.join(FAULTS)}; all",
    )
    parser.add_argument("--ranks", type=int, default=3, help="at least 2; 3")
    parser.add_argument(
        "--limit", type=float, default=300, help="seconds after which a job counts as hung; 300"
    )
    parser.add_argument("--out", type=Path, help="JSON lines, one per fault")
    options = parser.parse_args()
    rows = []
    for fault in options.faults:
        rows.append(run(fault, options.ranks, options.limit))
        say(f"{fault}: {rows[-1]['seconds']:.1f} s, status {rows[-1]['status']}")
        if options.out:
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**rows[-1], "machine": machine()}) + "\n")
    print(table([{**row, "message": row["message"][:150]} for row in rows], COLUMNS))
    return int(any(not row["status"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
