"""Inference on a graph that has grown, compared with a pass over all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated

KEYS: dict[str, Any] = {
    "epochs": 1,
    "hidden": 4,
    "layers": 3,
    "dtype": "float64",
    "backend": "reference",
}


def update(
    comm: Any,
    model: Any,
    old: gt.Graph,
    new: gt.Graph,
    folder: Path,
    nodes: Any = None,
    **keys: Any,
) -> tuple[list[Any], int, Any]:
    """Outputs and embeddings of a pass over the whole graph and by an update, the number of new
    nodes, and the work.
    """
    chosen = {key: keys.pop(key) for key in ("compare",) if key in keys}
    usual = (
        KEYS
        if isinstance(model, str)
        else {key: x for key, x in KEYS.items() if key not in ("hidden", "layers")}
    )
    trainer = gt.Trainer(model, old, comm=comm, **{**usual, **keys})
    trainer.fit()
    trainer.on(old).keep_layers(folder)
    inference = trainer.on(new)
    grown = inference.since(folder, **chosen)
    # ids of whole graphs are not those of their nodes
    every = None if "readout" in new.node_columns else "all"
    whole = inference.predict(every)
    vectors = inference.embed()
    pairs = [(whole, grown.predict(every))]
    work = grown.work
    pairs += [
        (vectors, grown.embed()),
        (inference.embed(layer=0), grown.embed(layer=0)),
        (whole, grown.predict(every, appended=True)),
        (vectors, grown.embed(appended=True)),
    ]
    if nodes is not None:
        pairs.append((whole, grown.predict(nodes)))
    return pairs, sum(comm.all_gather(len(grown.appended))), work


def check(
    model: Any,
    old: gt.Graph,
    new: gt.Graph,
    folder: Path,
    size: int = 2,
    rows: tuple[int, int] | None = None,
    **keys: Any,
) -> Any:
    """Compare an update with the whole graph; returns the work of predicting all nodes.

    Args:
        rows: Rows of predictions for all and for what is new, where these are not the nodes.
    """
    pairs, n_new, work = run_simulated(size, update, model, old, new, folder, **keys)[0]
    for whole, found in pairs:
        row_of = {node: i for i, node in enumerate(whole[0].tolist())}
        np.testing.assert_allclose(
            found[1], whole[1][[row_of[node] for node in found[0].tolist()]], rtol=1e-9, atol=1e-9
        )
    assert n_new == work.appended
    assert (len(pairs[0][1][0]), len(pairs[3][1][0])) == (rows or (new.n_nodes, n_new))
    return work
