"""Steps of batches of small graphs against PyG: batches of molecules, forward, backward, update.

    python bench/molecules.py                          mol_tox21, 32 molecules a batch, 3 rounds
    python bench/molecules.py --threads 1 --batch-size 256
    python bench/molecules.py --peers                  GraphTheta alone

The network is the GIN of the Open Graph Benchmark that reads bonds: five layers, 300 wide, with
batch norm, dropout 0.5, the mean over the atoms of a molecule, and Adam. PyG adds an embedding for
each attribute of an atom or a bond, as published; GraphTheta multiplies one-hot attributes by a
matrix, which is the same. All contenders begin with the same weights, and their losses on the first
molecules, of two updates without dropout, must agree. "batch" is the time from the numbers of
molecules to a batch; it is part of the step. "processor" is the time of all threads together, of a
median step and of the least, which other programs on the machine change less.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from harness import Contender, disagreement, finish, parser, peer, race, ratio, say, script
from own.molecules import OPTIONS

import graphtheta as gt
from graphtheta.models import build_model
from graphtheta.ops.autodiff.init import init_scope

CASES = {"seconds": "step", "batch": "batch", "processor": "processor"}
COLUMNS = [
    "data",
    "contender",
    "seconds",
    "least",
    "batch",
    "processor",
    "least processor",
    "times faster",
    "by least",
    "nodes",
    "edges",
    "GiB",
    "note",
]


def molecules_file(name: str, folder: Path) -> Path:
    """Attributes of atoms and bonds as codes, and labels, made if there is no file."""
    path = folder / f"molecules-{name}.npz"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    graph = gt.load(f"{name}:level=graphs")
    bond = graph.edge_columns["relation"] == 0
    atoms = graph.nodes_of("node")
    molecules = graph.nodes_of("graph")
    x = graph.x[atoms]
    codes = np.nonzero(graph.edge_attr[bond])[1]
    of = np.empty(len(atoms), np.int64)
    of[graph.src[~bond] - atoms[0]] = graph.dst[~bond] - molecules[0]
    np.savez(
        path,
        atom=x.indices.reshape(len(atoms), -1).astype(np.int64),
        bond=codes.reshape(int(bond.sum()), -1),
        of=of,
        src=graph.src[bond] - atoms[0],
        dst=graph.dst[bond] - atoms[0],
        y=graph.y[molecules].reshape(len(molecules), -1),
        train=graph.train[molecules],
    )
    return path


def first_weights(path: Path, folder: Path) -> Path:
    """A file of the weights that all contenders begin with."""
    weights = folder / f"{path.stem}-weights.npz"
    with np.load(path) as z, init_scope(0):
        model = build_model(
            "gine", int(z["atom"].max()) + 1, z["y"].shape[1], int(z["bond"].max()) + 1, **OPTIONS
        )
        np.savez(weights, **model.state())
    return weights


def row_of(name: str, c: Contender, own: Contender) -> dict[str, Any]:
    """The row of a contender; a peer's row says how many times faster GraphTheta is."""
    least = {case: min(c.seconds.get(case, []), default=None) for case in ("step", "processor")}
    beside = (
        {}
        if c is own
        else {
            "times faster": ratio(c.median("step"), own.median("step")),
            "by least": ratio(least["step"], min(own.seconds.get("step", []), default=None)),
        }
    )
    nodes, edges = c.figures.get("sizes", (None, None))
    return {
        "data": name,
        "contender": c.name,
        **{column: c.median(case) for column, case in CASES.items()},
        "least": least["step"],
        "least processor": least["processor"],
        **beside,
        "nodes": nodes,
        "edges": edges,
        "GiB": c.peak / 2**30,
        "note": c.error,
        "runs": len(c.seconds.get("step", [])),
        "label": f"{name} {c.name}",
        "version": c.version,
        "losses": c.checks.get("loss"),
    }


def main() -> int:
    options = parser(__doc__, rounds=3)
    options.add_argument(
        "--data", nargs="+", choices=("mol_tox21", "mol_hiv"), default=["mol_tox21"]
    )
    options.add_argument("--batch-size", type=int, default=32, help="molecules of a batch; 32")
    options.add_argument("--steps", type=int, default=50, help="timed steps of a round; 50")
    options.add_argument("--peers", nargs="*", choices=("pyg",), default=["pyg"])
    options = options.parse_args()
    rows, faults = [], []
    for name in options.data:
        path = molecules_file(name, options.folder)
        words = (path, first_weights(path, options.folder), options.batch_size, options.steps)
        own = Contender("graphtheta", script("own", "molecules", *words))
        command = (
            peer(options.envs or options.folder, "pyg", "molecules", *words)
            if options.peers
            else []
        )
        contenders = [own, *([Contender("pyg", command)] if command else [])]
        say(f"GIN with bonds on {name}")
        race(contenders, options.rounds, options.threads)
        faults += [f"{name} {fault}" for fault in disagreement(contenders)]
        rows += [row_of(name, c, own) for c in contenders]
    return finish(options, rows, COLUMNS, faults, bench="molecules", batch_size=options.batch_size)


if __name__ == "__main__":
    sys.exit(main())
