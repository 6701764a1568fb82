"""Writes the four paths into paths.md: ``python docs/paths.py``. A test checks the names.

A short training runs under a profiler, which records the stack at the first call of each station of
a path. The stacks of a path, from the functions where it begins, are its tree. Needs Python 3.11.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from listing import put

from graphtheta.__main__ import main

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "paths.md"
COMMAND = (
    "train --dataset sbm:n_nodes=60,n_edges=240 --strategy mini --batch-size 20 --epochs 1 --out"
)
# the name of each path, the functions where it begins, and the functions (stations) that it must
# reach; a name that begins with a dot is a method of any class
PATHS = {
    "command": (
        "from graphtheta train to a step",
        ["main"],
        ["Session.__init__", "Trainer.fit", "WorkQueue.run", "Tape.backward"],
    ),
    "features": (
        "from gt.load to the loss",
        ["load", "build_partition", "Trainer.fit"],
        [
            "load",
            "check_edges",
            "build_partition",
            "k_hop_view",
            "take_rows",
            "forward@fused",
            ".loss",
            "softmax_cross_entropy",
        ],
    ),
    "gradient": (
        "from the gradient to the optimiser",
        ["Training._compute"],
        [
            "Tape.backward",
            "backward@fused",
            "GradientSum.add",
            "GradientSum.finish",
            ".deliver",
            "Optimiser.step",
        ],
    ),
    "gather": (
        "from a gather to machine code",
        ["run_superstep"],
        [".gather", "record", "plan", "generate", "compiled"],
    ),
}
Frame = tuple[str, str]


def frames(frame: FrameType | None) -> list[Frame]:
    """The functions of the source on a stack, outermost first; functions inside others are left
    out.
    """
    found = []
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        name = frame.f_code.co_qualname
        if path.is_relative_to(ROOT) and "<" not in name and not path.is_relative_to(ROOT / "docs"):
            found.append((path.relative_to(ROOT).as_posix(), name))
        frame = frame.f_back
    return found[::-1]


def matches(frame: Frame, station: str) -> bool:
    """Whether a function is a station: a name, or its end, and after @ the name of its module."""
    name, _, module = station.partition("@")
    return (frame[1].endswith(name) if name.startswith(".") else frame[1] == name) and frame[
        0
    ].endswith(f"{module}.py" if module else "")


def record() -> dict[str, list[list[Frame]]]:
    """The stack at each station of each path, from a function where the path begins."""
    found: dict[tuple[str, str], list[Frame]] = {}
    wanted = {
        station.partition("@")[0].rpartition(".")[2]
        for *_, stations in PATHS.values()
        for station in stations
    }

    def called(frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or frame.f_code.co_name not in wanted:
            return
        stack = frames(frame)
        for path, (_, begins, stations) in PATHS.items():
            for station in stations:
                if (path, station) not in found and stack and matches(stack[-1], station):
                    starts = [
                        i
                        for i, one in enumerate(stack)
                        if any(matches(one, begin) for begin in begins)
                    ]
                    if starts:
                        found[path, station] = stack[starts[0] :]

    with tempfile.TemporaryDirectory() as folder:
        # compiling under a profiler takes a minute
        subprocess.run(
            [sys.executable, "-m", "graphtheta", *COMMAND.split(), f"{folder}/first"],
            check=True,
            capture_output=True,
        )
        threading.setprofile(called)
        sys.setprofile(called)
        try:
            main([*COMMAND.split(), f"{folder}/second"])
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
    missing = [
        f"{path}: {station}"
        for path, (*_, stations) in PATHS.items()
        for station in stations
        if (path, station) not in found
    ]
    if missing:
        raise LookupError(
            "stations that the training does not reach, or not from the beginning of the path:"
            f" {', '.join(missing)}"
        )
    return {path: [stack for (other, _), stack in found.items() if other == path] for path in PATHS}


def size(stacks: list[list[Frame]]) -> str:
    """Number of functions and files of a path."""
    shown = {frame for stack in stacks for frame in stack}
    return f"{len(shown)} functions in {len({file for file, _ in shown})} files"


def tree(stacks: list[list[Frame]]) -> str:
    """The stacks of a path as lines, a function below its caller."""
    lines: dict[tuple[Frame, ...], None] = {}
    for stack in stacks:
        for i in range(len(stack)):
            lines.setdefault(tuple(stack[: i + 1]))
    # in the order of first calls
    order = list(lines)
    order.sort(key=lambda way: [list(lines).index(way[: i + 1]) for i in range(len(way))])
    text = [f"{'  ' * (len(way) - 1)}{way[-1][1]}".ljust(52) + f" {way[-1][0]}" for way in order]
    return "\n".join([*text, "", f"{size(stacks)}, at most {max(map(len, stacks))} deep"])


def filled(page: str) -> str:
    """The page with the paths as they are now."""
    found = record()
    for name, stacks in found.items():
        page = put(page, name, tree(stacks))
    return put(
        page,
        "sizes",
        "\n".join(f"{PATHS[name][0]:<40}{size(stacks)}" for name, stacks in found.items()),
    )


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
