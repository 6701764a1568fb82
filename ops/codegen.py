"""Source of fused kernels: one loop over rows and their edges, with every value of an edge in registers or L1.

A kernel is generated for a phase in one of three modes: "forward" (rows receive; messages are aggregated), "receiver"
(rows receive; gradients of destination columns, edge values and operands) and "sender" (rows send; gradients of source
columns). Rows are worked on serially inside and in parallel outside, so that nothing is written by two threads and
results do not depend on their number.

Values: an elementwise expression used once is written where it is used; what is used again, reduced, contracted or
broadcast is kept in a small buffer of one edge. Gradients likewise. Trip counts are arguments of the kernel, because
constant small ones are unrolled into scalar code.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from .expr import Expr
from .program import Phase
from .scalar import Scalar, scalar

Index = list[str]
Text = Callable[[Index], str]
# not elementwise, but the same numbers in another order
STRUCTURAL = ("reshape", "expand_last", "getitem", "broadcast_to", "to_dense")
KNOWN = (*STRUCTURAL, "sum", "max", "matmul", "dropout", "concat", "repeat_rows", "embedding")


class Unsupported(Exception):
    """The phase uses a primitive that has no fused form; the reference back end runs it."""


@dataclass(frozen=True)
class Variant:
    """What a kernel is specialised for, besides the phase.

    Attributes:
        mode: "forward", "receiver" or "sender".
        listed: Whether edges are given by a list of positions, or lie in order from a start.
        training: Whether dropout drops.
        scaled: Whether edges stand for several.
        carried: Edge values indexed in the level's own order.
        wanted: Leaves whose gradients this kernel computes, as (kind, name).
        spreads: Totals with a gradient, and output values with one.
        dtype: Of the numbers.
    """

    mode: str
    listed: bool
    training: bool
    scaled: bool
    carried: frozenset[str]
    wanted: frozenset[tuple[str, object]]
    spreads: tuple[tuple[str, ...], tuple[str, ...]]
    dtype: str


@dataclass
class Kernel:
    """Generated source and the names of its arguments in order; ``maps`` are constant index arrays among them."""

    source: str
    arguments: list[str]
    maps: dict[str, np.ndarray] = field(default_factory=dict)
    dims: dict[str, int] = field(default_factory=dict)


def supported(phase: Phase) -> bool:
    """Whether every primitive on the rows of a phase has a fused form."""
    return all(e.prim is None or not e.rows or e.prim.name in KNOWN or scalar(e.prim.name, e.static) is not None for e in phase.order)


def generate(phase: Phase, variant: Variant) -> Kernel:
    """The source of one kernel."""
    return _Writer(phase, variant).write()


class _Writer:
    def __init__(self, phase: Phase, variant: Variant):
        self.phase, self.v = phase, variant
        self.number = {id(e): i for i, e in enumerate(phase.order)}
        self.lines: list[str] = []
        self.depth = 1
        self.arguments: dict[str, None] = {}
        self.maps: dict[str, np.ndarray] = {}
        self.dims: dict[str, int] = {}
        self.buffers: dict[str, str] = {}
        self.kept: set[int] = set()
        self.inline: dict[int, list[Text]] = {}
        self.buffered: set[int] = set()
        self.on_path = self._paths()

    # ---- text

    def put(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def arg(self, name: str) -> str:
        self.arguments[name] = None
        return name

    def dim(self, d: int) -> str:
        self.dims[f"n{d}"] = d
        return self.arg(f"n{d}")

    def buffer(self, name: str, size: int, kind: str = "T") -> str:
        self.buffers[name] = f"np.empty({max(size, 1)}, {kind})"
        return name

    def flat(self, shape: tuple[int, ...], index: Index) -> str:
        text = ""
        for d, i in zip(shape, index, strict=True):
            if d == 1:
                continue
            text = i if not text else f"({text}) * {self.dim(d)} + {i}"
        return text or "0"

    @contextmanager
    def loops(self, shape: tuple[int, ...], prefix: str) -> Iterator[Index]:
        index, depth = [], self.depth
        for k, d in enumerate(shape):
            if d == 1:
                index.append("0")
                continue
            name = f"{prefix}{k}"
            self.put(f"for {name} in range({self.dim(d)}):")
            self.depth += 1
            index.append(name)
        yield index
        self.depth = depth

    # ---- which expressions matter

    def _paths(self) -> set[int]:
        """Expressions through which a gradient reaches a wanted leaf."""
        path: set[int] = set()
        for e in self.phase.order:
            if e.leaf in self.v.wanted or (not e.rows and e.live and ("const", self.number[id(e)]) in self.v.wanted):
                path.add(id(e))
            elif e.rows and any(id(a) in path for a in e.args):
                path.add(id(e))
        return path

    def _uses(self) -> dict[int, list[Expr]]:
        uses: dict[int, list[Expr]] = {}
        for e in self.phase.order:
            for a in e.args:
                uses.setdefault(id(a), []).append(e)
        return uses

    def code(self, e: Expr) -> Scalar | None:
        return None if e.prim is None else scalar(e.prim.name, e.static)

    def is_alias(self, e: Expr) -> bool:
        """Dropout that does not drop."""
        return e.prim is not None and e.prim.name == "dropout" and not self.v.training

    # ---- values

    def value(self, e: Expr, index: Index) -> str:
        """The value of an expression at an index, as text."""
        n = self.number[id(e)]
        if not e.rows:
            return self.arg(f"c{n}") if not e.shape else f"{self.arg(f'c{n}')}[{self.flat(e.shape, index)}]"
        if e.leaf is not None:
            return self.leaf(e, self.flat(e.shape, index))
        if n in self.kept:
            return f"t{n}[{self.flat(e.shape, index)}]"
        if self.is_alias(e):
            return self.value(e.args[0], index)
        assert e.prim is not None
        name = e.prim.name
        if name == "expand_last":
            return self.value(e.args[0], index[: len(e.args[0].shape)])
        if name in STRUCTURAL:
            return self.at_flat(e.args[0], self.mapped(e, self.flat(e.shape, index)))
        if name == "repeat_rows":
            return self.value(e.args[0], index)
        if name == "embedding":
            return self.embedding(e, index)
        code = self.code(e)
        assert code is not None
        return code.value.format(*(self.value(a, self.narrow(a, e, index)) for a in e.args))

    def narrow(self, a: Expr, e: Expr, index: Index) -> Index:
        """The index of an argument that is broadcast to e."""
        tail = index[len(index) - len(a.shape):]
        return ["0" if d == 1 else i for d, i in zip(a.shape, tail, strict=True)]

    def leaf(self, e: Expr, at: str) -> str:
        assert e.leaf is not None
        kind, name = e.leaf
        n = self.number[id(e)]
        if kind == "src":
            return f"{self.arg(f'src{n}')}[sr, {at}]"
        if kind == "dst":
            return f"{self.arg(f'dst{n}')}[dr, {at}]"
        if name == "gid":
            return f"{self.arg('edge_gid')}[se]"
        return f"{self.arg(f'edge{n}')}[{'ce' if name in self.v.carried else 'se'}, {at}]"

    def at_flat(self, e: Expr, at: str) -> str:
        """The value of a leaf, kept or rowless expression at a flat position."""
        n = self.number[id(e)]
        if not e.rows:
            return f"{self.arg(f'c{n}')}[{at}]" if e.shape else self.arg(f"c{n}")
        if e.leaf is not None:
            return self.leaf(e, at)
        assert n in self.kept, e
        return f"t{n}[{at}]"

    def mapped(self, e: Expr, at: str) -> str:
        """Flat position in the argument of a structural expression."""
        assert e.prim is not None
        a = e.args[0]
        size = int(np.prod(a.shape))
        where = np.asarray(e.prim.forward(np.arange(size).reshape((1, *a.shape)), **e.static)).ravel()
        if np.array_equal(where, np.arange(size)):
            return at
        name = f"m{self.number[id(e)]}"
        self.maps[name] = where.astype(np.int64)
        return f"{self.arg(name)}[{at}]"

    def embedding(self, e: Expr, index: Index) -> str:
        table, which = e.args
        depth = len(which.shape)
        row = self.value(which, index[:depth])
        inner = table.shape[1:]
        width = int(np.prod(inner))
        return f"{self.arg(f'c{self.number[id(table)]}')}[{row} * {self.dim(width) if width > 1 else 1} + {self.flat(inner, index[depth:])}]"

    def keep_values(self, roots: list[Expr]) -> None:
        """Write loops for what must be kept, arguments first."""
        needed: set[int] = set()

        def visit(e: Expr) -> None:
            if id(e) not in needed:
                needed.add(id(e))
                for a in e.args:
                    visit(a)

        for root in roots:
            visit(root)
        uses = self._uses()
        for e in self.phase.order:
            if id(e) in needed and e.rows and e.prim is not None and not self.is_alias(e) and self.must_keep(e, uses.get(id(e), []), e in roots):
                self.keep(e)

    def must_keep(self, e: Expr, uses: list[Expr], root: bool) -> bool:
        assert e.prim is not None
        name, code = e.prim.name, self.code(e)
        if code is None and name not in (*STRUCTURAL, "repeat_rows", "embedding"):
            return True
        count = len(uses) + root
        backward = self.v.mode != "forward"
        if code is not None and code.costly and (count > 1 or backward):
            return True
        if any(u.prim is not None and (u.prim.name in (*STRUCTURAL, "concat", "matmul", "sum", "max") and u.prim.name != "expand_last") for u in uses):
            # addressed by flat position, or read many times
            return not (code is None and name == "expand_last" and all(u.prim is not None and u.prim.name == "sum" for u in uses)) or True
        size = int(np.prod(e.shape))
        wider = any(int(np.prod(u.shape)) > size for u in uses)
        return code is not None and (count > 1 or wider) and size * 8 <= 1 << 20 and not self.trivial(e)

    def trivial(self, e: Expr) -> bool:
        return e.prim is not None and e.prim.name in ("ones_like", "cast")

    def keep(self, e: Expr) -> None:
        assert e.prim is not None
        n, name, size = self.number[id(e)], e.prim.name, int(np.prod(e.shape))
        self.buffer(f"t{n}", size)
        if name == "sum":
            self.keep_sum(e)
        elif name == "max":
            self.keep_max(e)
        elif name == "matmul":
            self.keep_matmul(e)
        elif name == "concat":
            self.keep_concat(e)
        elif name == "dropout":
            self.keep_dropout(e)
        else:
            with self.loops(e.shape, "i") as index:
                self.put(f"t{n}[{self.flat(e.shape, index)}] = {self.value(e, index)}")
        self.kept.add(n)

    def reduced(self, e: Expr) -> tuple[Expr, list[int], list[int]]:
        """Argument of a reduction, its kept axes and its reduced axes."""
        a = e.args[0]
        gone = sorted(len(a.shape) + k for k in e.static["axis"])
        return a, [k for k in range(len(a.shape)) if k not in gone], gone

    def split_loops(self, a: Expr, stay: list[int], gone: list[int], outer: Index, inner: Index) -> Index:
        index = ["0"] * len(a.shape)
        for k, i in zip(stay, outer, strict=True):
            index[k] = i
        for k, i in zip(gone, inner, strict=True):
            index[k] = i
        return index

    def keep_sum(self, e: Expr) -> None:
        a, stay, gone = self.reduced(e)
        n = self.number[id(e)]
        with self.loops(tuple(a.shape[k] for k in stay), "i") as outer:
            self.put(f"a{n} = T(0)")
            with self.loops(tuple(a.shape[k] for k in gone), "j") as inner:
                self.put(f"a{n} += {self.value(a, self.split_loops(a, stay, gone, outer, inner))}")
            self.put(f"t{n}[{self.flat(tuple(a.shape[k] for k in stay), outer)}] = a{n}")

    def keep_max(self, e: Expr) -> None:
        a, stay, gone = self.reduced(e)
        n = self.number[id(e)]
        self.buffer(f"w{n}", int(np.prod(e.shape)), "np.int64")
        with self.loops(tuple(a.shape[k] for k in stay), "i") as outer:
            self.put(f"a{n} = T(-np.inf)")
            self.put(f"b{n} = 0")
            with self.loops(tuple(a.shape[k] for k in gone), "j") as inner:
                index = self.split_loops(a, stay, gone, outer, inner)
                self.put(f"x{n} = {self.value(a, index)}")
                self.put(f"if x{n} > a{n}:")
                self.put(f"    a{n} = x{n}")
                self.put(f"    b{n} = {self.flat(a.shape, index)}")
            at = self.flat(tuple(a.shape[k] for k in stay), outer)
            self.put(f"t{n}[{at}] = a{n}")
            self.put(f"w{n}[{at}] = b{n}")

    def keep_matmul(self, e: Expr) -> None:
        x, w = e.args
        n, lead, inner = self.number[id(e)], x.shape[:-1], w.shape[1:]
        with self.loops(e.shape, "i") as index:
            self.put(f"t{n}[{self.flat(e.shape, index)}] = T(0)")
        with self.loops(lead, "i") as outer, self.loops((x.shape[-1],), "k") as k:
            self.put(f"x{n} = {self.value(x, outer + k)}")
            with self.loops(inner, "j") as j:
                self.put(f"t{n}[{self.flat(e.shape, outer + j)}] += x{n} * {self.value(w, k + j)}")

    def keep_concat(self, e: Expr) -> None:
        n = self.number[id(e)]
        for p, a in enumerate(e.args):
            with self.loops(a.shape, "i") as index:
                self.put(f"t{n}[{self.concat_place(e, p, index)}] = {self.value(a, index)}")

    def concat_place(self, e: Expr, p: int, index: Index) -> str:
        axis = len(e.shape) + e.static["axis"]
        start = sum(a.shape[axis] for a in e.args[:p])
        moved = [f"({i} + {start})" if k == axis and start else i for k, i in enumerate(index)]
        # the joined axis is longer than 1 even where this part's is not
        return self.flat(e.shape, moved)

    def keep_dropout(self, e: Expr) -> None:
        x, n = e.args[0], self.number[id(e)]
        self.buffer(f"f{n}", int(np.prod(e.shape)))
        self.put(f"h{n} = mix(np.uint64({self.arg('edge_gid')}[se]) * GOLDEN + {self.arg(f'key{n}')})")
        rate = e.static["rate"]
        threshold = min(int(rate * 2.0**64), 2**64 - 1)
        with self.loops(e.shape, "i") as index:
            at = self.flat(e.shape, index)
            self.put(f"f{n}[{at}] = T({1 / (1 - rate)!r}) if mix(h{n} + np.uint64({at} + 1) * COLUMN) >= np.uint64({threshold}) else T(0)")
            self.put(f"t{n}[{at}] = {self.value(x, index)} * f{n}[{at}]")

    # ---- gradients

    def give(self, a: Expr, shape: tuple[int, ...], text: Text) -> None:
        """A gradient for a: ``text`` over the index of ``shape``, to which a was broadcast."""
        if id(a) not in self.on_path:
            return
        if shape == a.shape and a.rows and a.leaf is None:
            self.inline.setdefault(id(a), []).append(text)
            return
        target = self.target(a)
        pad = len(shape) - len(a.shape)
        gone = [k for k in range(len(shape)) if shape[k] > 1 and (k < pad or a.shape[k - pad] == 1)]
        stay = [k for k in range(len(shape)) if k not in gone]
        with self.loops(tuple(shape[k] for k in stay), "i") as outer:
            index = ["0"] * len(shape)
            for k, i in zip(stay, outer, strict=True):
                index[k] = i
            at = target(self.flat(a.shape, index[pad:] if pad <= len(shape) else index))
            if not gone:
                self.put(f"{at} += {text(index)}")
            else:
                self.put("gsum = T(0)")
                with self.loops(tuple(shape[k] for k in gone), "j") as inner:
                    for k, i in zip(gone, inner, strict=True):
                        index[k] = i
                    self.put(f"gsum += {text(index)}")
                self.put(f"{at} += gsum")

    def target(self, a: Expr) -> Callable[[str], str]:
        """Where the gradient of a is added to."""
        n = self.number[id(a)]
        if not a.rows:
            return lambda at: f"{self.arg(f'gc{n}')}[{at}]"
        if a.leaf is not None:
            kind, name = a.leaf
            row = {"src": "sr", "dst": "dr"}.get(kind) or ("ce" if name in self.v.carried else "se")
            return lambda at: f"{self.arg(f'g{kind}{n}')}[{row}, {at}]"
        if n not in self.buffered:
            self.buffered.add(n)
            size = int(np.prod(a.shape))
            self.buffer(f"g{n}", size)
            self.put(f"for z in range({self.dim(size) if size > 1 else 1}):")
            self.put(f"    g{n}[z] = T(0)")
        return lambda at: f"g{n}[{at}]"

    def flow(self, e: Expr) -> Text | None:
        """The gradient of e once all its uses have given theirs; None if there is none."""
        n, parts = self.number[id(e)], self.inline.pop(id(e), [])
        if n not in self.buffered and not parts:
            return None
        assert e.prim is not None
        once = sum(id(a) in self.on_path for a in e.args) == 1 and e.prim.name not in ("matmul", "reshape", "getitem", "broadcast_to", "concat", "max")
        code = self.code(e)
        if n not in self.buffered and len(parts) == 1 and (once or code is not None and self.cheap(parts[0], e)):
            return parts[0]
        if n not in self.buffered and len(parts) > 1 and once:
            return lambda index: "(" + " + ".join(p(index) for p in parts) + ")"
        if parts:
            first = n not in self.buffered
            self.buffer(f"g{n}", int(np.prod(e.shape)))
            self.buffered.add(n)
            with self.loops(e.shape, "i") as index:
                self.put(f"g{n}[{self.flat(e.shape, index)}] {'=' if first else '+='} {' + '.join(p(index) for p in parts)}")
        return lambda index: f"g{n}[{self.flat(e.shape, index)}]"

    def cheap(self, part: Text, e: Expr) -> bool:
        """A plain read, which may as well be written twice."""
        text = part(["0"] * len(e.shape))
        return not any(c in text for c in "*/(")

    def walk_back(self) -> None:
        for e in reversed(self.phase.order):
            if not e.rows or e.prim is None or id(e) not in self.on_path:
                continue
            g = self.flow(e)
            if g is not None:
                self.back(e, g)

    def back(self, e: Expr, g: Text) -> None:
        assert e.prim is not None
        name, code = e.prim.name, self.code(e)
        if code is not None:
            self.back_scalar(e, code, g)
        elif name == "sum":
            a, stay, _ = self.reduced(e)
            keep = e.static["keepdims"]
            self.give(a, a.shape, lambda i: g([x if k in stay else "0" for k, x in enumerate(i)] if keep else [i[k] for k in stay]))
        elif name == "max":
            a, n = e.args[0], self.number[id(e)]
            target = self.target(a)
            with self.loops(e.shape, "i") as index:
                self.put(f"{target(f'w{n}[{self.flat(e.shape, index)}]')} += {g(index)}")
        elif name == "matmul":
            self.back_matmul(e, g)
        elif name == "dropout":
            n = self.number[id(e)]
            drop = self.v.training
            self.give(e.args[0], e.shape, lambda i: f"({g(i)} * f{n}[{self.flat(e.shape, i)}])" if drop else g(i))
        elif name == "concat":
            n = self.number[id(e)]
            for p, a in enumerate(e.args):
                self.give(a, a.shape, lambda i, p=p: f"g{n}[{self.concat_place(e, p, i)}]")
        elif name == "expand_last":
            a = e.args[0]
            self.give(a, a.shape, lambda i: g([*i, *["0"] * (len(e.shape) - len(i))]))
        elif name == "repeat_rows":
            self.give(e.args[0], e.shape, g)
        elif name == "embedding":
            self.back_embedding(e, g)
        else:
            self.back_structural(e, g)

    def back_scalar(self, e: Expr, code: Scalar, g: Text) -> None:
        for a, rule in zip(e.args, code.grads, strict=True):
            if rule is None or id(a) not in self.on_path:
                continue

            def text(i: Index, rule: str = rule) -> str:
                y = self.value(e, i) if "{y}" in rule else ""
                return "(" + rule.format(*(self.value(b, self.narrow(b, e, i)) for b in e.args), g=g(i), y=y) + ")"

            self.give(a, e.shape, text)

    def back_structural(self, e: Expr, g: Text) -> None:
        a = e.args[0]
        if id(a) not in self.on_path:
            return
        target = self.target(a)
        with self.loops(e.shape, "i") as index:
            self.put(f"{target(self.mapped(e, self.flat(e.shape, index)))} += {g(index)}")

    def back_matmul(self, e: Expr, g: Text) -> None:
        x, w = e.args
        lead, inner = x.shape[:-1], w.shape[1:]
        if id(x) in self.on_path:
            target = self.target(x)
            with self.loops(lead, "i") as outer, self.loops((x.shape[-1],), "k") as k:
                self.put("gsum = T(0)")
                with self.loops(inner, "j") as j:
                    self.put(f"gsum += {g(outer + j)} * {self.value(w, k + j)}")
                self.put(f"{target(self.flat(x.shape, outer + k))} += gsum")
        if id(w) in self.on_path:
            target = self.target(w)
            with self.loops(lead, "i") as outer, self.loops((x.shape[-1],), "k") as k:
                self.put(f"gx = {self.value(x, outer + k)}")
                with self.loops(inner, "j") as j:
                    self.put(f"{target(self.flat(w.shape, k + j))} += gx * {g(outer + j)}")

    def back_embedding(self, e: Expr, g: Text) -> None:
        table, which = e.args
        if id(table) not in self.on_path:
            return
        depth, inner = len(which.shape), table.shape[1:]
        width = int(np.prod(inner))
        target = self.target(table)
        with self.loops(e.shape, "i") as index:
            row = self.value(which, index[:depth])
            self.put(f"{target(f'{row} * {self.dim(width) if width > 1 else 1} + {self.flat(inner, index[depth:])}')} += {g(index)}")

    # ---- aggregators

    def accumulate(self) -> None:
        parts = self.phase.message
        for name, agg in self.phase.aggregators.items():
            getattr(self, "take_" + agg.name.replace("-", "_"))(name, parts)
        for name, e in self.phase.outputs.items():
            with self.loops(e.shape, "i") as index:
                self.put(f"{self.arg(f'out_{name}')}[ce, {self.flat(e.shape, index)}] = {self.value(e, index)}")

    def state(self, name: str, column: str, at: str) -> str:
        return f"{self.arg(f'state_{name}_{column}')}[dr, {at}]"

    def weight(self) -> str:
        return f" * T({self.arg('scale')}[en])" if self.v.scaled else ""

    def take_sum(self, name: str, parts: list[Expr]) -> None:
        x = parts[0]
        with self.loops(x.shape, "i") as index:
            self.put(f"{self.state(name, 'sum', self.flat(x.shape, index))} += {self.value(x, index)}{self.weight()}")

    def take_mean(self, name: str, parts: list[Expr]) -> None:
        self.take_sum(name, parts)
        self.put(f"{self.state(name, 'weight', '0')} += T(1){self.weight()}")

    def take_max(self, name: str, parts: list[Expr], sign: str = "") -> None:
        x = parts[0]
        with self.loops(x.shape, "i") as index:
            at = self.flat(x.shape, index)
            best, edge = self.state(name, "best", at), self.state(name, "edge", at)
            self.put(f"x = {sign}({self.value(x, index)})")
            self.put(f"if x > {best} or (x == {best} and tie < {edge}):")
            self.put(f"    {best} = x")
            self.put(f"    {edge} = tie")

    def take_min(self, name: str, parts: list[Expr]) -> None:
        self.take_max(name, parts, "-")

    def take_logsumexp(self, name: str, parts: list[Expr]) -> None:
        self.take_softmax(name, parts[0], None)

    def take_softmax_sum(self, name: str, parts: list[Expr]) -> None:
        self.take_softmax(name, parts[0], parts[1])

    def take_softmax(self, name: str, z: Expr, x: Expr | None) -> None:
        """Running maximum: what was summed so far is brought to a new maximum when one comes."""
        with self.loops(z.shape, "i") as outer:
            at = self.flat(z.shape, outer)
            top, total = self.state(name, "max", at), self.state(name, "sum", at)
            log_scale = f" + T(math.log({self.arg('scale')}[en]))" if self.v.scaled else ""
            self.put(f"z = {self.value(z, outer)}{log_scale}")
            rest = () if x is None else x.shape[len(z.shape):]
            self.put(f"if z > {top}:")
            self.depth += 1
            self.put(f"f = T(math.exp({top} - z))")
            self.put(f"{top} = z")
            self.put(f"{total} *= f")
            if x is not None:
                with self.loops(rest, "j") as inner:
                    self.put(f"{self.state(name, 'total', self.flat(x.shape, outer + inner))} *= f")
            self.depth -= 1
            self.put(f"if z > T(-np.inf):")
            self.depth += 1
            self.put(f"e = T(math.exp(z - {top}))")
            self.put(f"{total} += e")
            if x is not None:
                with self.loops(rest, "j") as inner:
                    self.put(f"{self.state(name, 'total', self.flat(x.shape, outer + inner))} += e * {self.value(x, outer + inner)}")
            self.depth -= 1

    def seed(self) -> None:
        """Gradients of the message parts and outputs."""
        totals, outputs = self.v.spreads
        for name in totals:
            getattr(self, "seed_" + self.phase.aggregators[name].name.replace("-", "_"))(name, self.phase.message)
        for name in outputs:
            e = self.phase.outputs[name]
            self.give(e, e.shape, lambda i, name=name, e=e: f"{self.arg(f'gout_{name}')}[ce, {self.flat(e.shape, i)}]")

    def spread(self, name: str, column: str, at: str) -> str:
        return f"{self.arg(f'spread_{name}_{column}')}[dr, {at}]"

    def seed_sum(self, name: str, parts: list[Expr]) -> None:
        x, weight = parts[0], self.weight()
        self.give(x, x.shape, lambda i: self.spread(name, "g", self.flat(x.shape, i)) + weight)

    seed_mean = seed_sum

    def seed_max(self, name: str, parts: list[Expr]) -> None:
        x = parts[0]

        def text(i: Index) -> str:
            at = self.flat(x.shape, i)
            return f"({self.spread(name, 'g', at)} if {self.spread(name, 'edge', at)} == tie else T(0))"

        self.give(x, x.shape, text)

    seed_min = seed_max

    def attention(self, name: str, z: Expr, index: Index) -> str:
        log_scale = f" + T(math.log({self.arg('scale')}[en]))" if self.v.scaled else ""
        return f"T(math.exp({self.value(z, index)}{log_scale} - {self.spread(name, 'lse', self.flat(z.shape, index))}))"

    def seed_logsumexp(self, name: str, parts: list[Expr]) -> None:
        z = parts[0]
        self.give(z, z.shape, lambda i: f"({self.spread(name, 'g', self.flat(z.shape, i))} * {self.attention(name, z, i)})")

    def seed_softmax_sum(self, name: str, parts: list[Expr]) -> None:
        z, x = parts
        tag = self.number[id(z)]
        self.buffer(f"p{tag}", int(np.prod(z.shape)))
        with self.loops(z.shape, "i") as index:
            self.put(f"p{tag}[{self.flat(z.shape, index)}] = {self.attention(name, z, index)}")
        rest, width = x.shape[len(z.shape):], len(z.shape)

        def g(i: Index) -> str:
            return self.spread(name, "g", self.flat(x.shape, i))

        if id(z) in self.on_path:
            self.buffer(f"q{tag}", int(np.prod(z.shape)))
            with self.loops(z.shape, "i") as outer:
                at = self.flat(z.shape, outer)
                self.put("gsum = T(0)")
                with self.loops(rest, "j") as inner:
                    self.put(f"gsum += {g(outer + inner)} * {self.value(x, outer + inner)}")
                self.put(f"q{tag}[{at}] = p{tag}[{at}] * (gsum - {self.spread(name, 'inner', at)})")
            self.give(z, z.shape, lambda i: f"q{tag}[{self.flat(z.shape, i)}]")
        self.give(x, x.shape, lambda i: f"(p{tag}[{self.flat(z.shape, i[:width])}] * {g(i)})")

    # ---- the kernel

    def write(self) -> Kernel:
        v = self.v
        self.depth = 3
        if v.mode == "forward":
            self.keep_values([*self.phase.message, *self.phase.outputs.values()])
            self.accumulate()
        else:
            roots = list(self.phase.message) if v.spreads[0] else []
            self.keep_values([*roots, *(self.phase.outputs[n] for n in v.spreads[1])])
            self.seed()
            self.walk_back()
        body = self.lines
        self.lines, self.depth = [], 1
        for name, made in self.buffers.items():
            self.put(f"{name} = {made}")
        self.put("for r in range(lo, hi):")
        self.depth = 2
        self.put("sr = row[r]" if v.mode == "sender" else "dr = row[r]")
        self.put("for k in range(ptr[r], ptr[r + 1]):")
        self.depth = 3
        self.put("en = at[k]" if v.mode == "sender" else "en = k")
        self.put("dr = other[k]" if v.mode == "sender" else "sr = other[k]")
        self.put("se = start + positions[en]" if v.listed else "se = start + en")
        self.put("ce = offset + en")
        if any(a.name in ("max", "min") for a in self.phase.aggregators.values()):
            self.put(f"tie = {self.arg('edge_gid')}[se] + tie_shift")
        fixed = ["lo", "hi", "ptr", "row", "other", "at", "positions", "start", "offset", "tie_shift"]
        arguments = fixed + list(self.arguments)
        head = f"def kernel({', '.join(arguments)}):"
        return Kernel("\n".join([head, *self.lines, *body]) + "\n", arguments, self.maps, self.dims)
