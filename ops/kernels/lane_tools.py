"""Operations on vectors besides arithmetic: selection, sums over lanes, dropout masks."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .lanes import BIT, INDEX, Lanes, V, vector, widest, width


@intrinsic
def beats(typing: Any, x: Any, best: Any, tie: Any, edge: Any) -> Any:
    """Whether a message wins over the best so far: larger, equal from an edge of a lower number, or
    the first NaN.
    """

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        mine, top = (V(builder, v).repeated(edge.n) for v in arguments[:2])
        lower = vector(
            context=context, builder=builder, value=arguments[2], kind=tie, element=tie
        ) < V(builder, arguments[3])
        return ((mine > top) | (mine.equals(top) & lower) | (mine.is_nan() & top.equals(top))).value

    return Lanes(types.boolean, edge.n)(x, best, tie, edge), generate


@intrinsic
def same(typing: Any, x: Any, y: Any) -> Any:
    """Where two integers are equal."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        a, b = (
            vector(context=context, builder=builder, value=v, kind=k, element=k)
            for v, k in zip(arguments, sig.args, strict=True)
        )
        return a.repeated(max(a.n, b.n)).equals(b).value

    return Lanes(types.boolean, max(k.n for k in (x, y) if isinstance(k, Lanes)))(x, y), generate


@intrinsic
def where(typing: Any, holds: Any, yes: Any, no: Any) -> Any:
    """``yes`` where the mask holds, else ``no``; of whatever types. A mask of numbers holds where
    they are not 0.
    """
    kind = (
        widest((yes, no))
        if isinstance(yes, Lanes) or isinstance(no, Lanes)
        else Lanes(yes, holds.n)
    )
    kind = Lanes(kind.element, max(kind.n, holds.n))

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        m, y, n = (
            vector(
                context=context, builder=builder, value=x, kind=k, element=kind.element
            ).repeated(kind.n)
            for x, k in zip(arguments, sig.args, strict=True)
        )
        return (m if m.element == BIT else m.unequal(0)).choose(y, n).value

    return kind(holds, yes, no), generate


@intrinsic
def lane(typing: Any, x: Any, i: Any) -> Any:
    """One lane of a vector, as a vector; a vector of one lane has the same number in all."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        if x.n == 1:
            return arguments[0]
        one = builder.extract_element(arguments[0], builder.trunc(arguments[1], INDEX))
        return builder.insert_element(
            ir.Constant(ir.VectorType(one.type, 1), ir.Undefined), one, ir.Constant(INDEX, 0)
        )

    return Lanes(x.element, 1)(x, types.int64), generate


@intrinsic
def single(typing: Any, x: Any) -> Any:
    """A number as a vector of one lane."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        return vector(context=context, builder=builder, value=arguments[0], kind=x, element=x).value

    return Lanes(x, 1)(x), generate


@intrinsic
def number(typing: Any, x: Any) -> Any:
    """The first lane as a number."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        return builder.extract_element(arguments[0], ir.Constant(INDEX, 0))

    return x.element(x), generate


@intrinsic
def some(typing: Any, x: Any, y: Any) -> Any:
    """Whether any lane of x is larger than that of y."""

    def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        larger = (V(builder, arguments[0]) > V(builder, arguments[1])).value
        bits = ir.IntType(larger.type.count)
        return builder.icmp_unsigned("!=", builder.bitcast(larger, bits), ir.Constant(bits, 0))

    return types.boolean(x, y), generate


def comparison(how: str, element: Any) -> Any:
    """``compare(x, y)``: 1 where a comparison holds, else 0, as ``element``; two integers are
    compared as integers.
    """

    @intrinsic
    def compare(typing: Any, x: Any, y: Any) -> Any:
        kind = Lanes(element, max(k.n for k in (x, y) if isinstance(k, Lanes)))

        def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
            a, b = (
                vector(context=context, builder=builder, value=v, kind=k, element=k).repeated(
                    kind.n
                )
                for v, k in zip(arguments, sig.args, strict=True)
            )
            if a.floating or b.floating:
                a = a.to(element.name)
                b = b.to(element.name)
            elif a.element != b.element:
                a = a.to("int64")
                b = b.to("int64")
            holds = a.compared(how, b)
            return builder.uitofp(holds.value, context.get_value_type(kind))

        return kind(x, y), generate

    return compare


def as_type(element: Any) -> Any:
    """``as_type(x)``: the numbers of a vector, or a number, as another type."""

    @intrinsic
    def convert(typing: Any, x: Any) -> Any:
        kind = Lanes(element, x.n if isinstance(x, Lanes) else 1)

        def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
            v = vector(
                context=context,
                builder=builder,
                value=arguments[0],
                kind=x,
                element=x if not isinstance(x, Lanes) else x.element,
            )
            unsigned = isinstance(x, Lanes) and (
                x.element == types.boolean or not getattr(x.element, "signed", True)
            )
            if unsigned and not v.floating:
                to_float = isinstance(element, types.Float)
                return (builder.uitofp if to_float else builder.zext)(
                    v.value, ir.VectorType(context.get_value_type(element), v.n)
                )
            return v.to(element.name).value

        return kind(x), generate

    return convert


def first(active: int, lanes: int) -> Any:
    """``first(x)``: the first ``active`` lanes of a vector, then zeros up to ``lanes``."""

    @intrinsic
    def cut(typing: Any, x: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
            v = V(builder, arguments[0])
            v = v.repeated(width(active)) if v.n == 1 else v
            zero = V(builder, ir.Constant(v.value.type, None))
            return v.shuffled(zero, [*range(active), *[v.n] * (lanes - active)]).value

        return Lanes(x.element, lanes)(x), generate

    return cut


def totals(count: int) -> Any:
    """``totals(a, b, ...)``: the sum of the lanes of each of ``count`` vectors, as one vector.

    Neighbouring lanes are added in a tree over all vectors at once: as many shuffles as there are
    vectors, not as many as there are vectors times the logarithm of their lanes.
    """
    names = ", ".join(f"x{i}" for i in range(count))

    def typed(kinds: tuple[Any, ...]) -> Any:
        kind = Lanes(kinds[0].element, width(count))
        n = kinds[0].n

        def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
            zero = V(
                builder, ir.Constant(ir.VectorType(context.get_value_type(kind.element), n), None)
            )
            rows = [V(builder, x) for x in arguments]
            rows += [zero] * (kind.n - count)
            return _tree(rows, n).value

        return kind(*kinds), generate

    scope: dict[str, Any] = {"typed": typed}
    exec(f"def total(typing, {names}): return typed(({names},))", scope)
    return intrinsic(scope["total"])


def _tree(rows: list[V], n: int) -> V:
    """Add lanes pairwise; after each step two vectors share one, or the lanes are half as many."""
    free = list(rows)
    while n > 1:
        # lanes of a row lie side by side, n of them; several rows may share a vector
        even = [i for i in range(free[0].n * (2 if len(free) > 1 else 1)) if i % 2 == 0]
        odd = [i + 1 for i in even]
        if len(free) > 1:
            free = [
                a.shuffled(b, even) + a.shuffled(b, odd)
                for a, b in zip(free[::2], free[1::2], strict=True)
            ]
        else:
            free = [free[0].shuffled(free[0], even) + free[0].shuffled(free[0], odd)]
        n //= 2
    while len(free) > 1:
        free = [a.shuffled(b, range(a.n * 2)) for a, b in zip(free[::2], free[1::2], strict=True)]
    return free[0]


# ---- drawing


def dropout_factors(active: int) -> Any:
    """``draw(hashed, first, threshold, factor)``: ``factor`` in the lanes that dropout keeps, 0 in
    others.

    The hash of column ``first + i`` decides, as in ``kernels.dropout``.
    """
    n = width(active)
    wide = ir.IntType(64)

    @intrinsic
    def draw(typing: Any, hashed: Any, first: Any, threshold: Any, factor: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
            h, column, limit, value = (
                vector(context=context, builder=builder, value=x, kind=k, element=k).repeated(n)
                for x, k in zip(arguments, sig.args, strict=True)
            )
            x = h + (
                column + V(builder, ir.Constant(ir.VectorType(wide, n), [i + 1 for i in range(n)]))
            ) * _signed(0xD1B54A32D192ED03)
            x = (x ^ (x >> 30)) * _signed(0xBF58476D1CE4E5B9)
            x = (x ^ (x >> 27)) * _signed(0x94D049BB133111EB)
            x = x ^ (x >> 31)
            return (
                V(builder, builder.icmp_unsigned(">=", x.value, limit.value))
                .choose(value, 0.0)
                .value
            )

        return Lanes(factor, n)(types.uint64, types.int64, types.uint64, factor), generate

    return draw


def _signed(x: int) -> int:
    return x - (1 << 64) if x >> 63 else x
