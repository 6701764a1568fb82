"""Shares of a step of a GCN of two layers: preparation, both layers forward and backward, update.

    python bench/papers/ablation.py
    python bench/papers/ablation.py --graph rmat:scale=14,edge_factor=14,features=16,classes=8

The table of stages of the GraphTheta paper (papers100M, 128 workers), on an R-MAT graph with as
many edges per node and as wide features. Each step computes a mini-batch of 1 % of the training
nodes with all their neighbours. Two operations that copy nothing note the time at which values and
gradients pass between the layers.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from harness import finish, parser

import graphtheta as gt
from graphtheta.models import GCN

COLUMNS = ["stage", "ours", "paper", "milliseconds"]
PAPER = {
    "preparation": 6.53,
    "layer 0 forward": 38.38,
    "layer 1 forward": 11.02,
    "layer 0 backward": 37.90,
    "layer 1 backward": 6.05,
    "update": 0.13,
}
# (place, seconds) in the order of time
times: list[tuple[str, float]] = []


@gt.primitive("noted")
def noted(x: Any, place: str) -> Any:
    """Its argument; notes the time."""
    times.append((f"{place} forward", perf_counter()))
    return x


def _noted_backward(g: Any, y: Any, x: Any, place: str) -> Any:
    times.append((f"{place} backward", perf_counter()))
    return g


gt.defvjp(noted, x=_noted_backward)


class Net(gt.Model):
    """GCN of two layers."""

    def __init__(self, d_in: int, d_out: int, hidden: int):
        self.first = GCN(d_in, hidden)
        self.second = GCN(hidden, d_out)

    def forward(self, graph: Any) -> Any:
        times.append(("begin", perf_counter()))
        h = gt.dropout(gt.relu(self.first(graph, graph.x)), 0.5)
        return noted(self.second(graph, noted(h, "between")), "end")


def durations(trace: Path, name: str, steps: int) -> float:
    """Seconds of the last events of a name, one for each step."""
    events = json.loads(trace.read_text(encoding="utf-8"))
    events = events if isinstance(events, list) else events["traceEvents"]
    found = sorted((e["ts"], e["dur"]) for e in events if e.get("ph") == "X" and e["name"] == name)
    return sum(dur for _, dur in found[-steps:]) / 1e6


def measured(graph: gt.Graph, epochs: int) -> dict[str, float]:
    """Seconds of each stage, summed over the steps of all epochs but the first, which compiles."""
    with tempfile.TemporaryDirectory() as folder:
        batch = max(int(np.count_nonzero(graph.train)) // 100, 1)
        trainer = gt.Trainer(
            Net,
            graph,
            strategy="mini",
            batch_size=batch,
            hidden=128,
            epochs=epochs,
            eval_every=epochs,
            trace=True,
            out=folder,
        )
        steps = trainer.strategy.steps_per_epoch * (epochs - 1)
        trainer.fit()
        spent = {
            name: durations(Path(folder) / "trace.json", name, steps)
            for name in ("batch", "backward", "reduce", "update")
        }
    # the evaluation after the last step has no backward pass
    places = np.array([place for place, _ in times if place == "end backward"])
    at = [k for k, (place, _) in enumerate(times) if place == "end backward"][len(places) - steps :]
    begin, between, end, back, half = (
        np.array([times[k + i][1] for k in at]) for i in (-3, -2, -1, 0, 1)
    )
    second = float((half - back).sum())
    forward = [float(x.sum()) for x in (between - begin, end - between)]
    return {
        "preparation": spent["batch"],
        "layer 0 forward": forward[0],
        "layer 1 forward": forward[1],
        "layer 0 backward": spent["backward"] - second,
        "layer 1 backward": second,
        "update": spent["reduce"] + spent["update"],
    }


def main() -> int:
    options = parser(__doc__, rounds=1)
    options.add_argument(
        "--graph",
        default="rmat:scale=18,edge_factor=14,features=128,classes=64",
        help="any name that gt.load knows",
    )
    options.add_argument("--epochs", type=int, default=3, help="the first is left out; 3")
    options = options.parse_args()
    seconds = measured(gt.load(options.graph), options.epochs)
    total = sum(seconds.values())
    rows = [
        {
            "stage": stage,
            "ours": 100 * s / total,
            "paper": PAPER[stage],
            "milliseconds": 1e3 * s,
            "seconds": s,
            "label": stage,
        }
        for stage, s in seconds.items()
    ]
    return finish(options, rows, COLUMNS, [], bench="ablation", graph=options.graph)


if __name__ == "__main__":
    sys.exit(main())
