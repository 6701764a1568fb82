"""Compiling generated kernels: from source text to machine code, which is kept on disk.

The source itself is never read from a file: what is run is the text that was generated.
"""
from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .jit import identity, kept

_loaded: dict[str, Callable[..., None]] = {}


def compiled(source: str, dtype: str, header: str) -> Callable[..., None]:
    """The function of a generated source; compiled on first call for its argument types."""
    text = header.format(dtype=dtype) + source
    if text not in _loaded:
        _loaded[text] = _load(text)
    return _loaded[text]


def _load(text: str) -> Any:
    # machine code that was kept names the module of its globals
    module = ModuleType(f"graphtheta_kernel_{identity(text)[:24]}")
    sys.modules[module.__name__] = module
    place = f"<{module.__name__}>"
    # where tracebacks and error messages of Numba look for lines
    linecache.cache[place] = len(text), None, text.splitlines(keepends=True), place
    exec(compile(text, place, "exec"), module.__dict__)
    return kept(module.kernel, text)
