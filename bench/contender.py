"""Common code of all contenders: read the inputs, measure times, report. Imports NumPy only.

Peers run in environments of their own, so this file cannot import GraphTheta. A contender is a
script that runs in a process of its own and prints one JSON line:

    {"seconds": {case: [s, ...]}, "checks": {case: [number, ...]},
     "more": {name: anything}, "peak": bytes, "version": text}

``seconds`` are all measured times, ``checks`` are numbers that must agree between contenders, and
``more`` are values that only the benchmark of this contender reads.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

EDGE_ATTRIBUTES = 16
# epochs without dropout, whose losses are compared; they also warm up
CHECKED = 2
BEGIN = "contender: "


@dataclass
class Input:
    """A graph as all contenders read it: in-edges of each node, sorted by destination.

    Attributes:
        indptr: Bounds of the in-edges, [n + 1] int64.
        indices: Source of each edge, [n_edges] int32.
        x: Features, [n, d] float32.
        y: Classes, [n] int64.
        train: Training nodes, [n] bool.
        test: Test nodes, [n] bool; none if the file has none.
    """

    indptr: np.ndarray
    indices: np.ndarray
    x: np.ndarray
    y: np.ndarray
    train: np.ndarray
    test: np.ndarray

    @classmethod
    def read(cls, path: str | Path, features: bool = True) -> Input:
        """From an npz file with these names; without features x is [n, 0]."""
        with np.load(path) as z:
            n = len(z["indptr"]) - 1
            x = z["x"] if features else np.zeros((n, 0), np.float32)
            return cls(
                indptr=z["indptr"],
                indices=z["indices"],
                x=x,
                y=z["y"].astype(np.int64),
                train=z["train"],
                test=z["test"] if "test" in z.files else np.zeros(n, bool),
            )

    @property
    def n(self) -> int:
        return len(self.indptr) - 1

    @property
    def n_edges(self) -> int:
        return len(self.indices)

    @property
    def classes(self) -> int:
        return int(self.y.max()) + 1

    def destinations(self) -> np.ndarray:
        """Destination of each edge, [n_edges] int64."""
        return np.repeat(np.arange(self.n), np.diff(self.indptr))


def drawn(rows: int, *width: int) -> np.ndarray:
    """The same numbers in -1/2 .. 1/2 for every contender, [rows, *width] float32."""
    return np.random.default_rng([rows, *width]).random(
        (rows, *width), dtype=np.float32
    ) - np.float32(0.5)


def size_of(x: Any) -> float:
    """A number to compare arrays by: their length as vectors."""
    return float(np.linalg.norm(np.asarray(x, np.float64)))


def train(
    step: Callable[[float], float], epochs: int, dropout: float
) -> tuple[list[float], list[float]]:
    """Epoch times with dropout, and losses of the first epochs without; ``step`` is given the
    dropout and returns the loss.
    """
    losses = [step(0.0) for _ in range(CHECKED)]
    seconds = []
    for _ in range(epochs):
        began = perf_counter()
        step(dropout)
        seconds.append(perf_counter() - began)
    return seconds, losses


# seconds between two measurements of accuracy, as a share of those so far
DENSE = 0.05


def learning_curve(
    begin: Callable[[], tuple[Callable[[], None], Callable[[], float]]], seconds: float
) -> list[tuple[float, float]]:
    """Accuracy over seconds of the start and of training; measuring it takes none of them.

    Args:
        begin: Makes a training; returns what makes an update, and what measures accuracy.
        seconds: Of the training, at least.

    Returns:
        Seconds so far and accuracy, after updates that are about ``DENSE`` apart.
    """
    began = NOW()
    update, accuracy = begin()
    spent = NOW() - began
    due = spent
    curve = []
    while not curve or spent < seconds:
        began = NOW()
        update()
        spent += NOW() - began
        if spent >= due:
            curve.append((spent, accuracy()))
            due = spent * (1 + DENSE)
    return curve


def peak_bytes() -> int:
    """The most memory this process has held. Not ru_maxrss where that can be helped, which a
    process inherits from the one it was forked from."""
    try:
        line = next(
            s
            for s in Path("/proc/self/status").read_text(encoding="ascii").splitlines()
            if s.startswith("VmHWM")
        )
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
            1 if sys.platform == "darwin" else 1024
        )


def report(
    seconds: dict[str, list[float]], checks: dict[str, list[float]], version: str, **more: Any
) -> None:
    """Hand the results to the harness; ``more`` is what only this contender's bench asks for."""
    print(
        BEGIN
        + json.dumps(
            {
                "seconds": seconds,
                "checks": checks,
                "peak": peak_bytes(),
                "version": version,
                "more": more,
            }
        ),
        flush=True,
    )


