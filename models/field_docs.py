"""The text below each field of a class, which is its help.

pydantic can read it too (``use_attribute_docstrings``), but looks up the module of every frame on
the stack for each class, which took a sixth of the time that the command needs to start.
"""
from __future__ import annotations

import ast
import inspect
import linecache
import re
import sys
import textwrap
from itertools import pairwise


def field_docs(kind: type) -> dict[str, str]:
    """Texts that stand below fields in the source of a class, without those of its bases.

    Args:
        kind: The class.

    Returns:
        By name of field; empty if there is no source.
    """
    try:
        (made,) = ast.parse(textwrap.dedent(_source(kind))).body
    except (SyntaxError, ValueError):
        return {}
    body = made.body if isinstance(made, ast.ClassDef) else []
    return {field.target.id: inspect.cleandoc(text.value.value) for field, text in pairwise(body)
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)}


def _source(kind: type) -> str:
    """The lines of the last class of this name in its module: the one that has just been run."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    lines = linecache.getlines(file) if file else []
    begins = [i for i, line in enumerate(lines) if re.match(rf"\s*class {kind.__name__}\b", line)]
    if not begins:
        return ""
    first = begins[-1]
    margin = len(lines[first]) - len(lines[first].lstrip())
    rest = range(first + 1, len(lines))
    end = next((i for i in rest if lines[i].strip() and len(lines[i]) - len(lines[i].lstrip()) <= margin), len(lines))
    return "".join(lines[first:end])
