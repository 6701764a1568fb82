"""Functions compiled by Numba, with their machine code in the cache folder.

Numba's own cache is not used. It unpickles and runs files of folders that it does not check. It
numbers the overloads of a function in an index that two processes may write at once, so a process
could load the wrong machine code. It does not notice a changed function in another file. Here
every overload is a file of its own, named after the hash of its argument types, the processor, all
versions and all source texts that it can depend on.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from graphtheta.base.collector import collector_paused
from graphtheta.errors import ConfigError

from .cache import SUFFIX, cache_folder, load, one_at_a_time, save

with collector_paused():
    import llvmlite
    import numba
    from numba.core.caching import NullCache
    from numba.core.compiler import CompileResult
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.runtime.nrt import rtsys
    from numba.core.serialize import dumps

# machine code depends on all files of these folders
FOLDERS = [Path(__file__).parent.parent / name for name in ("compile", "kernels", "optimisers")]
# no entry for C, which takes time to compile and has no caller
OPTIONS: dict[str, Any] = {"nogil": True, "no_cfunc_wrapper": True}
_compiled = 0


def n_compiled() -> int:
    """How many kernels this process has compiled; loading one from the cache does not count, and
    takes less memory.
    """
    return _compiled


def jit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorator that compiles a function of a kernel folder and caches its machine code.

    The function is compiled when it is called with new argument types, and runs without the
    interpreter lock.

    Args:
        **options: Of ``numba.njit``.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        return cached(
            numba.njit(**OPTIONS, **options)(function),
            f"{function.__module__}.{function.__qualname__}",
        )

    return decorate


def identity(text: str) -> str:
    """Hash of a text and of what all kernels depend on: versions, and the sources of all kernel
    folders.
    """
    return _hash(f"{_versions()} {text}")


@cache
def _versions() -> str:
    ours = "".join(
        path.read_text(encoding="utf-8")
        for folder in FOLDERS
        for path in sorted(folder.rglob("*.py"))
    )
    return _hash(
        f"{numba.__version__} {llvmlite.__version__} {np.__version__} {sys.version} {ours}"
    )


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def cached(dispatcher: Any, text: str) -> Any:
    """Make a function of ``numba.njit`` load and save its machine code in the cache folder.

    Args:
        dispatcher: The function; changed.
        text: Its source, or the name of a function of a kernel folder.

    Raises:
        ConfigError: The compiler is switched off.
    """
    if getattr(numba.config, "DISABLE_JIT", 0):
        raise ConfigError(
            "NUMBA_DISABLE_JIT is set, and GraphTheta needs compiled loops; unset it. To step "
            "through a layer in a debugger, train with backend=reference (--backend reference)"
        )
    compile_alone = dispatcher.compile
    dispatcher._cache = machine_code = _MachineCode(text)

    def compile_locked(types: Any) -> Any:
        # lock order: a thread that compiles may need the lock file of another kernel, so no thread
        # may hold a lock file while it waits for the compiler
        with (
            global_compiler_lock,
            one_at_a_time(machine_code.path(types, dispatcher.targetctx)),
            collector_paused(),
        ):
            return compile_alone(types)

    # calls with new argument types look up compile on the dispatcher
    dispatcher.compile = compile_locked
    return dispatcher


class _MachineCode(NullCache):
    """The cache of a dispatcher: loads machine code before compilation and saves it afterwards."""

    def __init__(self, text: str):
        self._text = text

    def path(self, types: Any, target: Any) -> Path:
        """File of the machine code for argument types, identified by name as in Numba's symbols."""
        return cache_folder() / (
            identity(f"{self._text} {types} {target.codegen().magic_tuple()}") + SUFFIX
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        # machine code of functions of arrays and numbers calls nothing else of Numba. All that a
        # compilation may use takes longer to register than most kernels take to load; the compiler
        # does so itself
        rtsys.initialize(target_context)
        code = load(self.path(sig, target_context))
        return None if code is None else CompileResult._rebuild(target_context, *pickle.loads(code))

    def save_overload(self, sig: Any, data: Any) -> None:
        global _compiled
        _compiled += 1
        # dynamic globals are addresses of this process
        if not data.library.has_dynamic_globals:
            save(self.path(sig, data.target_context), dumps(data._reduce()))
