"""Vectors as values of compiled kernels: a type for Numba, with loads and stores of rows.

A vector has 1, 2, 4 ... lanes; one of a single lane is broadcast to the lanes of any other. Where
a row does not fill its last vector, loads and stores are masked, so memory outside of the row is
not accessed. LLVM maps vectors to the registers of the processor.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

INDEX, BIT = ir.IntType(32), ir.IntType(1)
ALIGN = ir.Constant(INDEX, 1)


class Lanes(types.Type):
    """A vector of ``n`` numbers of one type; of truth values where the element is boolean."""

    def __init__(self, element: Any, n: int):
        self.element = element
        self.n = n
        super().__init__(name=f"lanes({element}, {n})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Lanes):
        element = (
            BIT if kind.element == types.boolean else manager.lookup(kind.element).get_data_type()
        )
        super().__init__(manager, kind, ir.VectorType(element, kind.n))


def _suffix(kind: Any) -> str:
    """How LLVM spells the type of a vector in the names of its functions."""
    element = {ir.FloatType(): "f32", ir.DoubleType(): "f64"}.get(
        kind.element
    ) or f"i{kind.element.width}"
    return f"v{kind.count}{element}"


def call(builder: Any, name: str, result_type: Any, arguments: Sequence[Any]) -> Any:
    """Call a function of LLVM by name."""
    form = ir.FunctionType(result_type, [x.type for x in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, form, name), arguments)


class V:
    """A vector in generated LLVM code; arithmetic on it emits instructions.

    Numbers in operations with it become vectors of its kind. Its operations may be contracted into
    fused multiply-adds, and are not otherwise rearranged: the functions of ``lane_math`` rely on
    the order of roundings.
    """

    FLAGS: tuple[str, ...] = ("contract",)

    def __init__(self, builder: Any, value: Any):
        self.b = builder
        self.value = value

    @property
    def n(self) -> int:
        return int(self.value.type.count)

    @property
    def element(self) -> Any:
        return self.value.type.element

    @property
    def floating(self) -> bool:
        return isinstance(self.element, (ir.FloatType, ir.DoubleType))

    def of(self, x: Any) -> V:
        """A number as a vector of this kind, a vector as one of this many lanes."""
        if isinstance(x, V):
            return x.repeated(self.n)
        return V(self.b, ir.Constant(ir.VectorType(self.element, self.n), [x] * self.n))

    def repeated(self, n: int) -> V:
        if self.n == n:
            return self
        if self.n != 1:
            raise TypeError(f"a vector of {self.n} lanes cannot be combined with one of {n}")
        order = ir.Constant(ir.VectorType(INDEX, n), [0] * n)
        return V(
            self.b,
            self.b.shuffle_vector(self.value, ir.Constant(self.value.type, ir.Undefined), order),
        )

    def _pair(self, x: Any) -> tuple[V, V]:
        mine = self.repeated(x.n) if isinstance(x, V) and self.n == 1 else self
        return mine, mine.of(x)

    def _do(self, x: Any, floats: str, integers: str, swap: bool = False) -> V:
        a, b = reversed(self._pair(x)) if swap else self._pair(x)
        if not a.floating:
            return V(self.b, getattr(self.b, integers)(a.value, b.value))
        return V(self.b, getattr(self.b, floats)(a.value, b.value, flags=self.FLAGS))

    def __add__(self, x: Any) -> V:
        return self._do(x, "fadd", "add")

    def __radd__(self, x: Any) -> V:
        return self._do(x, "fadd", "add", swap=True)

    def __sub__(self, x: Any) -> V:
        return self._do(x, "fsub", "sub")

    def __rsub__(self, x: Any) -> V:
        return self._do(x, "fsub", "sub", swap=True)

    def __mul__(self, x: Any) -> V:
        return self._do(x, "fmul", "mul")

    def __rmul__(self, x: Any) -> V:
        return self._do(x, "fmul", "mul", swap=True)

    def __truediv__(self, x: Any) -> V:
        return self._do(x, "fdiv", "sdiv")

    def __rtruediv__(self, x: Any) -> V:
        return self._do(x, "fdiv", "sdiv", swap=True)

    def __neg__(self) -> V:
        return V(self.b, self.b.fneg(self.value)) if self.floating else 0 - self

    def compared(self, how: str, x: Any) -> V:
        a, b = self._pair(x)
        return V(
            self.b, (a.b.fcmp_ordered if a.floating else a.b.icmp_signed)(how, a.value, b.value)
        )

    def __lt__(self, x: Any) -> V:
        return self.compared("<", x)

    def __le__(self, x: Any) -> V:
        return self.compared("<=", x)

    def __gt__(self, x: Any) -> V:
        return self.compared(">", x)

    def __ge__(self, x: Any) -> V:
        return self.compared(">=", x)

    def equals(self, x: Any) -> V:
        return self.compared("==", x)

    def unequal(self, x: Any) -> V:
        a, b = self._pair(x)
        return V(
            self.b, (a.b.fcmp_unordered if a.floating else a.b.icmp_signed)("!=", a.value, b.value)
        )

    def is_nan(self) -> V:
        if not self.floating:
            return V(self.b, ir.Constant(ir.VectorType(BIT, self.n), None))
        return V(self.b, self.b.fcmp_unordered("uno", self.value, self.value))

    def __and__(self, x: Any) -> V:
        return self._do(x, "and_", "and_")

    def __or__(self, x: Any) -> V:
        return self._do(x, "or_", "or_")

    def __xor__(self, x: Any) -> V:
        return self._do(x, "xor", "xor")

    def __lshift__(self, x: int) -> V:
        return V(self.b, self.b.shl(self.value, self.of(x).value))

    def __rshift__(self, x: int) -> V:
        """Logical shift, which does not extend the sign."""
        return V(self.b, self.b.lshr(self.value, self.of(x).value))

    def halved(self) -> V:
        """An integer divided by two, rounded down."""
        return V(self.b, self.b.ashr(self.value, self.of(1).value))

    def choose(self, yes: Any, no: Any) -> V:
        """Where this mask holds, ``yes``, else ``no``; one of the two is a vector."""
        like = yes if isinstance(yes, V) else no
        wide = like.repeated(max(self.n, like.n, no.n if isinstance(no, V) else 1))
        mask = self.repeated(wide.n)
        return V(self.b, self.b.select(mask.value, wide.of(yes).value, wide.of(no).value))

    def bits(self, element: Any) -> V:
        """The same bits as other numbers."""
        return V(self.b, self.b.bitcast(self.value, ir.VectorType(element, self.n)))

    def to(self, element: Any) -> V:
        """The same numbers as another type."""
        if self.element == element:
            return self
        there = ir.VectorType(element, self.n)
        if isinstance(element, (ir.FloatType, ir.DoubleType)):
            wider = self.floating and isinstance(element, ir.DoubleType)
            how = ("fpext" if wider else "fptrunc") if self.floating else "sitofp"
        else:
            how = (
                "fptosi"
                if self.floating
                else "sext"
                if element.width > self.element.width
                else "trunc"
            )
        return V(self.b, getattr(self.b, how)(self.value, there))

    def call(self, name: str, *more: Any) -> V:
        """An LLVM intrinsic over vectors of one type, such as "llvm.sqrt"."""
        kind = self.value.type
        given = [self.value, *(self.of(x).value for x in more)]
        return V(self.b, call(self.b, f"{name}.{_suffix(kind)}", kind, given))

    def each(self, function: Callable[[Any], Any]) -> V:
        """A scalar function lane by lane."""
        vector = ir.Constant(self.value.type, ir.Undefined)
        for i in range(self.n):
            at = ir.Constant(INDEX, i)
            vector = self.b.insert_element(
                vector, function(self.b.extract_element(self.value, at)), at
            )
        return V(self.b, vector)

    def shuffled(self, other: V, order: Sequence[int]) -> V:
        return V(
            self.b,
            self.b.shuffle_vector(
                self.value, other.value, ir.Constant(ir.VectorType(INDEX, len(order)), list(order))
            ),
        )


def vector(context: Any, builder: Any, value: Any, kind: Any, element: Any) -> V:
    """An argument as a vector; a number gets one lane and the element type."""
    if isinstance(kind, Lanes):
        return V(builder, value)
    one = context.cast(builder, value, kind, element)
    empty = ir.Constant(ir.VectorType(one.type, 1), ir.Undefined)
    return V(builder, builder.insert_element(empty, one, ir.Constant(INDEX, 0)))


def widest(kinds: Sequence[Any]) -> Lanes:
    """The kind of the result of an operation on vectors and numbers."""
    vectors = [k for k in kinds if isinstance(k, Lanes)]
    element = next((k.element for k in vectors if k.element != types.boolean), types.boolean)
    return Lanes(element, max(k.n for k in vectors))


def lanewise(function: Callable[..., V]) -> Any:
    """A function of vectors as one that kernels may call, with numbers among its arguments."""
    names = ", ".join(function.__code__.co_varnames[: function.__code__.co_argcount])

    def typed(typing: Any, *kinds: Any) -> Any:
        kind = widest(kinds)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            given = [
                vector(context=context, builder=builder, value=x, kind=k, element=kind.element)
                for x, k in zip(arguments, kinds, strict=True)
            ]
            return function(*given).repeated(kind.n).value

        return kind(*kinds), generate

    # Numba reads the number of arguments off the function
    scope: dict[str, Any] = {"typed": typed}
    exec(f"def {function.__name__}(typing, {names}): return typed(typing, {names})", scope)
    return intrinsic(scope[function.__name__])


def _operator(symbol: Any, function: Callable[..., V]) -> None:
    """Teach Numba an operator on vectors."""

    @infer_global(symbol)
    class _Typing(AbstractTemplate):
        def generic(self, args: Any, kws: Any) -> Any:
            return (
                signature(widest(args), *args) if any(isinstance(a, Lanes) for a in args) else None
            )

    def lower(context: Any, builder: Any, sig: Any, arguments: Any) -> Any:
        kind = sig.return_type
        given = [
            vector(context=context, builder=builder, value=x, kind=k, element=kind.element)
            for x, k in zip(arguments, sig.args, strict=True)
        ]
        return function(*given).repeated(kind.n).value

    shapes = (
        ((Lanes,),)
        if symbol is operator.neg
        else ((Lanes, Lanes), (Lanes, types.Number), (types.Number, Lanes))
    )
    for shape in shapes:
        lower_builtin(symbol, *shape)(lower)


class _Free(V):
    """Arithmetic in kernels, to which Numba gives the fast-math flags of the kernel."""

    FLAGS = ()


for _symbol in (operator.add, operator.sub, operator.mul, operator.truediv):
    _operator(_symbol, lambda a, b, s=_symbol: s(_Free(a.b, a.value), b))
_operator(operator.neg, operator.neg)


# ---- rows


def _address(context: Any, builder: Any, kind: Any, array: Any, row: Any, column: Any) -> Any:
    fields = context.make_array(kind)(context, builder, array)
    byte = ir.IntType(8).as_pointer()
    start = builder.gep(
        builder.bitcast(fields.data, byte),
        [builder.mul(row, builder.extract_value(fields.strides, 0))],
    )
    return builder.gep(builder.bitcast(start, fields.data.type), [column])


def mask(n: int, active: int) -> Any:
    """A mask that is true in the first ``active`` of n lanes."""
    return ir.Constant(ir.VectorType(BIT, n), [1] * active + [0] * (n - active))


def width(active: int) -> int:
    """Lanes of the vector that holds ``active`` numbers."""
    return 1 << max(active - 1, 0).bit_length()


def loader(active: int) -> Any:
    """``load(array, row, column)``: ``active`` numbers of a row as a vector; other lanes are 0."""
    n = width(active)

    @intrinsic
    def load(typing: Any, array: Any, row: Any, column: Any) -> Any:
        kind = Lanes(array.dtype, n)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            there = context.get_value_type(kind)
            address = builder.bitcast(
                _address(context, builder, signature.args[0], *arguments), there.as_pointer()
            )
            if active == n:
                return builder.load(address, align=1)
            given = [address, ALIGN, mask(n, active), ir.Constant(there, None)]
            return call(builder, f"llvm.masked.load.{_suffix(there)}.p0", there, given)

        return kind(array, types.int64, types.int64), generate

    return load


def zeros(active: int, element: Any) -> Any:
    """``zeros()``: a vector of zeros."""
    kind = Lanes(element, width(active))

    @intrinsic
    def zero(typing: Any) -> Any:
        return kind(), lambda context, builder, signature, arguments: ir.Constant(
            context.get_value_type(kind), None
        )

    return zero


def storer(active: int) -> Any:
    """``store(array, row, column, x)``: stores ``active`` lanes of a vector in a row."""
    n = width(active)

    @intrinsic
    def store(typing: Any, array: Any, row: Any, column: Any, x: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            value = (
                vector(
                    context=context,
                    builder=builder,
                    value=arguments[3],
                    kind=signature.args[3],
                    element=array.dtype,
                )
                .repeated(n)
                .value
            )
            address = builder.bitcast(
                _address(context, builder, signature.args[0], *arguments[:3]),
                value.type.as_pointer(),
            )
            if active == n:
                builder.store(value, address, align=1)
            else:
                call(
                    builder,
                    f"llvm.masked.store.{_suffix(value.type)}.p0",
                    ir.VoidType(),
                    [value, address, ALIGN, mask(n, active)],
                )
            return context.get_dummy_value()

        return types.void(array, types.int64, types.int64, x), generate

    return store


def picker(active: int) -> Any:
    """``pick(array, row, map, first)``: numbers of a row at the columns map[first], map[first + 1]
    ...
    """
    n = width(active)

    @intrinsic
    def pick(typing: Any, array: Any, row: Any, where: Any, first: Any) -> Any:
        kind = Lanes(array.dtype, n)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            a, row_, map_, start = arguments
            vector = ir.Constant(context.get_value_type(kind), None)
            zero = ir.Constant(ir.IntType(64), 0)
            for i in range(active):
                at = builder.add(start, ir.Constant(ir.IntType(64), i))
                column = builder.load(
                    _address(
                        context=context,
                        builder=builder,
                        kind=signature.args[2],
                        array=map_,
                        row=zero,
                        column=at,
                    )
                )
                x = builder.load(
                    _address(
                        context=context,
                        builder=builder,
                        kind=signature.args[0],
                        array=a,
                        row=row_,
                        column=column,
                    )
                )
                vector = builder.insert_element(vector, x, ir.Constant(INDEX, i))
            return vector

        return kind(array, types.int64, where, types.int64), generate

    return pick
