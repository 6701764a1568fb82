"""Adds the name of the user's function, the line and a remedy to errors raised inside it."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from types import TracebackType

from graphtheta.errors import CommError, GraphThetaError, UserFunctionError, annotate

# names of our types in the messages of Python's own errors
_SYMBOL = re.compile(r"\b(Expr|Var|Deferred|Totals)\b")
_OURS = {Path(__file__).parents[2] / folder for folder in ("ops", "engine", "models")}


class naming:
    """A ``with`` block that names the user's function in errors raised inside it, unless a function
    inside it is named already.

    Errors of this package get a prefix to their message; others get a note.
    """

    __slots__ = ("_where",)

    def __init__(self, where: str):
        self._where = where

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, CommError):
            _name(self._where, error)


def _name(where: str, error: Exception) -> None:
    if isinstance(error, GraphThetaError):
        if error.located or where in str(error):
            error.located = True
            return
        named = type(error)(f"{where}: {error}")
        named.located = True
        raise named from error
    if isinstance(error, (TypeError, AttributeError)) and (symbol := _SYMBOL.search(str(error))):
        refused = UserFunctionError(f"{where}{_line(error)}: {error}; {_advice(symbol[0])}")
        refused.located = True
        raise refused from error
    if not getattr(error, "located", False):
        annotate(error, f"raised in {where}")
        error.located = True  # type: ignore[attr-defined]


def _advice(value: str) -> str:
    if value == "Totals":
        return (
            "the layer's sum names several aggregators, so there is one total for each: take them"
            " by name, such as total.mean, or join them with gt.concat([total.mean, total.max])"
        )
    return (
        "values of nodes and edges support the functions of gt and + - * / ** @, indexing, .sum"
        " .mean .max .min .reshape .flatten only"
    )


def _line(error: Exception) -> str:
    """File and line of the innermost frame outside of this package, as " (FILE, line N)"."""
    frames = [
        f
        for f in traceback.extract_tb(error.__traceback__)
        if _OURS.isdisjoint(Path(f.filename).parents)
    ]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
