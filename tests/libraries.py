"""Other libraries that tests compare with; a test of one that is not installed is skipped."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest


class Later:
    """A module that is imported when a test first uses it: each worker of pytest imports all files
    of tests, whatever it runs. Without the module the test is skipped.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        # pytest asks what it finds in a file whether it is a test
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        return getattr(pytest.importorskip(self._name), attribute)


def dgl() -> Any:
    """DGL without its loader of batches, whose compiled part few versions of PyTorch have."""
    sys.modules.setdefault("dgl.graphbolt", ModuleType("dgl.graphbolt"))
    return pytest.importorskip("dgl")
