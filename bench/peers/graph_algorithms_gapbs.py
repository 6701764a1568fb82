"""GAPBS as a contender: runs its programs pr_spmv and cc, and reads what they print.

PYTHONPATH=bench python bench/peers/graph_algorithms_gapbs.py GRAPH.npz TIMES FOLDER
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
from contender import report


def serialized(path: Path) -> Path:
    """The graph in GAPBS's own format, undirected with 32-bit ids, written if there is none."""
    out = path.with_suffix(".sg")
    if not out.exists():
        with np.load(path) as z, out.open("wb") as f:
            f.write(b"\0")
            np.array([len(z["indices"]), len(z["indptr"]) - 1], np.int64).tofile(f)
            z["indptr"].astype(np.int64).tofile(f)
            z["indices"].tofile(f)
    return out


def run(program: Path, *words: object) -> str:
    """What a program prints."""
    return subprocess.run(
        [str(program), *map(str, words)], capture_output=True, text=True, check=True
    ).stdout


def main(path: str, times: str, folder: str) -> None:
    graph = serialized(Path(path))
    programs = Path(folder)
    ranks = run(programs / "pr_spmv", "-f", graph, "-n", times, "-i", 20, "-t", 0, "-a")
    parts = run(programs / "cc", "-f", graph, "-n", times, "-a")
    seconds = {"start": [float(re.findall(r"Read Time: +([\d.]+)", ranks)[0])]}
    for case, said in (("pagerank", ranks), ("components", parts)):
        seconds[case] = [float(s) for s in re.findall(r"Trial Time: +([\d.]+)", said)]
    highest = max(float(s) for s in re.findall(r"^\d+:([\d.e-]+)$", ranks, re.MULTILINE))
    report(
        seconds,
        {
            "largest rank": [highest],
            "components": [float(re.findall(r"There are (\d+) components", parts)[0])],
        },
        "gapbs",
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
