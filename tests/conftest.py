"""Fixtures of all tests."""
from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers for test data, the same in every run."""
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Mapping[str, np.ndarray]]:
    """Loads a file of reference values by name; from GRAPHTHETA_GOLDEN, else from beside the repository."""
    folder = Path(os.environ.get("GRAPHTHETA_GOLDEN", ROOT.parent / "shared" / "golden"))
    if not folder.is_dir():
        pytest.skip("no reference values here; set GRAPHTHETA_GOLDEN to their folder")

    def load(name: str) -> Mapping[str, np.ndarray]:
        with np.load(folder / f"{name}.npz") as file:
            return dict(file)

    return load
