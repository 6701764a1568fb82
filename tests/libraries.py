"""Other libraries that tests compare with; a test of one that is not installed is skipped."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest


def dgl() -> Any:
    """DGL without its loader of batches, whose compiled part few versions of PyTorch have."""
    sys.modules.setdefault("dgl.graphbolt", ModuleType("dgl.graphbolt"))
    return pytest.importorskip("dgl")
