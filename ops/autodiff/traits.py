"""What an operation declares itself to be. The planner, the cost model and the generators of code read traits, not names."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Traits:
    """Facts about an operation that hold for all arguments and all edges.

    Attributes:
        work: Floating-point operations: one for each number of the "result" or of the "argument", two for each multiplication of
            a "contraction", or "none".
        structural: The result holds the numbers of the first argument at other positions.
        free: A loop over edges gets it for nothing; structural operations are free.
        contraction: It is the product of the last axis of its first argument with the first axis of its second.
        linear: Positions of the arguments in which it is linear while the others are fixed.
        additive: It is linear in all its arguments together, number by number.
        kept_axes: How many leading axes stay as they are, of (shape of the first argument, shape of the result, keywords), both
            without rows; None if that is not known.
        neutral: The second argument that changes nothing, 0 or 1.
        commutative: Its two arguments may be exchanged.
        involution: Twice is nothing.
        identity: Whether it changes nothing where it changes neither shape nor type, of its keywords.
        joined: The keywords that do two in a row at once, of those of the inner and the outer one.
        constant: The number that all of the result are; it reads no more than the shape of its argument.
        random: It draws for each row while training, and changes nothing otherwise. Its arguments are the value, the ids of rows and
            the key of the draws; its keywords are rate and site.
        lazy: How lazy elementwise fusion runs an operation without a scalar form: "axes" (adds trailing axes of length 1), "draw"
            or "total" (sums over axes).
        sign: What is written between arguments, such as "+".
        written: How it is written, of the texts of its arguments and its keywords.
    """

    work: str = "result"
    structural: bool = False
    free: bool = False
    contraction: bool = False
    linear: tuple[int, ...] = ()
    additive: bool = False
    kept_axes: Callable[[Shape, Shape, dict[str, Any]], int] | None = None
    neutral: int | None = None
    commutative: bool = False
    involution: bool = False
    identity: Callable[[dict[str, Any]], bool] | None = None
    joined: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]] | None = None
    constant: int | None = None
    random: bool = False
    lazy: str = ""
    sign: str = ""
    written: Callable[[list[str], dict[str, Any]], str] | None = None

    def keeps(self, n: int, argument: Shape, result: Shape, static: dict[str, Any]) -> bool:
        """Whether the first n axes after the rows stay as they are."""
        return self.kept_axes is not None and n <= self.kept_axes(argument, result, static)


def always(static: dict[str, Any]) -> bool:
    """For ``identity``: whatever the keywords are."""
    return True


def all_axes(argument: Shape, result: Shape, static: dict[str, Any]) -> int:
    """For ``kept_axes`` of what works number by number."""
    return max(len(argument), len(result))


def first(texts: list[str], static: dict[str, Any]) -> str:
    """For ``written``: nothing but the first argument."""
    return texts[0]


PLAIN = Traits()
