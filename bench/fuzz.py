"""Feeds damaged files to every reader, each in a process with limits of memory and time.

An input is a valid file with bits flipped, parts cut, moved or overwritten, or fields of its format
changed: shapes and dtypes in array headers, sizes in zip directories, tokens of YAML and JSON,
opcodes of pickles, types of messages. A reader passes if it accepts each input with valid content,
or refuses it with an error of this project that names the file. Faults are other exceptions, the
end of the process (crash), no result in time (hang), and memory beyond the stated multiple of the
content of the file; memory that is requested and not granted counts as well. The exit code is 1 if
there is a fault. Inputs depend on --seed and their number only; those that cause faults are stored
in --folder.
"""

from __future__ import annotations

import argparse
import faulthandler
import io
import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
import tracemalloc
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from harness import FOLDER, machine, say, table

# of memory that reading takes whatever the size of the file: buffers, and what the syntax of a
# header of 10,000 letters becomes
ALLOWANCE = 8 << 20
ADDRESS_SPACE = 2 << 30
SECONDS = 10
COLUMNS = [
    "reader",
    "inputs",
    "accepted",
    "refused",
    "faults",
    "worst s",
    "worst MiB",
    "worst ratio",
    "allowed",
]


def main(words: list[str]) -> int:
    """Fuzz all readers, or some."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--inputs", type=int, default=105_000, help="of all readers together; 105,000"
    )
    parser.add_argument("--readers", help="some of them, by name, separated by commas")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--folder",
        type=Path,
        default=FOLDER / "fuzz",
        help="where inputs at fault are kept; .bench/fuzz",
    )
    parser.add_argument("--out", type=Path, help="JSON lines, one per reader")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.child:
        return child(json.loads(options.child), options.folder)
    rows, faults = campaign(options)
    print(table(rows, COLUMNS), flush=True)
    for fault in faults:
        say(fault)
    if options.out:
        with options.out.open("a", encoding="utf-8") as f:
            for row in rows:
                f.write(
                    json.dumps({"bench": "fuzz", "seed": options.seed, **row, "machine": machine()})
                    + "\n"
                )
    return 1 if faults else 0


def campaign(options: argparse.Namespace) -> tuple[list[dict[str, Any]], list[str]]:
    """Start processes until every input was read; one that dies is followed by one that begins
    behind the input it died of.
    """
    from fuzz_store import targets

    names = [
        name for name in targets() if not options.readers or name in options.readers.split(",")
    ]
    share = -(-options.inputs // len(names))
    rows = {
        name: {
            "reader": name,
            "inputs": 0,
            "accepted": 0,
            "refused": 0,
            "faults": 0,
            "worst s": 0.0,
            "worst MiB": 0.0,
            "worst ratio": 0.0,
            "allowed": 0,
        }
        for name in names
    }
    faults: list[str] = []
    left = [[name, 0, share, options.seed] for name in names]
    options.folder.mkdir(parents=True, exist_ok=True)
    while left:
        command = [
            sys.executable,
            __file__,
            "--child",
            json.dumps(left),
            "--folder",
            str(options.folder),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        reports = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        for report in reports:
            if "fault" in report:
                faults.append(report["fault"])
            else:
                add(rows[report["reader"]], report)
        if done.returncode == 0:
            break
        last = reports[-1] if reports else {}
        # the last word of a process that dies is where it is
        if "at" not in last:
            raise RuntimeError(f"the process that reads cannot start: {done.stderr[-2000:]}")
        name, at = last["reader"], last["at"]
        how = (
            "hang" if "Timeout" in done.stderr else f"end of the process, status {done.returncode}"
        )
        rows[name]["faults"] += 1
        faults.append(f"{name}, input {at}: {how}: {' '.join(done.stderr.split())[:600]}")
        left = [
            [n, at + 1 if n == name else first, *rest]
            for n, first, *rest in left[[n for n, *_ in left].index(name) :]
        ]
    return list(rows.values()), faults


def add(row: dict[str, Any], report: dict[str, Any]) -> None:
    """Add what a process did to the row of its reader."""
    for column, value in report.items():
        if column in ("inputs", "accepted", "refused", "faults"):
            row[column] += value
        elif column != "reader" and column in row:
            row[column] = max(row[column], value)


# ---- the process that reads


def child(jobs: list[tuple[str, int, int, int]], kept: Path) -> int:
    """Read inputs; tell of every reader when it is done, and now and then."""
    from fuzz_store import targets

    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    every = targets()
    with tempfile.TemporaryDirectory() as folder:
        for name, *_ in jobs:
            target = every[name]
            for file, data in target.files.items():
                Path(folder, file).write_bytes(data)
            # imports and the like are not the reader's memory
            for file in target.files:
                target.read(Path(folder), file)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + ADDRESS_SPACE, used + ADDRESS_SPACE))
        tracemalloc.start()
        for name, first, last, seed in jobs:
            for report in fuzz(
                name=name,
                target=every[name],
                inputs=range(first, last),
                seed=seed,
                folder=Path(folder),
                kept=kept,
            ):
                print(json.dumps(report), flush=True)
    return 0


def fuzz(
    name: str, target: Any, inputs: range, seed: int, folder: Path, kept: Path
) -> Iterator[dict[str, Any]]:
    """Read inputs of one reader, and report faults and at last the whole."""
    row = dict.fromkeys(("inputs", "accepted", "refused", "faults"), 0) | {
        "worst s": 0.0,
        "worst MiB": 0.0,
        "worst ratio": 0.0,
    }
    for file, data in target.files.items():
        (folder / file).write_bytes(data)
    with Beacon(name) as beacon:
        for i in inputs:
            file, data = spoilt(target, Random(f"{seed} {name} {i}"))
            (folder / file).write_bytes(data)
            beacon.at(i)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            begin = time.perf_counter()
            verdict, why = judge(target, folder, file)
            seconds = time.perf_counter() - begin
            peak = tracemalloc.get_traced_memory()[1] - before
            (folder / file).write_bytes(target.files[file])
            held = expanded(data) + (
                sum(map(len, target.files.values())) if len(target.files) > 3 else 0
            )
            if verdict != "faults" and peak > target.multiple * held + ALLOWANCE:
                verdict = "faults"
                why = f"{peak / 2**20:.1f} MiB for {held} bytes"
            row["inputs"] += 1
            row[verdict] += 1
            row["worst s"] = max(row["worst s"], seconds)
            row["worst MiB"] = max(row["worst MiB"], peak / 2**20)
            row["worst ratio"] = max(row["worst ratio"], max(0, peak - ALLOWANCE) / held)
            if verdict == "faults":
                (kept / f"{name.replace(' ', '-')}-{seed}-{i}-{file}").write_bytes(data)
                yield {"fault": f"{name}, input {i} ({file}): {why}"}
    yield {"reader": name, **row, "allowed": target.multiple}


def spoilt(target: Any, r: Random) -> tuple[str, bytes]:
    """A file of the target, and its bytes with some damage done."""
    from fuzz_formats import ANY

    file = r.choice(list(target.files))
    data = target.files[file]
    for _ in range(r.choice((1, 1, 1, 2, 3))):
        spoil = r.choice(target.spoils) if target.spoils and r.random() < 0.7 else r.choice(ANY)
        try:
            data = spoil(r, data) or b"\n"
        # damage of the first kind may leave nothing for the second to work on
        except (
            ValueError,
            LookupError,
            zipfile.BadZipFile,
            OSError,
            EOFError,
            RuntimeError,
            NotImplementedError,
            ArithmeticError,
        ):
            continue
        except Exception as error:
            if type(error).__module__ not in ("zlib", "_lzma", "struct"):
                raise
    return file, data


def judge(target: Any, folder: Path, file: str) -> tuple[str, str]:
    """Whether an input is accepted, refused, or shows a fault, and which."""
    from graphtheta.errors import GraphThetaError

    try:
        target.read(folder, file)
    except GraphThetaError as error:
        causes = []
        cause = error.__cause__ or error.__context__
        while cause is not None and len(causes) < 9:
            causes.append(cause)
            cause = cause.__cause__ or cause.__context__
        if any(isinstance(c, MemoryError) and "nested" not in str(c) and str(c) for c in causes):
            return "faults", f"asked for memory that there is not: {error}"
        stem = file.rpartition(".")[0] if file.startswith("ind.") else file
        if target.named and stem.split(".")[0 if not file.startswith("ind.") else 1] not in str(
            error
        ):
            return "faults", f"the file is not named: {error}"
        return "refused", ""
    except Exception as error:
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        line = (
            f"{Path(frame.tb_frame.f_code.co_filename).name}:{frame.tb_lineno}"
            if frame is not None
            else ""
        )
        return "faults", f"{type(error).__name__}: {str(error)[:300]} ({line})"
    return "accepted", ""


def expanded(data: bytes) -> int:
    """Bytes a file holds: of an archive those of its members, as far as deflate can make so many
    out of it.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return max(
                len(data), min(sum(m.file_size for m in archive.infolist()), 1032 * len(data))
            )
    except Exception:
        return len(data)


class Beacon:
    """Says which input is read when the process dies of it, and ends the process if it takes too
    long.
    """

    def __init__(self, name: str):
        self.name = name
        self.number = -1

    def __enter__(self) -> Beacon:
        return self

    def at(self, number: int) -> None:
        """A new input."""
        self.number = number
        # straight into the pipe, which keeps it whatever happens to this process
        os.write(1, (json.dumps({"reader": self.name, "at": number}) + "\n").encode())
        faulthandler.dump_traceback_later(SECONDS, exit=True)

    def __exit__(self, *_: object) -> None:
        faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
