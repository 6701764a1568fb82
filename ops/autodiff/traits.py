"""Traits: what an operation declares about itself.

The planner, the cost model and the code generators read traits, not names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Traits:
    """Facts about an operation that hold for all arguments and all edges.

    Attributes:
        work: Floating-point operations: one for each number of the "result" or of the "argument",
            two for each multiplication of a "contraction", or "none".
        structural: The result holds the numbers of the first argument at other positions.
        free: It costs nothing in a loop over edges; structural operations are free.
        contraction: It is the product of the last axis of its first argument with the first axis of
            its second. It takes rows that are read a block at a time (``blocks_of``), and its
            gradients are arrays that nobody else reads.
        linear: Positions of the arguments in which it is linear while the others are fixed.
        additive: It is linear in all its arguments together, number by number.
        kept_axes: A function (shape of the first argument, shape of the result, keywords) ->
            number of leading axes that stay as they are; shapes without rows. None if unknown.
        neutral: The neutral element of its second argument, 0 or 1.
        commutative: Its two arguments may be exchanged.
        involution: Applied twice it is the identity.
        identity: A function of the keywords: whether it is the identity for equal shape and type.
        joined: A function of the keywords of an inner and an outer application: the keywords of
            one application that equals both.
        constant: The value of all numbers of the result; only the shape of its argument is read.
        random: It draws for each row in training and is the identity otherwise. Its arguments are
            the value, the ids of rows and the key of the draws; its keywords are rate and site
            (call site).
        takes: What it computes: "floats", into which integers and masks are converted; "numbers",
            masks being converted into integers; or "anything". It may be a function of the
            keywords.
        integers: Its scalar form takes integers of 32 or 64 bits as well.
        lazy: How lazy elementwise fusion runs an operation without a scalar form: "axes" (adds
            trailing axes of length 1), "draw" or "total" (sums over axes).
        sign: The operator printed between its arguments, such as "+".
        singular: Positions of the arguments for some finite numbers of which the result, or its
            slope, is infinite or no number.
        part: Of an operation whose result is a part of its argument, a function of the keywords:
            the index of that part, or None if a number is in it twice.
        written: A function of the texts of its arguments and of its keywords: how it is printed.
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
    takes: str | Callable[[dict[str, Any]], str] = "anything"
    integers: bool = False
    lazy: str = ""
    sign: str = ""
    singular: tuple[int, ...] = ()
    part: Callable[[dict[str, Any]], Any] | None = None
    written: Callable[[list[str], dict[str, Any]], str] | None = None

    def taken(self, static: dict[str, Any]) -> str:
        """``takes`` for these keywords."""
        return self.takes if isinstance(self.takes, str) else self.takes(static)

    def keeps(self, n: int, argument: Shape, result: Shape, static: dict[str, Any]) -> bool:
        """Whether the first n axes after the rows stay as they are."""
        return self.kept_axes is not None and n <= self.kept_axes(argument, result, static)


def always(static: dict[str, Any]) -> bool:
    """For ``identity``: with any keywords."""
    return True


def all_axes(argument: Shape, result: Shape, static: dict[str, Any]) -> int:
    """For ``kept_axes`` of elementwise operations."""
    return max(len(argument), len(result))


def first(texts: list[str], static: dict[str, Any]) -> str:
    """For ``written``: the first argument alone."""
    return texts[0]


PLAIN = Traits()
