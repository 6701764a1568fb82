"""Functions compiled by Numba, with their machine code in the cache folder.

Numba's own cache is not used. It unpickles and runs files of folders that it does not check. It
numbers the overloads of a function in an index that two processes may write at once, so a process
could load the wrong machine code. It does not notice a changed function in another file. Here
every overload is a file of its own, named after the hash of its argument types, the processor, all
versions and the source texts that it depends on (``sources.py``).

The name of a function in machine code has the number of its compilation, which Numba counts from 1
in each process. Two files from two processes could so hold different functions of one name, such as
the loops of ``sort`` and ``argsort``, and a process that loads both would run the first one for
both. Here every compilation counts from a random number.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
from collections.abc import Callable
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from graphtheta.base.collector import collector_paused
from graphtheta.errors import ConfigError

from .cache import SUFFIX, cache_folder, load, one_at_a_time, save
from .sources import sources

with collector_paused():
    import llvmlite
    import numba
    from numba.core.bytecode import FunctionIdentity
    from numba.core.caching import NullCache
    from numba.core.compiler import CompileResult
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.runtime.nrt import rtsys
    from numba.core.serialize import dumps

# no entry for C, which takes time to compile and has no caller
OPTIONS: dict[str, Any] = {"nogil": True, "no_cfunc_wrapper": True}
# of generated kernels. They divide, and do not multiply by reciprocals, which may be infinite
FAST = {"contract", "nsz"}
# they allocate nothing, so references are not counted; with these options compilation takes a third
# less time
KERNEL: dict[str, Any] = {**OPTIONS, "error_model": "numpy", "fastmath": FAST, "_nrt": False}
kernel_form = numba.njit(**KERNEL)
_compiled = 0


def n_compiled() -> int:
    """How many kernels this process has compiled; loading one from the cache does not count, and
    takes less memory.
    """
    return _compiled


def jit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorator that compiles a function of a module and caches its machine code.

    The function is compiled when it is called with new argument types, and runs without the
    interpreter lock. It must not write to arguments that a caller may give as read-only arrays:
    their machine code is that of other arrays, so that nothing would stop it.

    Args:
        **options: Of ``numba.njit``.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        return cached(
            numba.njit(**OPTIONS, **options)(function),
            f"{function.__module__}.{function.__qualname__}",
            frozenset({function.__module__}),
        )

    return decorate


def identity(text: str, modules: frozenset[str]) -> str:
    """Hash of a text, of modules with all that they import, and of all versions."""
    return _hash(f"{_versions()} {_hash_of_sources(modules)} {text}")


@cache
def _hash_of_sources(modules: frozenset[str]) -> str:
    return _hash(sources(modules))


def _versions() -> str:
    return f"{numba.__version__} {llvmlite.__version__} {np.__version__} {sys.version}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def cached(dispatcher: Any, text: str, modules: frozenset[str]) -> Any:
    """Make a function of ``numba.njit`` load and save its machine code in the cache folder.

    Args:
        dispatcher: The function; changed.
        text: Its source, or its full name.
        modules: The module that defines it, or those that its source imports.

    Raises:
        ConfigError: The compiler is switched off.
    """
    if getattr(numba.config, "DISABLE_JIT", 0):
        raise ConfigError(
            "NUMBA_DISABLE_JIT is set, and GraphTheta needs compiled loops; unset it. To step "
            "through a layer in a debugger, train with backend=reference (--backend reference)"
        )
    compile_alone = dispatcher.compile
    dispatcher._cache = machine_code = _MachineCode(text, modules)

    def compile_locked(types: Any) -> Any:
        writable = _writable(types)
        # lock order: a thread that compiles may need the lock file of another kernel, so no thread
        # may hold a lock file while it waits for the compiler
        with (
            global_compiler_lock,
            one_at_a_time(machine_code.path(writable, dispatcher.targetctx)),
            collector_paused(),
        ):
            FunctionIdentity._unique_ids = count(int.from_bytes(os.urandom(7), "big"))
            entry = compile_alone(writable)
            if types not in dispatcher.overloads:
                dispatcher.overloads[types] = dispatcher.overloads[writable]
                dispatcher._insert([one._code for one in types], entry, False)
        return entry

    # calls with new argument types look up compile on the dispatcher
    dispatcher.compile = compile_locked
    return dispatcher


def _writable(types: tuple[Any, ...]) -> tuple[Any, ...]:
    """Argument types with arrays that may be written in place of read-only ones: their machine code
    is the same, and Numba would compile it twice.
    """

    def writable(one: Any) -> Any:
        if isinstance(one, numba.types.Array) and not one.mutable:
            return one.copy(readonly=False)
        if isinstance(one, (numba.types.Tuple, numba.types.UniTuple)):
            return numba.types.BaseTuple.from_types(_writable(tuple(one)))
        return one

    return tuple(map(writable, types))


class _MachineCode(NullCache):
    """The cache of a dispatcher: loads machine code before compilation and saves it afterwards."""

    def __init__(self, text: str, modules: frozenset[str]):
        self._text = text
        self._modules = modules

    def path(self, types: Any, target: Any) -> Path:
        """File of the machine code for argument types, identified by name as in Numba's symbols."""
        text = f"{self._text} {types} {target.codegen().magic_tuple()}"
        return cache_folder() / (identity(text, self._modules) + SUFFIX)

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
