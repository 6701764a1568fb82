"""The source texts that machine code depends on: modules and what they import."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from modulefinder import ModuleFinder
from pathlib import Path
from types import CodeType

PRODUCT = __name__.partition(".")[0]
# options and form of all machine code; what this module imports finds and stores files
LAST = f"{__package__}.jit"


def sources(names: frozenset[str]) -> str:
    """The texts of modules of this product and of all modules that these import, one after
    another, and of what decides how machine code is compiled and saved.

    Imports are read from the texts, also those inside functions; a module that is imported for
    one name counts as a whole, and a package as its own file.

    Args:
        names: Full names of modules; a name that is none, such as that of a function, is ignored.
    """
    texts: dict[str, str] = {}
    waiting = [*names, LAST]
    while waiting:
        name = waiting.pop()
        file = _file(name)
        if name in texts or file is None:
            continue
        texts[name] = file.read_text(encoding="utf-8")
        if name != LAST:
            package = name if file.stem == "__init__" else name.rpartition(".")[0]
            waiting += imported(compile(texts[name], str(file), "exec"), package)
    return "".join(f"{name}\n{texts[name]}" for name in sorted(texts))


def imported(code: CodeType, package: str = "") -> frozenset[str]:
    """What a module imports of this product, as full names of modules or of what is in them.

    Bytecode is read, and not a syntax tree: CPython makes the objects of a tree with one counter
    for all threads, and where garbage is collected meanwhile, another thread can make one too;
    both then fail with "AST constructor recursion depth mismatch".

    Args:
        code: The module, compiled.
        package: The package that relative imports start from.
    """
    return frozenset(name for name in _imported(code, package) if name.startswith(f"{PRODUCT}."))


def _imported(code: CodeType, package: str) -> Iterator[str]:
    """What a module, or a function or class in it, and all inside it import."""
    for what, details in ModuleFinder().scan_opcodes(code):
        if what == "store":
            continue
        *level, names, origin = details
        if level:
            origin = importlib.util.resolve_name("." * level[0] + origin, package)
        yield origin
        yield from (f"{origin}.{name}" for name in names or ())
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _imported(inner, package)


def _file(name: str) -> Path | None:
    """The file of a module; None if there is no module of this name."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        # a name in a module, which is no package
        return None
    return None if spec is None or spec.origin is None else Path(spec.origin)
