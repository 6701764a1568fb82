"""GraphTheta as a contender: test accuracy over seconds of training, for several seeds.

    PYTHONPATH=bench python bench/own/time_to_accuracy.py MODEL GRAPH.npz SECONDS LR DROPOUT \\
        DECAY WEIGHTS.npz,... KEY=VALUE ...

There is a file of initial weights for each seed. The keys are those of the job, such as
``strategy=auto``. Time begins with the arrays in memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from contender import Input, learning_curve, report
from fullbatch import as_graph
from minibatch import build

import graphtheta as gt


def main(
    model: str,
    graph: str,
    seconds: str,
    lr: str,
    dropout: str,
    decay: str,
    weights: str,
    *keys: str,
) -> None:
    z = Input.read(graph)
    # features as gt.load would hand them over
    x = as_graph(z, None).x
    src = z.indices.astype(np.int64)
    dst = z.destinations()
    chosen = ""
    curves = []
    for seed, path in enumerate(weights.split(",")):
        with np.load(path) as w:
            first = {name: w[name] for name in w.files}

        def begin(
            first: Any = first, seed: int = seed
        ) -> tuple[Callable[[], None], Callable[[], float]]:
            nonlocal chosen
            whole = gt.Graph(
                (src, dst), z.n, x=x, y=z.y, n_classes=z.classes, train=z.train, test=z.test
            )
            trainer = gt.Trainer(
                _network(model, first["layers.0.bias"].size),
                whole,
                lr=float(lr),
                weight_decay=float(decay),
                seed=seed,
                **dict(key.split("=", 1) for key in keys),
            )
            trainer.model.load_state(first)
            trainer.model.dropout = float(dropout)
            job = trainer.job
            chosen = f"{job.strategy} {job.as_text('batch_size')} {job.as_text('fanout')}"
            updates = _updates(trainer)
            return lambda: next(updates), lambda: float(trainer.measure()["test_accuracy"])

        curves.append(learning_curve(begin, float(seconds)))
    report({}, {}, f"graphtheta {gt.__version__}", curves=curves, chosen=chosen)


def _network(model: str, hidden: int) -> Callable[[int, int, int], gt.Model]:
    """Makes a network of two layers, ``hidden`` wide."""
    return lambda d_in, d_out, d_edge: build(model, d_in, hidden, d_out, 2)


def _updates(trainer: gt.Trainer) -> Iterator[None]:
    """Updates of one epoch after another."""
    epoch = 0
    while True:
        for i in range(trainer.strategy.views_of(epoch)):
            trainer.training.run(epoch, i, i + 1)
            yield
        epoch += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
