"""A loss from outside of the package."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

import graphtheta as gt
from graphtheta.engine.comm.simulated import run_simulated

FILE = Path(__file__).parent / "loss.py"
Focal = run_path(str(FILE))["Focal"]
KEYS: dict[str, Any] = {
    "dataset": "sbm:n_nodes=60,n_edges=300,classes=3,features=4",
    "epochs": 3,
    "backend": "reference",
    "dtype": "float64",
    "hidden": 4,
    "strategy": "mini",
    "batch_size": 13,
}


def losses(comm: Any, loss: Any) -> list[float]:
    """Of training and validation."""
    history = gt.Trainer(comm=comm, loss=loss, **KEYS).fit().history
    return [row[name] for row in history for name in ("loss", "val_loss")]


def test_the_loss_is_the_same_on_any_number_of_workers() -> None:
    one, three = (run_simulated(size, losses, Focal())[0] for size in (1, 3))
    assert one == pytest.approx(three, rel=1e-9)


def test_it_is_the_cross_entropy_without_its_factor() -> None:
    plain, focal, other = (
        run_simulated(1, losses, loss)[0] for loss in (None, Focal(0.0), Focal())
    )
    assert focal == pytest.approx(plain, rel=1e-9) and other[0] < plain[0]
