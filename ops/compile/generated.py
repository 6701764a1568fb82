"""Compiles generated kernels: from source text to machine code, which is cached on disk.

The source is never read from a file: the text that was generated is compiled.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .jit import cached, identity
from .sources import imported

_loaded: dict[str, Callable[..., None]] = {}


def compiled(source: str, dtype: str, header: str) -> Callable[..., None]:
    """The function of a generated source; compiled on first call for its argument types."""
    text = header.format(dtype=dtype) + source
    if text not in _loaded:
        _loaded[text] = _load(text)
    return _loaded[text]


def _load(text: str) -> Any:
    modules = imported(compile(text, "<kernel>", "exec"))
    # cached machine code refers to its globals by the name of their module
    module = ModuleType(f"graphtheta_kernel_{identity(text, modules)[:24]}")
    sys.modules[module.__name__] = module
    filename = f"<{module.__name__}>"
    # tracebacks and error messages of Numba read lines there
    linecache.cache[filename] = len(text), None, text.splitlines(keepends=True), filename
    exec(compile(text, filename, "exec"), module.__dict__)
    return cached(module.kernel, text, modules)
