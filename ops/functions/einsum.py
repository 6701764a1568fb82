"""``gt.einsum``: products and sums over trailing axes that are named by letters.

It is made of products with matrices where one factor has no rows, and of elementwise products and
sums elsewhere, so that kernels compile it and the planner moves it to the ends of edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from graphtheta.base.wording import shown
from graphtheta.errors import ShapeError, UserFunctionError

from ..autodiff.primitive import defvjp, primitive
from ..autodiff.refusal import operation
from ..autodiff.traits import Traits
from .dense import matmul
from .elementwise import mul
from .index import getitem
from .rows import as_floats, has_rows, trailing
from .shape import reshape, stack, sum


def _inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argsort(order))


@primitive(
    "permute",
    traits=Traits(
        work="none",
        structural=True,
        linear=(0,),
        kept_axes=lambda x, y, static: next(
            (i for i, k in enumerate(static["order"]) if i != k), len(x)
        ),
    ),
)
def permute_p(x: Any, *, keep: int, order: tuple[int, ...]) -> Any:
    """Trailing axes in another order, after the first ``keep``."""
    return np.transpose(x, (*range(keep), *(keep + i for i in order)))


defvjp(
    permute_p,
    x=lambda g, y, x, keep, order: permute_p.forward(g, keep=keep, order=_inverse(order)),
)


@dataclass(frozen=True)
class _Term:
    """A value with a letter for each trailing axis."""

    letters: str
    value: Any

    @property
    def sizes(self) -> dict[str, int]:
        """Length of each axis."""
        return dict(zip(self.letters, trailing(self.value), strict=True))

    def arranged(self, letters: str) -> _Term:
        """With the axes in another order."""
        if letters == self.letters:
            return self
        order = tuple(self.letters.index(a) for a in letters)
        keep = int(has_rows(self.value))
        return _Term(letters, permute_p(self.value, keep=keep, order=order))

    def summed(self, needed: set[str]) -> _Term:
        """With the sums over the axes that are not needed."""
        axes = tuple(i - len(self.letters) for i, a in enumerate(self.letters) if a not in needed)
        if not axes:
            return self
        return _Term("".join(a for a in self.letters if a in needed), sum(self.value, axes))

    def shaped(self, shape: list[int]) -> Any:
        """The value in another trailing shape."""
        return self.value if list(trailing(self.value)) == shape else reshape(self.value, *shape)


@operation
def einsum(subscripts: str, *values: Any) -> Any:
    """Products of values, summed over axes that are named by letters, as in NumPy, within each row.

    ``einsum("...hd,hde->...he", x, w)`` multiplies the vector of each head by a matrix. ``...``
    stands for the rows; a letter may stand in its place, which is then the first of every value
    with rows and of the result: ``"nhd,hde->nhe"``.

    Args:
        subscripts: A letter for each axis of each value, separated by commas, and those of the
            result after ``->``.
        *values: Row values, parameters and constants, multiplied from the left to the right;
            integers and masks are converted to floats.

    Returns:
        The axes of the result in its order.

    Raises:
        UserFunctionError: The sum would mix rows, or the subscripts are not understood.
        ShapeError: A value has other axes than its letters, or a letter stands for two lengths.
    """
    parts, result = _read(subscripts, values)
    terms = []
    sizes: dict[str, int] = {}
    arrays = (x if hasattr(x, "dtype") else np.asarray(x) for x in values)
    for letters, x in zip(parts, arrays, strict=True):
        if len(letters) != len(trailing(x)):
            raise ShapeError(
                f"einsum: {subscripts!r} names {len(letters)} trailing axes of a value with"
                f" {len(trailing(x))}, {list(trailing(x))}"
            )
        term = _Term(letters, as_floats(x))
        for letter, size in term.sizes.items():
            if sizes.setdefault(letter, size) != size:
                raise ShapeError(
                    f"einsum: {letter!r} in {subscripts!r} stands for axes of {sizes[letter]} and"
                    f" {size} numbers"
                )
        terms.append(term)
    total, *others = terms
    for i, other in enumerate(others):
        later = "".join(term.letters for term in others[i + 1 :])
        total = _product(total, other, {*result, *later})
    return total.summed({*result}).arranged(result).value


def _product(a: _Term, b: _Term, needed: set[str]) -> _Term:
    """The product of two values, summed over the axes that are not needed afterwards."""
    a, b = a.summed(needed | {*b.letters}), b.summed(needed | {*a.letters})
    if has_rows(b.value) and not has_rows(a.value):
        a, b = b, a
    shared = [x for x in a.letters if x in b.letters]
    inner = "".join(x for x in shared if x not in needed)
    both = "".join(x for x in shared if x in needed)
    left = "".join(x for x in a.letters if x not in shared)
    right = "".join(x for x in b.letters if x not in shared)
    sizes = a.sizes | b.sizes

    def shape(letters: str) -> list[int]:
        return [sizes[x] for x in letters]

    # of an axis without numbers there is no product to stack
    if inner and right and not has_rows(b.value) and 0 not in shape(both):
        k = prod(shape(inner))
        x = a.arranged(both + left + inner)
        w = b.arranged(both + inner + right)
        if not both:
            return _Term(
                left + right, matmul(x.shaped([*shape(left), k]), w.shaped([k, *shape(right)]))
            )
        n = prod(shape(both))
        x = x.shaped([n, *shape(left), k])
        w = w.shaped([n, k, *shape(right)])
        rest = [slice(None)] * (len(left) + 1)
        each = [matmul(getitem(x, (..., i, *rest)), getitem(w, i)) for i in range(n)]
        stacked = _Term("", stack(each, -len(left + right) - 1))
        letters = both + left + right
        return _Term(letters, stacked.shaped(shape(letters)))
    letters = both + left + right + inner

    def spread(term: _Term) -> Any:
        """The value with all axes, of length 1 where it has none."""
        ordered = term.arranged("".join(x for x in letters if x in term.letters))
        return ordered.shaped([sizes[x] if x in term.letters else 1 for x in letters])

    y = mul(spread(a), spread(b))
    return _Term(letters, y).summed({*both, *left, *right})


def _read(subscripts: Any, values: tuple[Any, ...]) -> tuple[list[str], str]:
    """The letters of the trailing axes of each value, and of the result.

    Raises:
        UserFunctionError: They are not understood, or would mix rows.
    """
    if not isinstance(subscripts, str) or subscripts.count("->") != 1:
        raise UserFunctionError(
            f"einsum: got the subscripts {shown(subscripts)}; give the axes of each value and,"
            " after ->, those of the result, such as '...hd,hde->...he'"
        )
    before, _, result = subscripts.replace(" ", "").partition("->")
    parts = before.split(",")
    if len(parts) != len(values):
        raise UserFunctionError(
            f"einsum: {subscripts!r} has the axes of {len(parts)} values, and {len(values)} were"
            " given"
        )
    given = [has_rows(x) for x in values]
    of_rows = {_first(part) for part, rows in zip(parts, given, strict=True) if rows}
    if len(of_rows) > 1:
        raise UserFunctionError(
            f"einsum: in {subscripts!r} the rows of two values have different names, so that each"
            " row would meet all others; rows are nodes or edges, which einsum does not mix: begin"
            " each value that has rows with ..."
        )
    row = next(iter(of_rows), None)
    letters = [
        part[len(row) :] if row and rows else part for part, rows in zip(parts, given, strict=True)
    ]
    if row is not None:
        if _first(result) != row:
            raise UserFunctionError(
                f"einsum: the result of {subscripts!r} does not begin with the rows, {row}, so that"
                " einsum would add or move them; rows stay where they are, and gt.graph_sum adds"
                " over all of them"
            )
        result = result[len(row) :]
    for part in (*letters, result):
        if not part.isalpha() and part:
            raise UserFunctionError(
                f"einsum: {subscripts!r} has {part!r}; axes are letters, and ... stands for the"
                " rows of a value that has rows"
            )
        if row is not None and row.isalpha() and row in part:
            raise UserFunctionError(
                f"einsum: in {subscripts!r}, {row!r} names the rows and another axis; rows are"
                " nodes or edges, which einsum does not mix"
            )
        if len(set(part)) < len(part):
            raise UserFunctionError(
                f"einsum: {subscripts!r} names an axis twice in {part!r}; diagonals are taken by an"
                " index"
            )
    unknown = {*result} - {*"".join(letters)}
    if unknown:
        raise UserFunctionError(
            f"einsum: the result of {subscripts!r} has {', '.join(sorted(unknown))}, which no value"
            " has"
        )
    return letters, result


def _first(part: str) -> str:
    """The name of the rows of a value that has them: ``...`` or a letter."""
    return "..." if part.startswith("...") else part[:1]
