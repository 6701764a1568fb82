"""Draws programs: layers of all operations on graphs with all kinds of nodes, from a seed.

Terms are made from the bottom up and evaluated eagerly at once, so that a drawn operation is kept
only if its numbers are finite, not large, and away from kinks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import prod
from random import Random
from typing import Any

import eager
import numpy as np
from compare import MARGIN, Unfit, checked
from program import (
    STORED,
    Drawn,
    LayerProgram,
    Program,
    Term,
    body_text,
    class_text,
    parameters_text,
)

SUMS = ("sum", "mean", "max", "min", "var", "std", "median", "gt.TopK(2)", "gt.TopK(3)")
# those in which equal messages decide nothing
SMOOTH = ('"sum"', '"mean"', '"var"', '"std"')
# what numbers may become, at most numbers of an edge, and how often a draw is tried again
LARGEST = 12.0
WIDEST = 96
ATTEMPTS = 40


@dataclass
class Entry:
    """A term with its value, and whether it is made of the largest of numbers of which several are
    equal.
    """

    term: Term
    value: eager.Value
    tied: bool = False

    @property
    def dims(self) -> tuple[int, ...]:
        return self.value.dims


class Rejected(Exception):
    """A drawn operation does not fit."""


class Pool:
    """The terms of a stage that exist so far, and operations that make more of them.

    Args:
        rng: Source of all choices.
        scope: The names of leaves: ``edge`` or ``node``, ``total``, ``self``, ``data``.
        drawer: Owner of the arrays.
    """

    def __init__(self, rng: Random, scope: dict[str, Any], drawer: Drawer):
        self.rng = rng
        self.scope = {"gt": eager, **scope}
        self.drawer = drawer
        self.without = drawer.without
        self.entries: list[Entry] = []

    def leaf(self, text: str) -> Entry:
        """Add a leaf."""
        entry = Entry(Term(text), eval(text, self.scope))
        self.entries.append(entry)
        return entry

    def make(self, text: str, *args: Entry) -> Entry:
        """An operation on entries, if its numbers fit."""
        names = [f"a{i}" for i in range(len(args))]
        scope = self.scope | dict(zip(names, (a.value for a in args), strict=True))
        eager.now.margin = np.inf
        eager.now.tied = False
        try:
            with np.errstate(all="ignore"):
                x = eval(text.format(*names), scope)
        except (ValueError, TypeError, IndexError, ZeroDivisionError) as error:
            raise Rejected(str(error)) from None
        finite = x.x[np.isfinite(x.x)]
        if x.kind == "f" and not self.drawer.special and finite.size < x.x.size:
            raise Rejected("not finite")
        if x.kind == "f" and np.abs(finite).max(initial=0) > LARGEST:
            raise Rejected("large")
        if x.kind in "iu" and np.abs(x.x).max(initial=0) > 2**40:
            raise Rejected("large")
        if (
            prod(x.dims) > max(WIDEST, 2 * self.drawer.widest)
            or prod(x.dims) == 0
            or len(x.dims) > 4
        ):
            raise Rejected("wide")
        if eager.now.margin < 10 * MARGIN[self.drawer.dtype]:
            raise Rejected("a kink")
        return Entry(Term(text, tuple(a.term for a in args)), x, any(a.tied for a in args))

    def add(self, text: str, *args: Entry) -> Entry:
        """The same, kept for later operations."""
        entry = self.make(text, *args)
        self.entries.append(entry)
        return entry

    def pick(
        self, kinds: str = "f", fits: Callable[[Entry], bool] | None = None, rows: bool = True
    ) -> Entry:
        """One of the entries of some kinds; later ones more often."""
        found = [
            e
            for e in self.entries
            if e.value.kind in kinds and (e.value.rows or not rows) and (fits is None or fits(e))
        ]
        if not found:
            raise Rejected("nothing fits")
        return found[max(self.rng.randrange(len(found)), self.rng.randrange(len(found)))]

    def parameter(self, shape: tuple[int, ...]) -> Entry:
        """A parameter of a shape, new or used already, a part of one, or a function of one."""
        if self.rng.random() < 0.1:
            # its numbers are not beside each other in memory
            return self.make("{0}[..., 0]", self.drawer.parameter((*shape, 2)))
        known = [e for e in self.drawer.parameters if e.dims == shape]
        if known and self.rng.random() < 0.6:
            chosen = self.rng.choice(known)
        else:
            chosen = self.drawer.parameter(shape)
        if self.rng.random() < 0.8:
            return chosen
        # a value without rows, to which the parameter may lead by several ways
        texts = (
            "gt.tanh({0})",
            "({0} * gt.sin({0}))",
            "({0} * 0.5)",
            "({0} + gt.square({0}) * 0.25)",
            "(-{0})",
            *(["{0}[..., ::-1]"] if shape else []),
        )
        return self.make(self.rng.choice(texts), chosen)

    def grow(self, steps: int) -> None:
        """Draw operations."""
        names = [name for name in OPERATIONS if name not in self.without]
        weights = [OPERATIONS[name][0] for name in names]
        done, tries = 0, 0
        while done < steps and tries < ATTEMPTS * steps:
            tries += 1
            try:
                OPERATIONS[self.rng.choices(names, weights)[0]][1](self)
                done += 1
            except Rejected:
                continue


# ---- operations

Operation = Callable[[Pool], Any]
OPERATIONS: dict[str, tuple[float, Operation]] = {}


def operation(weight: float, name: str = "") -> Callable[[Operation], Operation]:
    """Register an operation; a search may leave it out by its name."""

    def register(f: Operation) -> Operation:
        OPERATIONS[name or f.__name__] = (weight, f)
        return f

    return register


@operation(8)
def unary(p: Pool) -> None:
    x = p.pick()
    p.add(
        p.rng.choice(
            (
                "gt.tanh({0})",
                "gt.sigmoid({0})",
                "gt.softplus({0})",
                "gt.gelu({0})",
                "gt.silu({0})",
                "gt.elu({0})",
                "gt.elu({0}, 0.5)",
                "gt.leaky_relu({0})",
                "gt.leaky_relu({0}, 0.25)",
                "gt.relu({0})",
                "gt.sin({0})",
                "gt.cos({0})",
                "gt.square({0})",
                "gt.absolute({0})",
                "(-{0})",
            )
        ),
        x,
    )


@operation(3)
def guarded(p: Pool) -> None:
    """Functions that need a domain, which is made."""
    x = p.pick()
    y = p.pick()
    p.add(
        *p.rng.choice(
            (
                ("gt.exp(-gt.absolute({0}))", x),
                ("gt.exp({0} * 0.25)", x),
                ("gt.log(gt.absolute({0}) + 0.5)", x),
                ("gt.sqrt(gt.square({0}) + 0.5)", x),
                ("({0} / (gt.absolute({1}) + 0.5))", x, y),
                ("(1.0 / (gt.absolute({0}) + 0.5))", x),
                ("({0} / (gt.square({1}) + 1))", x, y),
            )
        )
    )


@operation(2)
def power_of_number(p: Pool) -> None:
    x = p.pick()
    if p.rng.random() < 0.6:
        p.add(f"({{0}} ** {p.rng.choice((1, 2, 3, 2.0, 3.0, 1.0, 4))})", x)
    else:
        p.add(f"((gt.absolute({{0}}) + 0.5) ** {p.rng.choice((0.5, 1.5, -1, -0.5, 2.5, -2.0))})", x)


@operation(0.6)
def power_zero(p: Pool) -> None:
    p.add(f"({{0}} ** {p.rng.choice((0, 0.0))})", p.pick())


@operation(1.5)
def power_of_value(p: Pool) -> None:
    x = p.pick()
    exponent = (
        p.pick() if p.rng.random() < 0.4 else p.parameter(p.rng.choice(((), x.dims, x.dims[-1:])))
    )
    p.add("((gt.absolute({0}) + 0.5) ** {1})", x, exponent)


@operation(0.8)
def power_of_base(p: Pool) -> None:
    p.add(f"({p.rng.choice((2.0, 0.5, 2, 1.5))} ** {{0}})", p.pick())


@operation(1.5)
def clipped(p: Pool) -> None:
    p.add(
        p.rng.choice(
            ("gt.clip({0}, -0.53, 0.71)", "gt.clip({0}, None, 0.61)", "gt.clip({0}, -0.37, None)")
        ),
        p.pick(),
    )


@operation(9)
def binary(p: Pool) -> None:
    x = p.pick()
    y = p.pick(rows=p.rng.random() < 0.8)
    if p.rng.random() < 0.3:
        x, y = y, x
    p.add(
        p.rng.choice(
            (
                "({0} + {1})",
                "({0} - {1})",
                "({0} * {1})",
                "({0} * {1})",
                "gt.maximum({0}, {1})",
                "gt.minimum({0}, {1})",
            )
        ),
        x,
        y,
    )


@operation(4)
def with_number(p: Pool) -> None:
    x = p.pick()
    number = p.rng.choice((0, 1, 2, 0.5, -1.5, 3, 0.25, 1.0, 0.0))
    text = p.rng.choice(
        (
            "({0} + {c})",
            "({c} - {0})",
            "({0} * {c})",
            "({0} - {c})",
            "({c} + {0})",
            "gt.maximum({0}, {c})",
            "gt.minimum({c}, {0})",
        )
    )
    p.add(text.replace("{c}", str(number)), x)
    if number and p.rng.random() < 0.3:
        p.add(f"({{0}} / {number})", x)


@operation(5)
def with_parameter(p: Pool) -> None:
    x = p.pick()
    d = x.dims
    shapes = [
        d,
        d[-1:],
        (1,) * len(d),
        tuple(1 if i % 2 else n for i, n in enumerate(d)),
        (*d, 2),
        d[-2:],
    ]
    w = p.parameter(p.rng.choice(shapes))
    p.add(
        p.rng.choice(
            (
                "({0} * {1})",
                "({0} + {1})",
                "({1} - {0})",
                "({1} * {0})",
                "gt.maximum({0}, {1})",
                "({0} / (gt.square({1}) + 0.5))",
            )
        ),
        x,
        w,
    )


@operation(2.5)
def scalar_parameter(p: Pool) -> None:
    p.add(
        p.rng.choice(
            (
                "({0} * {1})",
                "({0} + {1})",
                "({1} - {0})",
                "gt.minimum({0}, {1})",
                "gt.where({0} > 0.1, {1}, {0})",
            )
        ),
        p.pick(),
        p.parameter(()),
    )


@operation(1.5)
def with_constant(p: Pool) -> None:
    x = p.pick()
    shape = p.rng.choice((x.dims, x.dims[-1:], ()))
    c = p.drawer.constant(shape, p.rng.choice(("grid", "positive", "constant")))
    p.add(p.rng.choice(("({0} * {1})", "({0} + {1})", "({1} - {0})", "gt.maximum({0}, {1})")), x, c)


@operation(5)
def product(p: Pool) -> None:
    x = p.pick(fits=lambda e: bool(e.dims))
    shape = p.rng.choice(
        ((), (), (2,), (1,), (3,), (p.drawer.width,), (p.drawer.heads, 2), (2, 1), p.drawer.shape())
    )
    w = p.parameter((x.dims[-1], *shape))
    text = p.rng.choice(("({0} @ {1})", "({0} @ {1})", "gt.matmul({0}, {1})"))
    made = p.add(text if prod(x.dims) < 9 else f"({text} * 0.25)", x, w)
    if p.rng.random() < 0.2:
        # the same matrix as a table
        index = p.add(f"gt.minimum(gt.maximum({{0}}, 0), {x.dims[-1] - 1})", p.pick("i"))
        p.add("({0} + gt.embedding({1}, {2}))", made, w, index)


@operation(4)
def joined_products(p: Pool) -> None:
    """Products that the planner may join with another one, or contract with a sum."""
    x = p.pick(fits=lambda e: 0 < len(e.dims) < 3)
    shape = p.rng.choice(
        (
            (p.rng.randrange(1, 4), p.rng.randrange(1, 4)),
            (p.rng.randrange(1, 4),),
            (2, p.drawer.width),
            (),
        )
    )
    y = p.add(
        "({0} @ {1})" if prod(x.dims) < 5 else "({0} @ ({1} * 0.125))",
        x,
        p.parameter((x.dims[-1], *shape)),
    )
    if p.rng.random() < 0.4 and y.dims:
        p.add(
            "({0} @ {1})", y, p.parameter((y.dims[-1], *p.rng.choice(((), (2,), (3,), shape[-1:]))))
        )
    elif y.dims:
        axis = p.rng.choice((-1, -1, -2, (-2, -1))) if len(y.dims) > 1 else -1
        c = p.parameter(
            p.rng.choice((y.dims[-1:], y.dims[-len(shape) :], (), (1,))) if shape else ()
        )
        product = p.rng.choice(("{0} * {1}", "{1} * {0}", "{0}"))
        p.add(f"({product}).sum({axis}{p.rng.choice(('', '', ', keepdims=True'))})", y, c)


@operation(5)
def vector_again(p: Pool) -> None:
    """A vector as the matrix of a product, and as a factor."""
    x = p.pick(fits=lambda e: len(e.dims) == 1)
    x = _of_several(p, x) if p.rng.random() < 0.7 else x
    text = p.rng.choice(("({0} * {1} + {0} @ {1})", "(({0} @ {1}) * ({0} - {1}))"))
    p.add(text, x, p.parameter(x.dims))


@operation(2)
def bias(p: Pool) -> None:
    x = p.pick(fits=lambda e: bool(e.dims) and prod(e.dims) < 40)
    o = p.rng.choice((1, 2, 3, p.drawer.width))
    p.add("gt.linear({0}, {1}, {2})", x, p.parameter((x.dims[-1], o)), p.parameter((o,)))


@operation(4)
def over_axes(p: Pool) -> None:
    x = p.pick(fits=lambda e: bool(e.dims))
    x = _of_several(p, x) if p.rng.random() < 0.4 else x
    n = len(x.dims)
    axis = p.rng.choice([-1, -1, -n, *([(-2, -1), tuple(range(-n, 0))] if n > 1 else [])])
    how = p.rng.choice(("sum", "mean", "max", "min"))
    keep = p.rng.choice(("", "", ", True"))
    text = p.rng.choice((f"gt.{how}({{0}}, {axis}{keep})", f"{{0}}.{how}({axis}{keep})"))
    p.add(text if how != "sum" or prod(x.dims) < 9 else f"({text} * 0.125)", x)


@operation(2)
def along_an_axis(p: Pool) -> None:
    """Sums along an axis, and deviations over axes."""
    x = p.pick(fits=lambda e: bool(e.dims) and prod(e.dims) < 40)
    x = _of_several(p, x) if p.rng.random() < 0.4 else x
    n = len(x.dims)
    if p.rng.random() < 0.5:
        p.add(f"(gt.cumsum({{0}}, {p.rng.choice((-1, -n))}) * 0.25)", x)
        return
    axis = p.rng.choice([-1, -n, *([(-2, -1)] if n > 1 else [])])
    p.add(f"gt.std({{0}}, {axis}{p.rng.choice(('', ', True'))})", x)


@operation(2)
def by_letters(p: Pool) -> None:
    """Sums of products of named axes, with a parameter or another value."""
    x = p.pick(fits=lambda e: 0 < len(e.dims) < 3 and prod(e.dims) < 40)
    x = _of_several(p, x) if p.rng.random() < 0.4 else x
    o = p.rng.choice((1, 2, p.drawer.width))
    if p.rng.random() < 0.3:
        y = p.pick(fits=lambda e: e.dims == x.dims)
        axes = "ab"[: len(x.dims)]
        result = p.rng.choice(("n", "na", f"n{axes[::-1]}"))
        p.add(f"(gt.einsum('n{axes},n{axes}->{result}', {{0}}, {{1}}) * 0.25)", x, y)
        return
    if len(x.dims) == 1:
        text, shape = p.rng.choice((("na,ao->no", (*x.dims, o)), ("na,oa->no", (o, *x.dims))))
    else:
        a, b = x.dims
        text, shape = p.rng.choice(
            (
                ("nab,abo->nao", (a, b, o)),
                ("nab,abo->nob", (a, b, o)),
                ("nab,boa->no", (b, o, a)),
                ("nab,ao->nbo", (a, o)),
            )
        )
    p.add(f"gt.einsum('{text}', {{0}}, {{1}})", x, p.parameter(shape))


def _of_several(p: Pool, x: Entry) -> Entry:
    """Something that no end of an edge has alone: it is not computed once for each node, but by
    kernels.
    """
    ends = lambda e: {t.text[:8] for t in e.term.below() if t.text.startswith("edge.")}
    other = p.pick(fits=lambda e: e.dims == x.dims and ends(e) != ends(x))
    return p.make(p.rng.choice(("({0} + {1})", "({0} - {1})")), x, other)


@operation(6)
def ties(p: Pool) -> None:
    """The largest of numbers of which several are equal: the first of them gets the gradient."""
    if "edge" in p.scope and p.rng.random() < 0.7:
        # what no end of an edge has alone is computed by kernels
        ends = (pool_leaf(p, f"edge.{end}.x") for end in ("src", "dst"))
        x = p.make(p.rng.choice(("({0} + {1})", "({0} - {1})")), *ends)
    else:
        x = p.pick(fits=lambda e: bool(e.dims) and e.value.exact and e.value.learned)
    axis = p.rng.choice((-1, -1, -len(x.dims), tuple(range(-len(x.dims), 0))))
    made = p.make(
        p.rng.choice(
            (
                f"{{0}}.max({axis})",
                f"{{0}}.min({axis})",
                f"gt.max(gt.square({{0}}), {axis})",
                f"gt.min(gt.square({{0}}), {axis}, True)",
            )
        ),
        x,
    )
    if not eager.now.tied:
        raise Rejected("no ties")
    made.tied = True
    p.entries.append(made)


@operation(1.5)
def own_softmax(p: Pool) -> None:
    x = p.pick(fits=lambda e: bool(e.dims))
    axis = p.rng.choice([-1, -len(x.dims), *([(-2, -1)] if len(x.dims) > 1 else [])])
    p.add(f"gt.softmax({{0}}, axis={axis})", x)


@operation(1.5)
def normalised(p: Pool) -> None:
    x = p.pick(fits=lambda e: bool(e.dims) and e.dims[-1] > 1)
    if p.rng.random() < 0.5:
        p.add("gt.layer_norm({0}, eps=0.1)", x)
    else:
        d = x.dims[-1:]
        p.add("gt.layer_norm({0}, {1}, {2}, eps=0.5)", x, p.parameter(d), p.parameter(d))


@operation(3)
def other_shape(p: Pool) -> None:
    x = p.pick("fib")
    size = prod(x.dims)
    d = x.dims
    shapes = [
        (size,),
        (1, *d),
        (*d, 1),
        (size, 1),
        d[::-1],
        *((k, size // k) for k in (2, 3) if size % k == 0),
    ]
    shape = p.rng.choice(shapes)
    p.add(
        p.rng.choice(
            (
                f"gt.reshape({{0}}, {', '.join(map(str, shape))})",
                f"{{0}}.reshape({', '.join(map(str, shape))})",
                "gt.flatten({0})",
                "{0}.flatten()",
                "{0}[..., None]",
            )
        ),
        x,
    )


@operation(5)
def part(p: Pool) -> None:
    x = p.pick("fib", lambda e: bool(e.dims))
    d = x.dims[-1]
    i, j = sorted((p.rng.randrange(d), p.rng.randrange(d)))
    numbers = [p.rng.randrange(d) for _ in range(p.rng.randrange(1, 4))]
    keys = [
        str(i),
        str(-1 - i),
        f"{i}:{j + 1}",
        f"{i}:",
        "::-1",
        "::2",
        str(numbers),
        "-1:",
        f"[{-1 - i}]",
    ]
    texts = [f"{{0}}[..., {p.rng.choice(keys)}]"]
    if p.rng.random() < 0.35:
        # each of these counts twice in the gradient
        p.add(f"{{0}}[..., {[*numbers, *numbers[::-1]]}]", x)
        return
    if len(x.dims) > 1:
        k = p.rng.randrange(x.dims[-2])
        texts += [
            f"{{0}}[..., {k}, :]",
            f"{{0}}[..., {k}:, {i}]",
            f"{{0}}[..., {numbers if max(numbers) < x.dims[-2] else [k]}, :]",
            f"{{0}}[:, {p.rng.randrange(x.dims[0])}]",
        ]
    p.add(p.rng.choice(texts), x)


@operation(3)
def joined(p: Pool) -> None:
    x = p.pick("fi", lambda e: bool(e.dims))
    axis = p.rng.choice((-1, -1, -len(x.dims)))
    like = lambda e: (
        len(e.dims) == len(x.dims)
        and all(
            a == b or i - len(x.dims) == axis
            for i, (a, b) in enumerate(zip(e.dims, x.dims, strict=True))
        )
    )
    others = [p.pick("f", like) for _ in range(p.rng.randrange(1, 3))]
    if p.rng.random() < 0.2:
        others.append(p.parameter(x.dims))
    parts = [x, *others]
    p.rng.shuffle(parts)
    p.add(f"gt.concat([{', '.join(f'{{{i}}}' for i in range(len(parts)))}], {axis})", *parts)


@operation(2)
def stacked(p: Pool) -> None:
    x = p.pick("fi")
    y = p.pick("f", lambda e: e.dims == x.dims)
    p.add(f"gt.stack([{{0}}, {{1}}], {p.rng.choice((-1, -1 - len(x.dims)))})", x, y)


@operation(1.5)
def concat_product(p: Pool) -> None:
    parts = [p.pick(fits=lambda e: len(e.dims) == 1) for _ in range(p.rng.randrange(2, 4))]
    x = p.add(f"gt.concat([{', '.join(f'{{{i}}}' for i in range(len(parts)))}])", *parts)
    p.add(
        "({0} @ {1} * 0.25)",
        x,
        p.parameter((x.dims[-1], *p.rng.choice(((), (2,), (1,), (p.drawer.width,), (2, 2))))),
    )


@operation(4)
def comparison(p: Pool) -> None:
    sign = p.rng.choice(("<", "<=", ">", ">="))
    x = p.pick()
    if p.rng.random() < 0.5:
        p.add(f"({{0}} {sign} {p.rng.choice((0.013, 0.31, -0.27))})", x)
    else:
        p.add(f"({{0}} {sign} {{1}})", x, p.pick(rows=p.rng.random() < 0.8))


@operation(2)
def integer_comparison(p: Pool) -> None:
    sign = p.rng.choice(("<", "<=", ">", ">=", "==", "!="))
    x = p.pick("i")
    if p.rng.random() < 0.5:
        p.add(f"({{0}} {sign} {p.rng.choice((0, 1, 2))})", x)
    else:
        p.add(f"({{0}} {sign} {{1}})", x, p.pick("i"))


@operation(1, "int_with_fraction")
def integer_with_fraction(p: Pool) -> None:
    """Integers that meet floats: all of these are floats."""
    x = p.pick("i", lambda e: np.abs(e.value.x).max(initial=0) < 50)
    p.add(
        p.rng.choice(
            (
                "({0} > 0.5)",
                "({0} * 0.5)",
                "({0} - 0.25)",
                "gt.maximum({0}, 1.5)",
                "gt.where({0} > 1, {0}, 0.5)",
                "({0} + 0.5)",
                "({0} ** -1.0)" if np.abs(x.value.x).min(initial=1) else "({0} + 0.125)",
            )
        ),
        x,
    )


@operation(1, "int_division")
def integer_division(p: Pool) -> None:
    x = p.pick("i", lambda e: np.abs(e.value.x).max(initial=0) < 50)
    if p.rng.random() < 0.5:
        p.add(f"({{0}} / {p.rng.choice((2, 4, 3))})", x)
    else:
        p.add(
            "({0} / (gt.absolute({1}) + 1))",
            x,
            p.pick("i", lambda e: np.abs(e.value.x).max(initial=0) < 50),
        )


@operation(1, "int_function")
def integer_function(p: Pool) -> None:
    x = p.pick("i", lambda e: np.abs(e.value.x).max(initial=0) < 3)
    p.add(
        p.rng.choice(
            (
                "gt.tanh({0})",
                "gt.exp({0})",
                "gt.sigmoid({0})",
                "gt.sqrt(gt.absolute({0}) + 1)",
                "gt.sin({0})",
                "gt.softplus({0})",
                "gt.gelu({0})",
                "gt.silu({0})",
                "gt.elu({0})",
                "gt.leaky_relu({0}, 0.25)",
                "gt.relu({0})",
                "gt.log(gt.square({0}) + 1)",
                "({0} ** 2)",
                "gt.clip({0}, -1, 1)",
                "gt.clip({0}, -0.5, 1.5)",
            )
        ),
        x,
    )


@operation(0.7, "int_mean")
def integer_over_axes(p: Pool) -> None:
    x = p.pick("ib", lambda e: bool(e.dims) and np.abs(e.value.x).max(initial=0) < 50)
    over = ("{0}.sum(-1)", "{0}.mean(-1)", "{0}.max(-1)", "{0}.min(-1)", "gt.cumsum({0})")
    p.add(p.rng.choice(over), x)


@operation(2)
def integers(p: Pool) -> None:
    x = p.pick("i")
    y = p.pick("ib") if p.rng.random() < 0.5 else x
    p.add(
        p.rng.choice(
            (
                "({0} + {1})",
                "({0} - {1})",
                "({0} * {1})",
                "gt.maximum({0}, {1})",
                "gt.minimum({0}, {1})",
                "gt.absolute({0})",
                "(-{0})",
                "gt.square({0})",
                "({0} + 1)",
                "({0} * 2)",
                "(3 - {0})",
                "gt.where({0} > 0, {0}, {1})",
                "gt.stop_gradient({0})",
            )
        ),
        x,
        y,
    )


@operation(1.5)
def integer_and_float(p: Pool) -> None:
    x = p.pick("ib", lambda e: np.abs(e.value.x.astype(float)).max(initial=0) < 50)
    p.add(
        p.rng.choice(
            (
                "({0} * {1})",
                "({0} + {1})",
                "({1} - {0})",
                "gt.maximum({0}, {1})",
                "gt.where({0} != 0, {1}, {0})",
            )
        ),
        x,
        p.pick(),
    )


@operation(2)
def masks(p: Pool) -> None:
    x = p.pick("b")
    y = p.pick("b")
    p.add(p.rng.choice(("({0} & {1})", "({0} | {1})", "(~{0})", "({0} & ~{1})")), x, y)


@operation(1)
def mask_arithmetic(p: Pool) -> None:
    x = p.pick("b")
    y = p.pick("b")
    p.add(p.rng.choice(("({0} + {1})", "({0} * {1})", "(1 - {0})", "({0} - {1})", "(-{0})")), x, y)


@operation(4)
def choice(p: Pool) -> None:
    mask = p.pick("bi" if p.rng.random() < 0.3 else "b")
    x = p.pick()
    y = p.pick(rows=p.rng.random() < 0.8)
    text = p.rng.choice(
        (
            "gt.where({0}, {1}, {2})",
            "gt.where({0}, {2}, {1})",
            "gt.where({0}, {1}, 0.5)",
            "gt.where({0}, 0, {1})",
        )
    )
    p.add(text, mask, x, y)


@operation(1, "cast_float")
def cast_to_float(p: Pool) -> None:
    x = p.pick("bif", lambda e: np.abs(e.value.x.astype(float)).max(initial=0) < 50)
    p.add(f'gt.cast({{0}}, "{p.drawer.dtype}")', x)


@operation(1, "cast_int")
def cast_to_integer(p: Pool) -> None:
    p.add(
        f'gt.cast({{0}} * {p.rng.choice((1.03, 1.93, 3.1))}, "{p.rng.choice(("int64", "int32"))}")',
        p.pick(),
    )


@operation(0.5, "cast_small")
def cast_to_small_integer(p: Pool) -> None:
    p.add(
        f'gt.cast({{0}}, "{p.rng.choice(("int8", "int16", "uint8"))}")',
        p.pick("f", lambda e: e.value.x.min(initial=0) >= 0),
    )


@operation(0.7, "cast_bool")
def cast_to_mask(p: Pool) -> None:
    p.add('gt.cast({0}, "bool")', p.pick("if"))


@operation(0.5, "cast_integers")
def cast_of_integer(p: Pool) -> None:
    p.add(
        f'gt.cast({{0}}, "{p.rng.choice(("int64", "int32"))}")',
        p.pick("ib", lambda e: np.abs(e.value.x.astype(float)).max(initial=0) < 2**30),
    )


@operation(3)
def table(p: Pool) -> None:
    index, k = _codes(p, lambda e: prod(e.dims) <= 4)
    p.add("gt.embedding({0}, {1})", p.parameter((k + p.rng.randrange(2), *p.drawer.shape())), index)


def _codes(p: Pool, fits: Callable[[Entry], bool]) -> tuple[Entry, int]:
    """An index, and how many rows a table for it has; nodes without edges have codes, too."""
    if p.rng.random() < 0.6:
        found = p.pick(
            "i",
            lambda e: (
                not e.term.args
                and e.term.text.rpartition(".")[2] in ("code", "flag", "pair", "reversed")
                and fits(e)
            ),
        )
        return found, 3 if found.term.text.endswith(("code", "pair")) else 2
    k = p.rng.choice((1, 2, 3, 4))
    return p.add(f"gt.minimum(gt.maximum({{0}}, 0), {k - 1})", p.pick("i", fits)), k


@operation(2, "own_table")
def own_table(p: Pool) -> None:
    """A table of a node: a column, or its product with matrices."""
    if "edge" not in p.scope:
        raise Rejected("no edges")
    index, need = _codes(p, lambda e: not e.dims)
    end = p.rng.choice(("src", "src", "dst"))
    if p.rng.random() < 0.5:
        columns = [
            e
            for e in p.entries
            if e.term.text.startswith(f"edge.{end}.")
            and e.value.kind == "f"
            and e.dims
            and e.dims[0] >= need
        ]
        if not columns:
            raise Rejected("no table")
        p.add("gt.embedding({0}, {1})", p.rng.choice(columns), index)
        return
    x = [
        e
        for e in p.entries
        if e.term.text.startswith(f"edge.{end}.") and e.value.kind == "f" and len(e.dims) == 1
    ]
    if not x:
        raise Rejected("no column")
    x0 = p.rng.choice(x)
    w = p.parameter(
        (
            x0.dims[0],
            need + p.rng.randrange(2),
            *p.rng.choice(((), (2,), (p.drawer.width,), (2, 2))),
        )
    )
    p.add("(gt.embedding({0} @ {1}, {2}) * 0.5)", x0, w, index)


@operation(1)
def stopped(p: Pool) -> None:
    p.add("gt.stop_gradient({0})", p.pick())


@operation(2)
def dropped(p: Pool) -> None:
    p.add(f"gt.dropout({{0}}, {p.rng.choice((0.5, 0.25, 0.75, 0.0))})", p.pick())


@operation(0.5)
def dropped_parameter(p: Pool) -> None:
    x = p.pick(fits=lambda e: bool(e.dims))
    p.add("({0} * gt.dropout({1}, 0.5))", x, p.parameter(x.dims))


@operation(5)
def gated(p: Pool) -> None:
    """Something narrow that both ends and the edge have a part in, times something wide."""
    wide = p.pick(fits=lambda e: len(e.dims) > 0)
    narrow = lambda e: len(e.dims) < len(wide.dims) and e.dims == wide.dims[: len(e.dims)]
    gate = p.pick(fits=narrow)
    if p.rng.random() < 0.7:
        gate = p.add(
            p.rng.choice(("({0} + {1})", "({0} * {1})", "({0} - {1})")), gate, p.pick(fits=narrow)
        )
    text = p.rng.choice(
        (
            "(gt.sigmoid({0}) * {1})",
            "({1} * gt.tanh({0}))",
            "(gt.leaky_relu({0}, 0.2) * {1})",
            "({1} / (gt.exp(-gt.square({0})) + 0.5))",
            "(gt.square(gt.sin({0})) * {1})",
        )
    )
    p.add(text, gate, wide)


@operation(6)
def attention(p: Pool) -> None:
    """A softmax over the in-edges that weighs something, mostly linearly."""
    if "edge" not in p.scope:
        raise Rejected("no edges")
    value = p.pick()
    narrow = lambda e: e.dims == value.dims[: len(e.dims)]
    score = p.pick(fits=narrow)
    if p.rng.random() < 0.5:
        score = p.add("gt.leaky_relu({0} + {1}, 0.2)", score, p.pick(fits=narrow))
    text = p.rng.choice(
        (
            "(gt.softmax({0}) * {1})",
            "(gt.softmax({0}) * {1})",
            "({1} * gt.softmax({0}))",
            "(gt.dropout(gt.softmax({0}), 0.5) * {1})",
            "(gt.softmax({0} * 2.0) * {1} * 0.5)",
            "(-gt.softmax({0}) * {1})",
            "gt.flatten(gt.softmax({0}) * {1})",
            "(gt.softmax({0}) * {1} + gt.softmax({0}) * 0.5)",
            "(gt.softmax({0}) * {1} + {1})",
            "({1} * 0.5 - gt.softmax({0}) * {1})",
            "((gt.softmax({0}) - 0.25) * {1})",
            "(gt.square(gt.softmax({0})) * {1})",
            "(gt.softmax({0}) / 2 * {1})",
        )
    )
    made = p.add(text, score, value)
    if p.rng.random() < 0.3 and made.dims:
        p.add(
            p.rng.choice(("{0}.mean(-1)", "{0}.sum(-1)", "({0} @ {1})")),
            made,
            p.parameter((made.dims[-1], 2)),
        )


@operation(1)
def edge_softmax(p: Pool) -> None:
    if "edge" not in p.scope:
        raise Rejected("no edges")
    p.add("gt.softmax({0})", p.pick())


# ---- programs


class Drawer:
    """Draws one program.

    Args:
        rng: Source of all choices.
        without: Names of operations that are left out, and "wide", "float32", "scale", "view",
            "decoder", "hub", "lazy", "stored".
        special: Whether NaN and infinities are among the inputs.
    """

    def __init__(self, rng: Random, without: Collection[str] = (), special: bool = False):
        self.rng = rng
        self.without = frozenset(without)
        self.special = special
        self.dtype = "float32" if rng.random() < 0.2 and "float32" not in without else "float64"
        lanes = 16 if self.dtype == "float32" else 8
        widths = (1, 2, 3, 4, 5, 6, lanes - 1, lanes, lanes + 1, 16, 17, 2 * lanes + 1, 33)
        self.width = rng.choice(widths)
        if rng.random() < 0.02 and "wide" not in without:
            self.width = 64 * lanes + rng.choice((0, 1, 5))
        self.heads = rng.choice((1, 2, 3, 4))
        self.features = rng.choice((1, 2, 3, 5))
        self.widest = self.width * self.heads
        self.arrays: dict[str, Drawn] = {}
        self.parameters: list[Entry] = []
        self.data: dict[str, Any] = {}
        self.count = 0

    def shape(self) -> tuple[int, ...]:
        """Trailing axes of a value."""
        w = self.width
        h = self.heads
        f = self.features
        return self.rng.choice(
            (
                (),
                (w,),
                (w,),
                (h,),
                (h, f),
                (h, w) if w * h < 40 else (w,),
                (h, 1),
                (1, f),
                (h, f, 2),
            )
        )

    def array(self, prefix: str, recipe: Drawn) -> str:
        """A new array; returns its name."""
        name = f"{prefix}{self.count}"
        self.count += 1
        self.arrays[name] = recipe
        self.data[name] = recipe.array(self.dtype)
        return name

    def parameter(self, shape: tuple[int, ...]) -> Entry:
        """A new parameter of the layer that is drawn."""
        name = self.array("p", Drawn(shape, seed=self.rng.randrange(10**6)))
        entry = Entry(Term(f"self.{name}"), eager.Parameter(self.data[name]))
        self.parameters.append(entry)
        return entry

    def constant(self, shape: tuple[int, ...], style: str) -> Entry:
        """A new constant array."""
        most = self.rng.choice((0, 1, 0.5))
        name = self.array("c", Drawn(shape, style, self.rng.randrange(10**6), most=most))
        return Entry(Term(f'data["{name}"]'), eager.value(self.data[name]))

    def program(self) -> Program:
        """The program; it may turn out not to fit."""
        rng = self.rng
        n, src, dst = self.graph()
        m = len(src)
        seed = lambda: rng.randrange(10**6)
        d = rng.choice((1, 2, 3, 4, self.width if self.width < 40 else 3))
        style = lambda: "special" if self.special else rng.choice(("grid", "coarse", "few"))
        stored = ""
        if rng.random() < 0.2 and not self.special and "stored" not in self.without:
            stored = rng.choice(STORED)
        given = {"x": Drawn((n, d), "coarse" if stored == "int8" else style(), seed())}
        if rng.random() < 0.7:
            given["attr"] = Drawn((m, rng.choice((1, 2, 3))), style(), seed())
        if rng.random() < 0.4:
            given["weight"] = Drawn((m,), "positive", seed())
        if rng.random() < 0.2 and "view" not in self.without:
            given["kept"] = Drawn((m,), "most", seed(), "bool")
        if rng.random() < (0.5 if "kept" in given else 0.1) and "scale" not in self.without:
            given["scale"] = Drawn((m,), "positive", seed())
        if rng.random() < 0.1 and "view" not in self.without:
            given["seen"] = Drawn((n,), "most", seed(), "bool")
        for kind, rows in (("node", n), ("edge", m)):
            given[f"{kind}.code"] = Drawn(
                (rows,), "codes", seed(), rng.choice(("int32", "int64")), 3
            )
            given[f"{kind}.signed"] = Drawn(
                (rows,), "signed", seed(), rng.choice(("int32", "int64"))
            )
            given[f"{kind}.flag"] = Drawn((rows,), "mask", seed(), "bool")
            given[f"{kind}.real"] = Drawn((rows,), seed=seed())
            given[f"{kind}.pair"] = Drawn((rows, 2), "codes", seed(), "int64", 3)
            given[f"{kind}.reals"] = Drawn((rows, 3), seed=seed())
            given[f"{kind}.time"] = Drawn((rows,), "times", seed(), "int64")
        self.arrays |= given
        self.data |= {name: recipe.array(self.dtype) for name, recipe in given.items()}
        # whether a dropped NaN is 0 depends on the back end
        self.training = rng.random() < 0.7 and not self.special
        state = eager.begin(False)
        value = lambda x, learned=False: eager.Value(
            x.astype(np.int32) if x.dtype == bool else x, True, exact=True, learned=learned
        )
        part = lambda kind: {
            name.partition(".")[2]: value(self.data[name])
            for name in given
            if name.startswith(kind)
        }
        edges = part("edge.") | {"weight": value(self.data.get("weight", np.ones(m)))}
        if "attr" in given:
            edges["attr"] = value(self.data["attr"], True)
        graph = eager.Graph(
            n,
            np.array(src, np.int64),
            np.array(dst, np.int64),
            part("node.") | {"x": value(self.data["x"], not stored)},
            edges,
            np.asarray(self.data.get("scale", np.ones(m)), np.float64),
            self.data.get("seen"),
            self.data.get("kept"),
        )
        h = graph.x
        layers = []
        count = 2 if rng.random() < 0.3 else 1
        decodes = rng.random() < 0.12
        for number in range(count):
            layer, h = self.layer(graph, h, number, followed=number < count - 1 or decodes)
            layers.append(layer)
        if decodes and "decoder" not in self.without:
            layers.append(self.decoder(graph, h))
        assert state is eager.now
        return Program(
            layers=tuple(layers),
            arrays=self.arrays,
            n=n,
            src=src,
            dst=dst,
            dtype=self.dtype,
            training=self.training,
            bounds=self.bounds(),
            stored=stored,
        )

    def graph(self) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """Nodes and edges: mostly some nodes with self loops, duplicate edges, a hub and nodes
        without edges.
        """
        rng = self.rng
        kind = self.rng.random()
        if kind < 0.03:
            return rng.choice((1, 4)), (), ()
        if kind < 0.07:
            m = rng.randrange(1, 4)
            return 1, (0,) * m, (0,) * m
        n = rng.randrange(2, 8)
        m = rng.randrange(1, 18)
        ends = [(rng.randrange(n), rng.randrange(n)) for _ in range(m)]
        if rng.random() < 0.4:
            hub = rng.randrange(n)
            ends = [(s, hub if rng.random() < 0.7 else d) for s, d in ends]
        if rng.random() < 0.4:
            ends += [rng.choice(ends) for _ in range(3)]
        return n + rng.randrange(2), tuple(s for s, _ in ends), tuple(d for _, d in ends)

    def bounds(self) -> dict[str, int]:
        """Bounds of the code generator that reach its rare branches."""
        rng = self.rng
        found = dict[str, int]()
        if rng.random() < 0.3 and "wide" not in self.without:
            found["MOST_VECTORS"] = rng.choice((1, 2, 3))
        if rng.random() < 0.3:
            found["MOST_SUMMED"] = rng.choice((0, 1, 2))
        if rng.random() < 0.3:
            found["MOST_STEPS"] = rng.choice((1, 2, 12))
        if rng.random() < 0.3:
            found["MOST_SAVED"] = rng.choice((2, 4, 64))
        if rng.random() < 0.6:
            # by receivers for senders, or the other way round
            found["SAVE"] = rng.choice((1, 2))
        if rng.random() < 0.3 and "lazy" not in self.without:
            # in between, ranks with few rows compute at once what others defer
            found["SMALLEST"] = rng.choice((1, 1, 2, 4, 8, 16))
            # sums of gradients begin before or after messages of layers, as ranks complete them
            found["BUCKET_BYTES"] = 1
        if rng.random() < 0.7:
            # edges and products read stored rows of any width where they are
            found |= {"LINE": 1, "WIDE": 1}
        if rng.random() < 0.4 and "hub" not in self.without:
            found["EDGES_PER_BLOCK"] = rng.choice((1, 2, 4))
        if rng.random() < 0.4:
            found["STRETCH"] = rng.choice((1, 2, 3))
        if rng.random() < 0.7:
            # steps of rows with many messages run in compiled loops, of which there are few here
            found |= {
                "LONG": 1,
                "FEW_ROWS": rng.choice((1, 2, 9)),
                "SEGMENT": rng.choice((1, 2, 9)),
            }
        return found

    def layer(
        self, graph: eager.Graph, h: eager.Value, number: int, *, followed: bool
    ) -> tuple[LayerProgram, eager.Value]:
        """A layer, and the value that it makes; if it is followed by another one, often with new
        edge values.
        """
        rng = self.rng
        direction = rng.choice(("in", "in", "out", "both"))
        transform, columns = self._transform(graph, h)
        edge = eager.at_edges(graph, columns, direction)
        pool = Pool(rng, {"edge": edge, "self": None, "data": self.data}, self)
        self._leaves(pool, edge, [*transform, "h"], number)
        pool.grow(rng.randrange(1, 9) if rng.random() < 0.8 else rng.randrange(8, 16))
        sums = self._sums()
        outputs: dict[str, Entry] = {}
        chosen = self._typed(pool, edge) if rng.random() < 0.08 else None
        if sums == {"": '"sum"'} and rng.random() < 0.4:
            chosen = self._weighed(pool) or chosen
        if chosen is not None:
            messages = {"": chosen}
        else:
            each = "" not in sums and rng.random() < 0.6
            ranked = any(how not in SMOOTH for how in sums.values())
            messages = {name: self._message(pool, ranked) for name in (sums if each else [""])}
            often = 0.6 if followed else 0.1
            if number == 0 and direction != "both" and rng.random() < often:
                small = lambda e: np.abs(e.value.x).max(initial=0) < 50
                outputs["new"] = pool.pick("fi" if rng.random() < 0.8 else "i", small)
        graph.edges |= graph.stored({name: e.value for name, e in outputs.items()})
        accumulators = Accumulators(self, graph, columns, edge, number)
        if not self.special and "accumulators" not in self.without and rng.random() < 0.35:
            message_of = lambda name: messages[name if name in messages else ""]
            # a pooling with several sums may be given a message for each, so messages come first
            for name in sums:
                if rng.random() < 0.7:
                    sums[name] = accumulators.draw(message_of(name))
        found = accumulators.added(sums, {name: e.value for name, e in messages.items()})
        eager.at_nodes(graph)
        ends = accumulators.totals(sums, found)
        totals = {"": ends} if "" in sums else vars(ends)
        end = Pool(
            rng,
            {
                "node": eager.Columns(**columns),
                "self": None,
                "data": self.data,
                "total": totals[""] if "" in totals else eager.Columns(**totals),
            },
            self,
        )
        parts = [end.leaf("total" if name == "" else f"total.{name}") for name in totals]
        if rng.random() < 0.5:
            for name in ("h", *[n for n in transform if n != "t"][:1]):
                end.leaf(f"node.{name}")
            end.grow(rng.randrange(1, 3))
            parts += [end.pick()]
        unused = [e for e in parts if e.dims == parts[0].dims]
        if len(parts) == 1:
            out = parts[0]
        elif len(unused) == len(parts) and parts[0].dims and rng.random() < 0.5:
            out = end.make(
                f"gt.concat([{', '.join(f'{{{i}}}' for i in range(len(parts)))}])", *parts
            )
        else:
            out = end.make(
                f"gt.concat([{', '.join(f'gt.flatten({{{i}}})' for i in range(len(parts)))}])",
                *parts,
            )
        if not out.value.learned or rng.random() < 0.2:
            out = end.make(
                "({0} * {1})",
                out,
                (
                    self.parameter(())
                    if "scalar_parameter" not in self.without
                    else self.parameter((1,))
                ),
            )
        terms = lambda entries: {name: e.term for name, e in entries.items()}
        named = any(how != f'"{name}"' for name, how in sums.items()) or rng.random() < 0.5
        # accumulators in a tuple would need names
        named = named or bool(accumulators.classes)
        return (
            LayerProgram(
                direction=direction,
                sums=sums,
                named=named,
                transform=transform,
                messages=terms(messages),
                outputs=terms(outputs),
                apply=out.term,
                classes=tuple(accumulators.classes),
            ),
            out.value,
        )

    def decoder(self, graph: eager.Graph, h: eager.Value) -> LayerProgram:
        """A layer that computes a value for each edge."""
        transform, columns = self._transform(graph, h)
        edge = eager.at_edges(graph, columns, None)
        # refused: they belong to the edges of messages, which are others
        vars(edge).pop("new", None)
        pool = Pool(self.rng, {"edge": edge, "self": None, "data": self.data}, self)
        self._leaves(pool, edge, [*transform, "h"], 1)
        pool.grow(self.rng.randrange(1, 9))
        out = self._message(pool, False)
        if not out.value.learned:
            out = pool.make("({0} * {1})", out, self.parameter(()))
        return LayerProgram(
            direction="in",
            sums={"": "None"},
            named=False,
            transform=transform,
            messages={"": out.term},
            outputs={},
            apply=Term("total"),
        )

    def _transform(
        self, graph: eager.Graph, h: eager.Value
    ) -> tuple[dict[str, Term], dict[str, Any]]:
        """New node columns of a layer, and all values of nodes that its edges may read."""
        rng = self.rng
        self.parameters = []
        columns = {**graph.nodes, "h": h}
        eager.at_nodes(graph)
        at_node = Pool(
            rng, {"node": eager.Columns(**columns), "self": None, "data": self.data}, self
        )
        flat = at_node.leaf("node.h")
        flat = flat if len(flat.dims) == 1 else at_node.add("gt.flatten({0})", flat)
        transform: dict[str, Term] = {}
        for i in range(rng.randrange(4)):
            # narrow ones beside wide ones, as scores and gates have them
            shape = self.shape() if i == 0 else rng.choice((self.shape(), (), (self.heads,)))
            made = at_node.add(
                rng.choice(("gt.tanh({0} @ {1})", "({0} @ {1} * 0.25)")),
                flat,
                self.parameter((flat.dims[0], *shape)),
            )
            self._column(transform, columns, f"z{i}", made)
        if rng.random() < 0.4:
            for name in ("x", "in_degree", "code", "reals"):
                at_node.leaf(f"node.{name}")
            at_node.grow(rng.randrange(1, 4))
            self._column(transform, columns, "t", at_node.pick("fi"))
        return transform, columns

    def _column(
        self, transform: dict[str, Term], columns: dict[str, Any], name: str, made: Entry
    ) -> None:
        if made.value.rows:
            transform[name], columns[name] = made.term, made.value

    def _leaves(self, pool: Pool, edge: Any, made: list[str], number: int) -> None:
        """The leaves that gather may read: some of all there are."""
        rng = self.rng
        names = [f"edge.{end}.{name}" for name in made for end in ("src", "src", "dst")]
        names += [
            f"edge.{end}.{name}"
            for end in ("src", "dst")
            for name in (
                "x",
                "in_degree",
                "out_degree",
                "code",
                "signed",
                "flag",
                "real",
                "pair",
                "reals",
            )
        ]
        names += [
            f"edge.{name}"
            for name in ("weight", "code", "signed", "flag", "real", "pair", "reals", "reversed")
        ]
        names += ["edge.attr"] if hasattr(edge, "attr") else []
        chosen = rng.sample(names, rng.randrange(3, 9))
        for name in dict.fromkeys(
            [f"edge.src.{made[0]}", *chosen, *(["edge.new"] * 3 if hasattr(edge, "new") else [])]
        ):
            pool.leaf(name)
        if rng.random() < 0.1:
            pool.add("({0} - {1})", pool_leaf(pool, "edge.time"), pool_leaf(pool, "edge.dst.time"))
        if not any(e.value.kind == "i" for e in pool.entries) and rng.random() < 0.5:
            pool.leaf("edge.code")

    def _typed(self, pool: Pool, edge: Any) -> Entry | None:
        """A product of the source with one of several matrices, which the edge chooses, alone or
        weighted.
        """
        rng = self.rng
        x = rng.choice(
            [e for e in pool.entries if e.term.text in ("edge.src.x", "edge.src.h", "edge.src.z0")]
            or [None]
        )
        if x is None or len(x.dims) != 1:
            return None
        code = pool.leaf(rng.choice(("edge.code", "edge.code", "edge.flag")))
        shape = rng.choice(((), (2,), (self.width,), (3,), (2, 2)))
        w = self.parameter((x.dims[0], rng.choice((3, 4)), *shape))
        try:
            made = pool.add(
                f"(gt.embedding({{0}} @ {rng.choice(('{1}', '({1} * 0.25)'))}, {{2}}))", x, w, code
            )
            weights = [
                f
                for f in ("edge.weight", "edge.real", "edge.dst.real", "edge.dst.in_degree")
                if hasattr(edge, f.split(".")[1])
            ]
            if rng.random() < 0.6:
                text = rng.choice(
                    (
                        "({0} * {1})",
                        "({1} * {0})",
                        "({0} / (gt.square({1}) + 0.5))",
                        "(gt.softmax({1}) * {0})",
                    )
                )
                made = pool.add(text, made, pool.leaf(rng.choice(weights)))
            if rng.random() < 0.3:
                made = pool.add(
                    rng.choice(("gt.tanh({0})", "({0} * 0.5)", "gt.dropout({0}, 0.5)")), made
                )
        except Rejected:
            return None
        return made

    def _weighed(self, pool: Pool) -> Entry | None:
        """Something weighed by a softmax over the in-edges, which is mostly summed in one pass."""
        for _ in range(4):
            try:
                attention(pool)
            except Rejected:
                continue
            return pool.entries[-1] if pool.entries[-1].value.learned else None
        return None

    def _sums(self) -> dict[str, str]:
        rng = self.rng
        pick = lambda: rng.choice(
            ("sum", "sum", "sum", "mean", *SUMS, "max", "median", "sum", "var")
        )
        quoted = lambda how: how if how.startswith("gt.") else f'"{how}"'
        if rng.random() < 0.7:
            return {"": quoted(pick())}
        chosen = list(dict.fromkeys(pick() for _ in range(rng.randrange(2, 4))))
        if rng.random() < 0.5 and not any(how.startswith("gt.") for how in chosen):
            return {how: quoted(how) for how in chosen}
        return {f"m{i}": quoted(pick()) for i in range(len(chosen))}

    def _message(self, pool: Pool, ranked: bool) -> Entry:
        """A message: floats that depend on the edge, mostly with a gradient.

        Args:
            pool: What there is.
            ranked: Whether the order of messages counts, so that equal ones should be frequent.
        """
        learned = [
            e for e in pool.entries if e.value.kind == "f" and e.value.rows and e.value.learned
        ]
        exact = [e for e in learned if e.value.exact]
        if exact and self.rng.random() < (0.5 if ranked else 0.1):
            return self.rng.choice(exact)
        tied = [e for e in learned if e.tied]
        if tied and self.rng.random() < 0.7:
            return self.rng.choice(tied)
        late = [
            e for e in pool.entries[-5:] if e.value.kind == "f" and e.value.rows and e.value.learned
        ]
        if late and self.rng.random() < 0.8:
            return self.rng.choice(late)
        return pool.pick(fits=lambda e: e.value.learned or self.rng.random() < 0.2)


# what sums in order are sorted by, of numbers that no back end rounds
ORDERS = (None, "code", "time", "signed", "real", "src.code", "src.time", "src.real", "flag")
# most numbers of a state and of what is made of a message
MOST_KEPT = 40


class Accumulators:
    """Draws the accumulators of a layer, as classes.

    Args:
        drawer: Owner of the arrays.
        graph: The graph.
        columns: The node columns that edges read.
        edge: The argument of gather.
        number: Of the layer.

    Attributes:
        classes: Source text of the classes so far.
    """

    def __init__(
        self,
        drawer: Drawer,
        graph: eager.Graph,
        columns: dict[str, Any],
        edge: Any,
        number: int,
    ):
        self.drawer = drawer
        self.rng = drawer.rng
        self.graph = graph
        self.columns = columns
        self.edge = edge
        self.number = number
        self.edge_ids = eager.now.ids
        self.receivers = eager.now.receivers
        self.classes: list[str] = []

    def draw(self, message: Entry, depth: int = 0) -> str:
        """A new accumulator of some messages; the text that makes it."""
        rng = self.rng
        outside = self.drawer.parameters
        self.drawer.parameters = []
        try:
            wide = len(message.dims) == 1 and message.dims[0] <= 8
            kinds = [self._pooling, self._recurrent, self._concat]
            kinds += [self._published] * 3 * wide
            return rng.choice(kinds)(message, depth)
        finally:
            self.drawer.parameters = outside

    def _made(self, sums: dict[str, str]) -> Any:
        scope: dict[str, Any] = {"gt": eager, "data": self.drawer.data}
        exec("".join(self.classes), scope)
        each = {name: eval(how, scope) for name, how in sums.items()}
        return each.get("", each)

    def added(self, sums: dict[str, str], messages: dict[str, eager.Value]) -> dict[str, Any]:
        """What sums have added up."""
        made = self._made(sums)
        return eager.accumulated(made, messages.get("", messages), self.edge)

    def totals(self, sums: dict[str, str], found: dict[str, Any]) -> Any:
        """The totals of what was added up."""
        return eager.totals_of(self._made(sums), found, eager.Columns(**self.columns))

    def _pool(self, leaves: Collection[str], **scope: Any) -> Pool:
        given = {"self": None, "data": self.drawer.data, **scope}
        pool = Pool(self.rng, given, self.drawer)
        for text in leaves:
            pool.leaf(text)
        return pool

    def _before(self, message: Entry, smaller: bool = False) -> tuple[Pool, Entry]:
        """Terms of ``before``, and one that is made of the message."""
        rng = self.rng
        names = ("edge.weight", "edge.real", "edge.dst.h", "edge.src.h", "edge.dst.real")
        chosen = [n for n in names if rng.random() < 0.3]
        pool = self._pool(["message", *chosen], edge=self.edge, message=message.value)
        pool.grow(rng.randrange(4))
        fits = lambda e: e.value.learned and (not smaller or prod(e.dims) <= MOST_KEPT)
        return pool, pool.pick(fits=fits)

    def _name(self) -> str:
        return f"Accumulator{self.number}{chr(ord('a') + len(self.classes))}"

    def _write(
        self,
        base: str,
        made: list[str],
        methods: dict[str, tuple[str, list[str]]],
        roots: list[Term],
    ) -> str:
        """Add a class that reads the parameters of some terms; the text that makes it."""
        name = self._name()
        read = {t.text for root in roots for t in root.below() if t.text.startswith("self.p")}
        made = [*made, *parameters_text(sorted(read))]
        self.classes.append(class_text(name, base, made, methods))
        return f"{name}()"

    def _ending(self, totals: dict[str, eager.Value]) -> Entry:
        """The result of ``after``."""
        rng = self.rng
        eager.at_nodes(self.graph)
        total = totals[""] if "" in totals else eager.Columns(**totals)
        leaves = ["total" if name == "" else f"total.{name}" for name in totals]
        pool = self._pool(leaves, node=eager.Columns(**self.columns), total=total)
        parts = [e for e in pool.entries if e.value.kind == "f"]
        if rng.random() < 0.5:
            pool.leaf("node.h")
            pool.grow(rng.randrange(1, 3))
            parts.append(pool.pick())
        for mask in (e for e in pool.entries if e.value.kind == "b"):
            fitting = [e for e in parts if e.dims == mask.dims]
            if fitting:
                parts.append(pool.make("gt.where({0}, {1}, 0.25)", mask, fitting[0]))
        if len(parts) == 1:
            return parts[0]
        flat = ", ".join(f"gt.flatten({{{i}}})" for i in range(len(parts)))
        return pool.make(f"gt.concat([{flat}])", *parts)

    def _order(self) -> tuple[str, dict[str, tuple[str, list[str]]]]:
        """The argument of a sum in order, and its method, if it sorts by an expression."""
        rng = self.rng
        if rng.random() < 0.15:
            text = rng.choice(("-edge.time", "edge.src.code - edge.dst.signed", "edge.real * 2.0"))
            return "", {"order": ("edge", [f"return {text}"])}
        by = rng.choice(ORDERS)
        return ("" if by is None else f'"{by}"'), {}

    def _pooling(self, message: Entry, depth: int) -> str:
        rng = self.rng
        pool, first = self._before(message)
        pick = lambda: rng.choice(("sum", "sum", "mean", "max", "var", "median", "min"))
        sums = {"": f'"{pick()}"'}
        messages = {"": first}
        if rng.random() < 0.4:
            sums = {name: f'"{pick()}"' for name in ("a", "b")}
            if rng.random() < 0.6:
                messages = {"a": first, "b": pool.pick(fits=lambda e: e.value.learned)}
        for name in sums:
            if depth < 2 and rng.random() < 0.25:
                sums[name] = self.draw(messages.get(name, first), depth + 1)
        found = self.added(sums, {name: e.value for name, e in messages.items()})
        eager.at_nodes(self.graph)
        ends = self.totals(sums, found)
        end = self._ending({"": ends} if "" in sums else vars(ends))
        self._at_edges()
        of_sums = (
            sums[""]
            if "" in sums
            else "{" + ", ".join(f'"{name}": {how}' for name, how in sums.items()) + "}"
        )
        returned = lambda texts: (
            texts[0]
            if "" in messages
            else "{" + ", ".join(f'"{n}": {t}' for n, t in zip(messages, texts, strict=True)) + "}"
        )
        before = [e.term for e in messages.values()]
        methods = {
            "before": ("edge, message", body_text(before, returned)),
            "after": ("node, total", body_text([end.term], lambda texts: texts[0])),
        }
        return self._write("Pooling", [f"self.sum = {of_sums}"], methods, [*before, end.term])

    def _at_edges(self) -> None:
        """Go on with values of edges after those of nodes."""
        eager.now.ids = self.edge_ids
        eager.now.sites = 0
        eager.now.receivers = self.receivers

    def _recurrent(self, message: Entry, depth: int) -> str:
        rng = self.rng
        _, before = self._before(message, smaller=True)
        # a step takes some rows of some nodes: it knows no other edges, and its draws are its own
        eager.now.receivers = None
        begin = self._pool(["message"], message=before.value)
        begin.without |= {"dropped", "dropped_parameter"}
        begin.grow(rng.randrange(2))
        fits = lambda e: prod(e.dims) <= MOST_KEPT and e.value.learned
        first = {"a": begin.pick(fits=fits)}
        if rng.random() < 0.4:
            first["b"] = begin.pick(fits=fits)
        if rng.random() < 0.25:
            first["m"] = begin.make("({0} > 0.3)", begin.entries[0])
        single = len(first) == 1 and rng.random() < 0.6
        place = lambda name: "state" if single else f'state["{name}"]'
        values = {name: e.value for name, e in first.items()}
        state = values["a"] if single else values
        leaves = ["message", *map(place, first)]
        more = self._pool(leaves, message=before.value, state=state)
        more.without = begin.without
        named = dict(zip(first, more.entries[1:], strict=True))
        more.grow(rng.randrange(1, 4))
        following = {
            name: (
                more.make("({0} | ({1} > 0.3))", e, more.entries[0])
                if name == "m"
                else self._next(more, e)
            )
            for name, e in named.items()
        }
        self._at_edges()
        argument, methods = self._order()
        returned = lambda texts: (
            texts[0]
            if single
            else "{" + ", ".join(f'"{n}": {t}' for n, t in zip(first, texts, strict=True)) + "}"
        )
        begins, follows = ([e.term for e in each.values()] for each in (first, following))
        steps = [
            "if state is None:",
            *(f"    {line}" for line in body_text(begins, returned)),
            *body_text(follows, returned),
        ]
        methods |= {
            "before": ("edge, message", body_text([before.term], lambda texts: texts[0])),
            "step": ("state, message", steps),
        }
        return self._with_after(
            "Recurrent", argument, methods, [before.term, *begins, *follows], message
        )

    def _next(self, pool: Pool, state: Entry) -> Entry:
        """A part of the next state, of the same shape."""
        rng = self.rng
        fitting = [
            e
            for e in pool.entries
            if e.dims == state.dims and e.value.rows and e.value.kind == "f" and e is not state
        ]
        other = rng.choice(fitting) if fitting else state
        if len(state.dims) == 1 and rng.random() < 0.4:
            d = state.dims[0]
            return pool.make(
                "gt.tanh({0} @ {1} * 0.25 + {2})", state, self.drawer.parameter((d, d)), other
            )
        decay = pool.parameter(rng.choice(((), state.dims)))
        text = rng.choice(
            (
                "({0} * gt.sigmoid({1}) + {2})",
                "gt.tanh({0} * {1} + {2})",
                "gt.maximum({0}, {2} * {1})",
                "({0} + gt.sin({2} * {1}))",
            )
        )
        return pool.make(text, state, decay, other)

    def _with_after(
        self,
        base: str,
        arguments: str,
        methods: dict[str, tuple[str, list[str]]],
        roots: list[Term],
        message: Entry,
    ) -> str:
        """A sum in order, mostly with something that follows it."""
        made = [f"super().__init__({arguments})"]
        plain = self._write(base, made, methods, roots)
        found = self.added({"": plain}, {"": message.value})
        name, parts = found.popitem()
        assert name == ""
        eager.at_nodes(self.graph)
        end = self._ending(parts)
        self._at_edges()
        self.classes.pop()
        after = {"after": ("node, total", body_text([end.term], lambda texts: texts[0]))}
        return self._write(base, made, methods | after, [*roots, end.term])

    def _concat(self, message: Entry, depth: int) -> str:
        _, before = self._before(message, smaller=True)
        argument, methods = self._order()
        methods |= {"before": ("edge, message", body_text([before.term], lambda texts: texts[0]))}
        arguments = ", ".join(filter(None, (str(self.rng.choice((1, 2, 3, 5))), argument)))
        return self._with_after("Concat", arguments, methods, [before.term], message)

    def _published(self, message: Entry, depth: int) -> str:
        """An accumulator of the package, with numbers for its parameters."""
        rng = self.rng
        d = message.dims[0]
        width = rng.choice((1, 2, 3))
        heads = rng.choice((1, 2))
        h = self.columns["h"]
        kinds = {
            "LSTM": {"weight": (d, 4, width), "recurrent": (width, 4, width), "bias": (4, width)},
            "GRU": {
                "weight": (d, 3, width),
                "recurrent": (width, 3, width),
                "bias": (3, width),
                "inner": (width,),
            },
            "AttentionPooling": {"weight": (d, heads, width), "score": (d, heads)},
        }
        if len(h.dims) == 1 and h.kind == "f":
            kinds["GatedPooling"] = {
                "sender": (d, width),
                "receiver": (h.dims[0], width),
                "score": (width, 1),
                "weight": (d, width),
                "gates": (width, 3, width),
                "bias": (3, width),
            }
        base = rng.choice(list(kinds))
        arguments = [str(d), str(width)]
        if base == "AttentionPooling":
            arguments = [str(d), str(width * heads), str(heads)]
        elif base == "GatedPooling":
            arguments.append(str(h.dims[0]))
        elif (by := rng.choice(ORDERS)) is not None:
            arguments.append(f'"{by}"')
        name = self._name()
        lines = [f"class {name}(gt.{base}):"]
        made = [f"super().__init__({', '.join(arguments)})"]
        for attribute, shape in kinds[base].items():
            array = self.drawer.array("p", Drawn(shape, seed=rng.randrange(10**6)))
            # the parameter has the name of its array, and is found where the class reads it
            lines.append(
                f"    {attribute} = property(lambda self: self.{array}, lambda self, x: None)"
            )
            made += parameters_text([f"self.{array}"])
        lines += ["", "    def __init__(self):", *(f"        {line}" for line in made), "", "", ""]
        self.classes.append("\n".join(lines))
        return f"{name}()"


def pool_leaf(pool: Pool, text: str) -> Entry:
    """A leaf that is not among those that operations pick."""
    return Entry(Term(text), eval(text, pool.scope))


def program(seed: Any, without: Collection[str] = (), special: bool = False) -> Program:
    """The program of a seed: drawn again until its numbers are comparable.

    Args:
        seed: Of all choices.
        without: See ``Drawer``.
        special: Whether NaN and infinities are among the inputs.
    """
    # an integer that is made of NaN is not defined
    without = (*without, "cast_int", "cast_small") if special else without
    for attempt in range(1000):
        drawer = Drawer(Random(f"{seed} {attempt}"), without, special)
        try:
            with np.errstate(all="ignore"):
                found = drawer.program()
            checked(found.case())
        except (Rejected, Unfit):
            continue
        return found
    raise RuntimeError(f"no program fits seed {seed}")
