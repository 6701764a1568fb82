"""GraphTheta with values of nodes in one format: epochs of several seeds, then accuracy.

    PYTHONPATH=bench python bench/own/values.py FORMAT MODEL DATASET EPOCHS SEEDS

FORMAT is a value of the key ``values``. Layers are 128 wide. The first epoch of each seed, which
may compile, is not timed. "loss" and "accuracy" are those of the test set after the last epoch, one
of each seed. "training" is the peak memory of the process in epochs, without that of building the
graph and its parts.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from time import perf_counter

from contender import peak_bytes, report

import graphtheta as gt

WIDTH = 128
HEADS = 8


def main(values: str, model: str, dataset: str, epochs: str, seeds: str) -> None:
    sizes = {"hidden": WIDTH // HEADS, "heads": HEADS} if model == "gat" else {"hidden": WIDTH}
    seconds = []
    peaks = []
    metrics = []
    for seed in range(int(seeds)):
        trainer = gt.Trainer(
            dataset=dataset,
            model=model,
            epochs=int(epochs),
            seed=seed,
            values=values,
            keep=0,
            **sizes,
        )
        trainer.train_epoch(0)
        forget_peak()
        for epoch in range(1, int(epochs)):
            began = perf_counter()
            trainer.train_epoch(epoch)
            seconds.append(perf_counter() - began)
        peaks.append(peak_bytes())
        metrics.append(trainer.evaluate("test"))
    report(
        {"epoch": seconds},
        {},
        f"graphtheta {gt.__version__}",
        training=max(peaks),
        loss=[found["test_loss"] for found in metrics],
        accuracy=[found["test_accuracy"] for found in metrics],
    )


def forget_peak() -> None:
    """Let the peak of this process begin with what it holds now, where the system can."""
    gt.ops.parallel.buffers.release()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


if __name__ == "__main__":
    main(*sys.argv[1:])
