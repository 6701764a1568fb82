"""Adds the name of the user's function, the line and a remedy to errors raised inside it."""
from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from graphtheta.errors import CommError, GraphThetaError, UserFunctionError, annotate

# names of our types in the messages of Python's own errors
_SYMBOL = re.compile(r"\b(Expr|Var|Deferred|Totals)\b")
_OURS = {Path(__file__).parents[2] / folder for folder in ("ops", "engine", "models")}


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Name the user's function in errors raised inside it, unless a function inside it is named already.

    Errors of this package get a prefix to their message; others get a note.
    """
    try:
        yield
    except CommError:
        raise
    except GraphThetaError as error:
        if error.located or where in str(error):
            error.located = True
            raise
        named = type(error)(f"{where}: {error}")
        named.located = True
        raise named from error
    except Exception as error:
        if isinstance(error, (TypeError, AttributeError)) and (found := _SYMBOL.search(str(error))):
            named = UserFunctionError(f"{where}{_line(error)}: {error}; {_advice(found[0])}")
            named.located = True
            raise named from error
        if not getattr(error, "located", False):
            annotate(error, f"raised in {where}")
            error.located = True  # type: ignore[attr-defined]
        raise


def _advice(value: str) -> str:
    if value == "Totals":
        return ("the layer's sum names several aggregators, so there is one total for each: take them by name, such as total.mean, or "
                "join them with gt.concat([total.mean, total.max])")
    return ("values of nodes and edges support the functions of gt and + - * / ** @, indexing, .sum .mean .max .min .reshape .flatten "
            "only")


def _line(error: Exception) -> str:
    """File and line of the innermost frame outside of this package, as " (FILE, line N)"."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _OURS.isdisjoint(Path(f.filename).parents)]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
