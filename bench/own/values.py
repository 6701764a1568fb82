"""GraphTheta with values of nodes in one format: epochs, then accuracy.

    PYTHONPATH=bench python bench/own/values.py FORMAT MODEL DATASET EPOCHS SEED

FORMAT is a value of the key ``values``. The first epoch, which compiles, is not timed. "loss" and
"accuracy" are those of the test set after the last epoch.
"""

from __future__ import annotations

import sys
from time import perf_counter

from contender import report

import graphtheta as gt


def main(values: str, model: str, dataset: str, epochs: str, seed: str) -> None:
    trainer = gt.Trainer(
        dataset=dataset,
        model=model,
        hidden=128,
        epochs=int(epochs),
        seed=int(seed),
        values=values,
        keep=0,
    )
    seconds = []
    for epoch in range(int(epochs)):
        began = perf_counter()
        trainer.train_epoch(epoch)
        seconds.append(perf_counter() - began)
    found = trainer.evaluate("test")
    report(
        {"epoch": seconds[1:]},
        {},
        f"graphtheta {gt.__version__}",
        loss=found["test_loss"],
        accuracy=found["test_accuracy"],
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
