"""Lines of help of options: the text below each of them in the class that declares it.

Sources are read for a help, and not by each process that imports the options, which would take a
tenth of the time of all imports.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import cache
from itertools import pairwise

from graphtheta.models.design import Options
from graphtheta.models.registry import PUBLISHED
from graphtheta.run.job.keys import SECTIONS
from graphtheta.run.job.model_keys import Choice


def described(*kinds: type[Options]) -> dict[str, str]:
    """The line of help of each key of a job, and of each option of further classes that has one, by
    name.

    It is the ``description`` of the field or the text below it.

    Args:
        kinds: Classes of the options of a user's model.
    """
    lines: dict[str, str] = {}
    every: list[type[Options]] = [
        *(design.options for design in PUBLISHED.values()),
        Choice,
        *SECTIONS,
        *kinds,
    ]
    for kind in every:
        for cls in reversed(kind.__mro__):
            if issubclass(cls, Options):
                lines |= _texts(cls)
        lines |= {
            name: field.description
            for name, field in kind.model_fields.items()
            if field.description
        }
    return lines


@cache
def _texts(cls: type[Options]) -> dict[str, str]:
    """Texts below the fields that a class declares; none if it has no source, such as one that a
    program made.
    """
    try:
        source = inspect.getsource(cls)
    except (OSError, TypeError):
        return {}
    (declared,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(declared, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in pairwise(declared.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }
