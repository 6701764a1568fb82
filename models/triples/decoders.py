"""Scores of triples: layers without a sum that read both ends of a pair and ``edge.relation``.

A higher score means a likelier triple. Complex vectors of k numbers are stored as 2k real ones, the
real parts first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphtheta.base.arguments import checked
from graphtheta.errors import ConfigError

from ...engine.layer.layer import Layer
from ...ops.autodiff import init
from ...ops.autodiff.tape import Parameter
from ...ops.functions.elementwise import absolute, cos, sin, sqrt, square
from ...ops.functions.embedding import embedding
from ...ops.functions.shape import sum

# added below a root, so that its gradient at zero is finite
TINY = 1e-20


class DistMult(Layer):
    """Sum of h_i r_i t_i, [pairs]; https://arxiv.org/abs/1412.6575, equation 3.

    Args:
        width: Width of the node values.
        relations: Number of relations.
    """

    sum = None

    @checked
    def __init__(self, width: int, relations: int):
        self.relation = vectors(relations, width)

    def gather(self, edge: Any) -> Any:
        return sum(edge.src.h * embedding(self.relation, edge.relation) * edge.dst.h)


class TransE(Layer):
    """Margin minus the distance of h + r and t, [pairs]; https://papers.nips.cc/paper/5071, section
    2.

    Args:
        width: Width of the node values.
        relations: Number of relations.
        margin: The score of a triple without distance.
        norm: 1 or 2, the norm of the distance.

    Raises:
        ConfigError: Another norm.
    """

    sum = None

    @checked
    def __init__(self, width: int, relations: int, margin: float = 9.0, norm: int = 1):
        if norm not in (1, 2):
            raise ConfigError(f"TransE: norm is {norm}; choose 1 or 2")
        self.relation = vectors(relations, width)
        self.margin = margin
        self.norm = norm

    def gather(self, edge: Any) -> Any:
        off = edge.src.h + embedding(self.relation, edge.relation) - edge.dst.h
        return self.margin - (
            sum(absolute(off)) if self.norm == 1 else sqrt(sum(square(off)) + TINY)
        )


class ComplEx(Layer):
    """Real part of the sum of h_i r_i conj(t_i), [pairs]; https://arxiv.org/abs/1606.06357,
    equation 11.

    Args:
        width: Width of the node values, twice the number of complex numbers.
        relations: Number of relations.

    Raises:
        ConfigError: The width is odd.
    """

    sum = None

    @checked
    def __init__(self, width: int, relations: int):
        self.k = half(width, "ComplEx")
        self.real = vectors(relations, self.k)
        self.imaginary = vectors(relations, self.k)

    def gather(self, edge: Any) -> Any:
        a, b = turned(
            edge,
            self.k,
            embedding(self.real, edge.relation),
            embedding(self.imaginary, edge.relation),
        )
        return sum(a * edge.dst.h[..., : self.k] + b * edge.dst.h[..., self.k :])


class RotatE(Layer):
    """Margin minus the sum of |h_i r_i - t_i| with |r_i| = 1, [pairs];
    https://arxiv.org/abs/1902.10197, equation 4.

    The distance is a sum of moduli, as in the authors' code.

    Args:
        width: Width of the node values, twice the number of complex numbers.
        relations: Number of relations; each has a phase for each complex number, in radians.
        margin: The score of a triple without distance.

    Raises:
        ConfigError: The width is odd.
    """

    sum = None

    @checked
    def __init__(self, width: int, relations: int, margin: float = 9.0):
        self.k = half(width, "RotatE")
        self.phase = Parameter(init.uniform((relations, self.k), np.pi))
        self.phase.decay = 0.0
        self.margin = margin

    def gather(self, edge: Any) -> Any:
        a, b = turned(
            edge,
            self.k,
            embedding(cos(self.phase), edge.relation),
            embedding(sin(self.phase), edge.relation),
        )
        a = a - edge.dst.h[..., : self.k]
        b = b - edge.dst.h[..., self.k :]
        return self.margin - sum(sqrt(square(a) + square(b) + TINY))


# by name in jobs
TRIPLE_DECODERS: dict[str, Callable[..., Layer]] = {
    "distmult": DistMult,
    "transe": TransE,
    "complex": ComplEx,
    "rotate": RotatE,
}


def vectors(relations: int, width: int) -> Parameter:
    """A vector for each relation, with initial entries of the size of learned node features."""
    return Parameter(init.normal((relations, width), width**-0.5))


def half(width: int, name: str) -> int:
    """Number of complex numbers in a width.

    Raises:
        ConfigError: It is odd.
    """
    if width % 2:
        raise ConfigError(
            f"{name} reads node values as complex numbers, the real parts first; their width is"
            f" {width}, give an even one"
        )
    return width // 2


def turned(edge: Any, k: int, real: Any, imaginary: Any) -> tuple[Any, Any]:
    """Real and imaginary part of the product of the head and a relation."""
    a = edge.src.h[..., :k]
    b = edge.src.h[..., k:]
    return a * real - b * imaginary, a * imaginary + b * real
