"""Damages checkpoints and weights, and tests that the damage is detected.

    python bench/damage.py                  1,000 times
    python bench/damage.py --times 100000

A run leaves two checkpoints and its weights. Each time, one file of the newer checkpoint, or the
weights, is damaged at random: a bit is flipped, the file is truncated, a block is set to zeros, or
the file is removed. Reading a damaged checkpoint must give the older one, equal to the bit. Reading
damaged weights must be an error. Damage without effect, such as another kind of blank in the
header, may be accepted.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from harness import say, table

import graphtheta as gt
from graphtheta.errors import GraphThetaError
from graphtheta.run.checkpoints.checkpoint import (
    ARRAYS,
    CHECKPOINTS,
    MANIFEST,
    Checkpoint,
    newest_good,
    steps_in,
)
from graphtheta.run.checkpoints.weights import WEIGHTS, read_saved

KEYS: dict[str, Any] = {
    "dataset": "sbm",
    "strategy": "mini",
    "batch_size": 200,
    "staleness": 1,
    "norm": "batch",
    "backend": "reference",
}
WAYS = ("bit flipped", "cut short", "zeroed", "taken away")
COLUMNS = ["file", "damage", "times", "seen", "harmless", "older used", "loaded wrong"]


def trained(folder: Path) -> None:
    """A run that leaves two checkpoints and its weights."""
    for steps in (3, 5):
        trainer = gt.Trainer(job=gt.Job(**KEYS, steps=steps, resume=True, out=str(folder)))
        trainer.fit()
    trainer.save(folder / WEIGHTS)


def damage(path: Path, whole: bytes, way: str, rng: np.random.Generator) -> bytes | None:
    """Damage a file; returns what is left of it."""
    at = int(rng.integers(len(whole)))
    left = bytearray(whole)
    if way == "bit flipped":
        left[at] ^= 1 << int(rng.integers(8))
    elif way == "cut short":
        del left[at:]
    elif way == "zeroed":
        end = min(at + int(rng.integers(1, 4096)), len(whole))
        left[at:end] = bytes(end - at)
    else:
        path.unlink()
        return None
    path.write_bytes(left)
    return bytes(left)


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return set(a) == set(b) and all(
        x.dtype == b[n].dtype and x.shape == b[n].shape and x.tobytes() == b[n].tobytes()
        for n, x in a.items()
    )


def of_checkpoint(folder: Path, newer: Checkpoint, older: Checkpoint) -> Counter[str]:
    """What became of reading the newest checkpoint."""
    told: list[str] = []
    try:
        found = newest_good(folder, told.append)
    except Exception as e:
        say(f"{type(e).__name__}: {e}")
        return Counter(["loaded wrong"])
    for name, one in (("older used", older), ("harmless", newer)):
        if found is not None and found.manifest == one.manifest and same(found.arrays, one.arrays):
            return Counter([name, "seen"]) if told else Counter([name])
    return Counter(["loaded wrong"])


def of_weights(path: Path, job: gt.Job, weights: dict[str, np.ndarray]) -> Counter[str]:
    """What became of reading the weights."""
    try:
        found = read_saved(path)
    except GraphThetaError:
        return Counter(["seen"])
    except Exception as e:
        say(f"{type(e).__name__}: {e}")
        return Counter(["loaded wrong"])
    return Counter(["harmless" if found[0] == job and same(found[1], weights) else "loaded wrong"])


def main() -> int | str:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--times", type=int, default=1000, help="how often; 1000")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--out", type=Path, help="JSON lines, one per row")
    options = options.parse_args()
    rng = np.random.default_rng(options.seed)
    counts = {}
    began = perf_counter()
    with tempfile.TemporaryDirectory() as name:
        trained(Path(name))
        folder = Path(name, CHECKPOINTS)
        weights = Path(name, WEIGHTS)
        (_, newest), _ = steps_in(folder)[:2]
        newer = newest_good(folder, say)
        whole = {path: path.read_bytes() for path in (newest / ARRAYS, newest / MANIFEST, weights)}
        (newest / ARRAYS).unlink()
        older = newest_good(folder, lambda line: None)
        (newest / ARRAYS).write_bytes(whole[newest / ARRAYS])
        job, values, _ = read_saved(weights)
        assert newer and older and older.manifest.step < newer.manifest.step
        for _ in range(options.times):
            path = list(whole)[int(rng.integers(3))]
            way = WAYS[int(rng.choice(4, p=(0.5, 0.3, 0.15, 0.05)))]
            left = damage(path, whole[path], way, rng)
            row = counts.setdefault((path.name, way), Counter())
            if left == whole[path]:
                # zeros where zeros were
                row.update(["times", "harmless"])
                continue
            row.update(["times"])
            row.update(
                of_weights(path, job, values)
                if path == weights
                else of_checkpoint(folder, newer, older)
            )
            path.write_bytes(whole[path])
    rows = [
        {"file": file, "damage": way, **{c: counts[file, way][c] for c in COLUMNS[2:]}}
        for file, way in sorted(counts)
    ]
    print(table(rows, COLUMNS), flush=True)
    say(f"{options.times} times in {perf_counter() - began:.0f} s")
    if options.out:
        with options.out.open("a", encoding="utf-8") as f:
            f.writelines(
                json.dumps({"bench": "damage", "seed": options.seed, **row}) + "\n" for row in rows
            )
    wrong = any(
        row["loaded wrong"] or row["times"] != row["seen"] + row["harmless"] for row in rows
    )
    return "something loaded wrong" if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