class Parts:
    """Times of the parts of a run.

    Attributes:
        seconds: Wall time by part.
        processor: Processor time of all threads by part.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}
        self.processor: dict[str, float] = {}

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Times what runs inside."""
        began = perf_counter()
        used = process_time()
        yield
        self.seconds[part], self.processor[part] = [perf_counter() - began], process_time() - used


def edge_list(z: Input) -> tuple[np.ndarray, np.ndarray]:
    """Sources and destinations in random order, equal for all contenders, [n_edges] int64 each."""
    order = np.random.default_rng(0).permutation(z.n_edges)
    return z.indices[order].astype(np.int64), z.destinations()[order]


# ---- kernels

HEADS = 4


def width_of(case: str) -> tuple[str, int]:
    """Kind and width of a case such as "sum 128"."""
    kind, width = case.split()
    return kind, int(width)


def row_shape(kind: str, width: int) -> tuple[int, ...]:
    """Trailing shape of the rows a kernel sums: with heads where weights have them."""
    return (width,) if kind in ("sum", "weight") else (HEADS, width // HEADS)


def repeat(
    seconds: dict[str, list[float]], case: str, run: Callable[[], tuple[float, float]], times: int
) -> None:
    """Book the forward and backward times of all runs but the first, which warms up."""
    run()
    for _ in range(times):
        for direction, s in zip(("forward", "backward"), run(), strict=True):
            seconds.setdefault(f"{case} {direction}", []).append(s)


# ---- UPDATE and AGG of a layer

# model, widths before and after, whether the input is features, which need no gradient: the first
# layers on products (100 features) and papers100M (128), and a layer between
UPDATED = tuple(
    (model, d_in, 256, d_in < 256) for model in ("sage", "gat") for d_in in (100, 128, 256)
)
# heads, and width of each
AGGREGATED = ((1, 256), (4, 64))
# what times are those of, chosen by the bench in the environment
CLOCKS = {"wall": perf_counter, "processor": process_time}
CLOCK_VARIABLE = "BENCH_CLOCK"
NOW = CLOCKS[os.environ.get(CLOCK_VARIABLE, "wall")]


def products_of(model: str) -> int:
    """Products of the UPDATE of a layer: SAGE has one of the node and one of its neighbours."""
    return 2 if model == "sage" else 1


def drop_of(model: str) -> float:
    """Share that the UPDATE of a layer drops: that of GAT ends with its ReLU."""
    return 0.5 if model == "sage" else 0.0


def update_case(model: str, d_in: int, d_out: int) -> str:
    """The name of a case."""
    return f"update {model} {d_in}x{d_out}"


# ---- samplers

# untimed batches at the beginning, which compile and allocate
WARM = 3
FEW = 1 << 11


def first_nodes(z: Input) -> Input:
    """The subgraph of the first nodes of a graph."""
    n = min(FEW, z.n)
    inside = (z.indices < n) & (np.arange(z.n_edges) < z.indptr[n])
    before = np.append(0, np.cumsum(inside))
    return Input(
        indptr=before[z.indptr[: n + 1]],
        indices=z.indices[inside],
        x=z.x[:n],
        y=z.y[:n],
        train=z.train[:n],
        test=z.test[:n],
    )


def sampled(
    draw: Callable[[np.ndarray, int], tuple[list[int], list[int]]],
    z: Input,
    targets: int,
    batches: int,
    fixed: bool,
) -> tuple[list[float], list[float], list[float]]:
    """Times of some batches of the same targets for every contender.

    Args:
        draw: Samples batch i of some targets; returns the number of input nodes, and the number of
            edges hop by hop from the targets.
        targets: Targets of a batch.
        batches: Timed batches; two more run before.
        fixed: Whether all samples have as many edges of the targets.

    Returns:
        Seconds, the number to compare, and the mean numbers of input nodes and of edges.
    """
    order = np.random.default_rng(0).permutation(np.flatnonzero(z.train))
    seconds = []
    sizes = []
    first = 0
    for i in range(batches + 2):
        nodes = np.sort(order[(i * targets + np.arange(targets)) % len(order)])
        began = perf_counter()
        (n,), edges = draw(nodes, i)
        seconds.append(perf_counter() - began)
        sizes.append((n, sum(edges)))
        first += edges[0]
    return seconds[2:], [float(first)] if fixed else [], np.mean(sizes[2:], axis=0).tolist()
