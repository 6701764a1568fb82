"""The source texts that machine code depends on: modules and what they import."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

PRODUCT = __name__.partition(".")[0]
# options and form of all machine code; what this module imports finds and stores files
LAST = f"{__package__}.jit"
# fields of a syntax tree that hold statements, or parts of a statement with statements
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


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
            waiting += imported(ast.parse(texts[name]), package)
    return "".join(f"{name}\n{texts[name]}" for name in sorted(texts))


def imported(tree: ast.AST, package: str = "") -> frozenset[str]:
    """What a source imports of this product, as full names of modules or of what is in them.

    Args:
        tree: The syntax tree of the source.
        package: The package that relative imports start from.
    """
    return frozenset(name for name in _imported(tree, package) if name.startswith(f"{PRODUCT}."))


def _imported(node: ast.AST, package: str) -> Iterator[str]:
    """What a statement and those inside it import; expressions, most of a tree, cannot."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        origin = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
        yield origin
        yield from (f"{origin}.{alias.name}" for alias in node.names)
    for block in BLOCKS:
        for inner in getattr(node, block, ()):
            yield from _imported(inner, package)


def _file(name: str) -> Path | None:
    """The file of a module; None if there is no module of this name."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        # a name in a module, which is no package
        return None
    return None if spec is None or spec.origin is None else Path(spec.origin)
