"""NetworKit without what it draws with, which tests do not use: Matplotlib, pandas and scikit-learn
take nine tenths of the time of its import.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import suppress

HIDDEN = "matplotlib"


def import_networkit() -> None:
    """Import NetworKit, if it is installed."""
    before = sys.modules.get(HIDDEN)
    # a module that is None cannot be imported, and NetworKit then does without
    sys.modules[HIDDEN] = None  # type: ignore[assignment]
    try:
        with suppress(ImportError):
            importlib.import_module("networkit")
    finally:
        del sys.modules[HIDDEN]
        if before is not None:
            sys.modules[HIDDEN] = before
