"""Vectors as values of compiled kernels: a type for Numba, with loads and stores of rows.

A vector has 1, 2, 4 ... lanes; one of a single lane is broadcast to the lanes of any other. Where
a row does not fill its last vector, loads and stores are masked, so memory outside of the row is
not accessed. LLVM maps vectors to the registers of the processor.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

INDEX, BIT = ir.IntType(32), ir.IntType(1)
ELEMENTS: dict[str, Any] = {
    "float32": ir.FloatType(),
    "float64": ir.DoubleType(),
    "int32": ir.IntType(32),
    "int64": ir.IntType(64),
}
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
    """How LLVM spells the type of a vector or number in the names of its functions."""
    count = f"v{kind.count}" if isinstance(kind, ir.VectorType) else ""
    one = kind.element if count else kind
    element = {ir.FloatType(): "f32", ir.DoubleType(): "f64"}.get(one) or f"i{one.width}"
    return f"{count}{element}"


def call(builder: Any, name: str, result_type: Any, arguments: Sequence[Any]) -> Any:
    """Call a function of LLVM by name."""
    form = ir.FunctionType(result_type, [x.type for x in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, form, name), arguments)


def _operator_of(floats: str, integers: str, swap: bool = False) -> Callable[[V, Any], V]:
    """An operator on vectors, by its instructions for floats and for integers."""

    def operate(one: V, other: Any) -> V:
        a, b = reversed(one.pair(other)) if swap else one.pair(other)
        if not a.floating:
            return one.new(getattr(one.b, integers)(a.value, b.value))
        return one.new(getattr(one.b, floats)(a.value, b.value, flags=one.FLAGS))

    return operate


def _comparison_of(how: str) -> Callable[[V, Any], V]:
    """A comparison of vectors, which does not hold for NaN."""
    return lambda one, other: one.compared(how, other)


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

    def new(self, value: Any) -> V:
        """Another vector."""
        return type(self)(self.b, value)

    @property
    def n(self) -> int:
        return int(self.value.type.count)

    @property
    def element(self) -> Any:
        return self.value.type.element

    @property
    def floating(self) -> bool:
        return isinstance(self.element, (ir.FloatType, ir.DoubleType))

    @property
    def single(self) -> bool:
        """Whether its numbers are of single precision."""
        return isinstance(self.element, ir.FloatType)

    def kind(self, element: Any) -> Any:
        """The type of as many numbers of another type."""
        return ir.VectorType(element, self.n)

    def of(self, x: Any) -> V:
        """A number as a vector of this kind, a vector as one of this many lanes."""
        if isinstance(x, V):
            return x.repeated(self.n)
        return self.new(ir.Constant(self.kind(self.element), [x] * self.n))

    def repeated(self, n: int) -> V:
        if self.n == n:
            return self
        if self.n != 1:
            raise TypeError(f"a vector of {self.n} lanes cannot be combined with one of {n}")
        order = ir.Constant(ir.VectorType(INDEX, n), [0] * n)
        return self.new(
            self.b.shuffle_vector(self.value, ir.Constant(self.value.type, ir.Undefined), order)
        )

    def pair(self, x: Any) -> tuple[V, V]:
        """This vector and another, or a number, with as many lanes."""
        mine = self.repeated(x.n) if isinstance(x, V) and self.n == 1 else self
        return mine, mine.of(x)

    __add__ = _operator_of("fadd", "add")
    __radd__ = _operator_of("fadd", "add", swap=True)
    __sub__ = _operator_of("fsub", "sub")
    __rsub__ = _operator_of("fsub", "sub", swap=True)
    __mul__ = _operator_of("fmul", "mul")
    __rmul__ = _operator_of("fmul", "mul", swap=True)
    __truediv__ = _operator_of("fdiv", "sdiv")
    __rtruediv__ = _operator_of("fdiv", "sdiv", swap=True)
    __and__ = _operator_of("and_", "and_")
    __or__ = _operator_of("or_", "or_")
    __xor__ = _operator_of("xor", "xor")

    def __neg__(self) -> V:
        return self.new(self.b.fneg(self.value)) if self.floating else 0 - self

    def __abs__(self) -> V:
        return self.call("llvm.fabs") if self.floating else (self < 0).choose(-self, self)

    def compared(self, how: str, x: Any) -> V:
        a, b = self.pair(x)
        compare = a.b.fcmp_ordered if a.floating else a.b.icmp_signed
        return self.new(compare(how, a.value, b.value))

    __lt__ = _comparison_of("<")
    __le__ = _comparison_of("<=")
    __gt__ = _comparison_of(">")
    __ge__ = _comparison_of(">=")
    equals = _comparison_of("==")

    def unequal(self, x: Any) -> V:
        a, b = self.pair(x)
        compare = a.b.fcmp_unordered if a.floating else a.b.icmp_signed
        return self.new(compare("!=", a.value, b.value))

    def is_nan(self) -> V:
        if not self.floating:
            return self.new(ir.Constant(ir.VectorType(BIT, self.n), None))
        return self.new(self.b.fcmp_unordered("uno", self.value, self.value))

    def __lshift__(self, x: int) -> V:
        return self.new(self.b.shl(self.value, self.of(x).value))

    def __rshift__(self, x: int) -> V:
        """Logical shift, which does not extend the sign."""
        return self.new(self.b.lshr(self.value, self.of(x).value))

    def halved(self) -> V:
        """An integer divided by two, rounded down."""
        return self.new(self.b.ashr(self.value, self.of(1).value))

    def choose(self, yes: Any, no: Any) -> V:
        """Where this mask holds, ``yes``, else ``no``; one of the two is a vector."""
        like = yes if isinstance(yes, V) else no
        wide = like.repeated(max(self.n, like.n, no.n if isinstance(no, V) else 1))
        mask = self.repeated(wide.n)
        return self.new(self.b.select(mask.value, wide.of(yes).value, wide.of(no).value))

    def bits(self, element: str) -> V:
        """The same bits as other numbers, of the type "float32", "float64", "int32" or "int64"."""
        return self.new(self.b.bitcast(self.value, self.kind(ELEMENTS[element])))

    def to(self, element: str) -> V:
        """The same numbers as another type."""
        there = ELEMENTS[element]
        if self.element == there:
            return self
        if isinstance(there, (ir.FloatType, ir.DoubleType)):
            wider = self.floating and isinstance(there, ir.DoubleType)
            how = ("fpext" if wider else "fptrunc") if self.floating else "sitofp"
        else:
            how = (
                "fptosi"
                if self.floating
                else "sext"
                if there.width > self.element.width
                else "trunc"
            )
        return self.new(getattr(self.b, how)(self.value, self.kind(there)))

    def call(self, name: str, *more: Any) -> V:
        """An LLVM intrinsic over vectors of one type, such as "llvm.sqrt"."""
        kind = self.value.type
        given = [self.value, *(self.of(x).value for x in more)]
        return self.new(call(self.b, f"{name}.{_suffix(kind)}", kind, given))

    def each(self, function: Callable[[Any], Any]) -> V:
        """A scalar function lane by lane."""
        vector = ir.Constant(self.value.type, ir.Undefined)
        for i in range(self.n):
            at = ir.Constant(INDEX, i)
            vector = self.b.insert_element(
                vector, function(self.b.extract_element(self.value, at)), at
            )
        return self.new(vector)

    def libm(self, name: str) -> V:
        """A function of the C library, such as "erf", lane by lane."""
        form = ir.FunctionType(self.element, [self.element])
        function = cgutils.insert_pure_function(
            self.b.module, form, name=f"{name}f" if self.single else name
        )
        return self.each(lambda one: self.b.call(function, (one,)))

    def unless_rare(self, usual: V, rare: Callable[[], V]) -> V:
        """This where a mask holds, elsewhere ``rare()``, which runs only if there is such a
        lane.
        """
        bits = ir.IntType(self.n)
        every = ir.Constant(bits, (1 << self.n) - 1)
        some = self.b.icmp_unsigned("!=", self.b.bitcast(usual.value, bits), every)
        before = self.b.block
        with self.b.if_then(some, likely=False):
            exact = usual.choose(self, rare())
            inside = self.b.block
        merged = self.b.phi(self.value.type)
        merged.add_incoming(self.value, before)
        merged.add_incoming(exact.value, inside)
        return self.new(merged)

    def shuffled(self, other: V, order: Sequence[int]) -> V:
        return self.new(
            self.b.shuffle_vector(
                self.value, other.value, ir.Constant(ir.VectorType(INDEX, len(order)), list(order))
            )
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


class Number(V):
    """A single number in a loop, which LLVM turns into vector code by itself: it has the methods of
    a vector, and Numba gives its arithmetic the fast-math flags of the loop.
    """

    FLAGS = ()

    @property
    def n(self) -> int:
        return 1

    @property
    def element(self) -> Any:
        return self.value.type

    def kind(self, element: Any) -> Any:
        return element

    def of(self, x: Any) -> V:
        return x if isinstance(x, V) else self.new(ir.Constant(self.element, x))

    def repeated(self, n: int) -> V:
        return self

    def each(self, function: Callable[[Any], Any]) -> V:
        return self.new(function(self.value))


def lanewise(function: Callable[..., V]) -> Any:
    """A function of vectors as one that kernels may call, with numbers among its arguments."""

    def typed(typing: Any, *kinds: Any) -> Any:
        kind = widest(kinds)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            given = [
                vector(context=context, builder=builder, value=x, kind=k, element=kind.element)
                for x, k in zip(arguments, kinds, strict=True)
            ]
            return function(*given).repeated(kind.n).value

        return kind(*kinds), generate

    return intrinsic_with(list(inspect.signature(function).parameters), typed)


def numberwise(function: Callable[..., V]) -> Any:
    """A function of vectors as one of single numbers of one type."""

    def typed(typing: Any, *kinds: Any) -> Any:
        kind = kinds[0]

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            given = [
                Number(builder, context.cast(builder, x, k, kind))
                for x, k in zip(arguments, kinds, strict=True)
            ]
            return function(*given).value

        return kind(*kinds), generate

    return intrinsic_with(list(inspect.signature(function).parameters), typed)


def intrinsic_with(parameters: Sequence[str], typed: Callable[..., Any]) -> Any:
    """An intrinsic with some parameters, whose number Numba reads off its code."""
    names = ", ".join(parameters)
    scope: dict[str, Any] = {"typed": typed}
    exec(f"def call(typing, {names}): return typed(typing, {names})", scope)
    return intrinsic(scope["call"])


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


def _read(stored: Any) -> Any:
    """The type of numbers that are read from an array: 16 bits are the upper half of float32."""
    return types.float32 if stored == types.uint16 else stored


def _as_read(builder: Any, x: Any, stored: Any) -> Any:
    """Numbers or vectors as loaded, in the type in which they are read."""
    if stored != types.uint16:
        return x
    vector = isinstance(x.type, ir.VectorType)
    whole, number = (
        ir.VectorType(kind, x.type.count) if vector else kind for kind in (INDEX, ir.FloatType())
    )
    upper = ir.Constant(whole, [16] * x.type.count if vector else 16)
    return builder.bitcast(builder.shl(builder.zext(x, whole), upper), number)


def upper_half(bits: V) -> V:
    """The upper 16 bits of float32 numbers, rounded (ties to even), all as integers of 32 bits."""
    upper = bits >> 16
    nearest = (bits + 0x7FFF + (upper & 1)) >> 16
    # NaN must not be rounded to infinity or to zero
    return ((bits & 0x7FFFFFFF) > 0x7F800000).choose(upper | 64, nearest)


def _as_stored(builder: Any, x: V, stored: Any) -> Any:
    """A vector in the type in which it is stored."""
    if stored != types.uint16:
        return x.value
    whole, half = (ir.VectorType(ir.IntType(bits), x.n) for bits in (32, 16))
    return builder.trunc(upper_half(x.new(builder.bitcast(x.value, whole))).value, half)


def loader(active: int) -> Any:
    """``load(array, row, column)``: ``active`` numbers of a row as a vector; other lanes are 0.

    Numbers of 16 bits are bfloat16, and read as float32.
    """
    n = width(active)

    @intrinsic
    def load(typing: Any, array: Any, row: Any, column: Any) -> Any:
        kind = Lanes(_read(array.dtype), n)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            there = ir.VectorType(context.get_data_type(array.dtype), n)
            address = builder.bitcast(
                _address(context, builder, signature.args[0], *arguments), there.as_pointer()
            )
            if active == n:
                return _as_read(builder, builder.load(address, align=1), array.dtype)
            given = [address, ALIGN, mask(n, active), ir.Constant(there, None)]
            x = call(builder, f"llvm.masked.load.{_suffix(there)}.p0", there, given)
            return _as_read(builder, x, array.dtype)

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
    """``store(array, row, column, x)``: stores ``active`` lanes of a vector in a row.

    Float32 numbers in an array of 16 bits are rounded to bfloat16.
    """
    n = width(active)

    @intrinsic
    def store(typing: Any, array: Any, row: Any, column: Any, x: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            given = vector(
                context=context,
                builder=builder,
                value=arguments[3],
                kind=signature.args[3],
                element=_read(array.dtype),
            )
            value = _as_stored(builder, given.repeated(n), array.dtype)
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
    ...; numbers of 16 bits as ``loader`` reads them.
    """
    n = width(active)

    @intrinsic
    def pick(typing: Any, array: Any, row: Any, where: Any, first: Any) -> Any:
        kind = Lanes(_read(array.dtype), n)

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
                x = _as_read(builder, x, array.dtype)
                vector = builder.insert_element(vector, x, ir.Constant(INDEX, i))
            return vector

        return kind(array, types.int64, where, types.int64), generate

    return pick
