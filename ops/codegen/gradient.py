"""Gradients of an edge: from the message back to what the kernel wants, each expression's own after those of its uses."""
from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from ..expr import Expr
from ..primitive import Primitive
from ..program import Phase
from ..scalar import Scalar
from .keep import MOST_TEXT, KeepWriter
from .text import Index, Text, Variant

# primitives whose rule reads the gradient several times, or at places of its own
READ = re.compile(r"\w+\[[^\[\]]*\]")
REPEATS = ("matmul", "reshape", "getitem", "broadcast_to", "concat", "max", "standardise")


def _passes(e: Expr, prim: Primitive, path: set[int]) -> bool:
    """Whether a gradient of e reaches something on the path."""
    return any(id(a) in path and prim.rule(k) is not None for k, a in enumerate(e.args))


class GradientWriter(KeepWriter):
    """Passes gradients on as text where they are used once, and through buffers where they meet others."""

    def __init__(self, phase: Phase, variant: Variant):
        super().__init__(phase, variant)
        self.inline: dict[int, list[Text]] = {}
        self.buffered: set[int] = set()
        self.on_path = self._paths()

    def _paths(self) -> set[int]:
        """Expressions through which a gradient reaches a wanted leaf."""
        path: set[int] = set()
        for e in self.phase.order:
            wanted = e.leaf in self.v.wanted if e.rows else e.live and ("const", self.number[id(e)]) in self.v.wanted
            if wanted or (e.rows and e.prim is not None and _passes(e, e.prim, path)):
                path.add(id(e))
        return path

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
        once = sum(id(a) in self.on_path for a in e.args) == 1 and e.prim.name not in REPEATS
        code = self.code(e)


        def whole(index: Index) -> str:
            text = " + ".join(p(index) for p in parts)
            return text if len(parts) == 1 else f"({text})"

        if n not in self.buffered:
            text = whole(["0"] * len(e.shape))
            # a plain read may as well be written twice
            plain = code is not None and READ.fullmatch(text) is not None
            if plain or (once and len(text) <= MOST_TEXT):
                return whole
        if parts:
            first = n not in self.buffered
            self.buffer(f"g{n}", int(np.prod(e.shape)))
            self.buffered.add(n)
            with self.loops(e.shape, "i") as index:
                self.put(f"g{n}[{self.flat(e.shape, index)}] {'=' if first else '+='} {whole(index)}")
        return lambda index: f"g{n}[{self.flat(e.shape, index)}]"

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
                self.give(a, a.shape, self.part_of(e, p))
        elif name == "expand_last":
            a = e.args[0]
            self.give(a, a.shape, lambda i: g([*i, *["0"] * (len(e.shape) - len(i))]))
        elif name == "standardise":
            self.back_standardise(e, g)
        elif name == "repeat_rows":
            self.give(e.args[0], e.shape, g)
        elif name == "embedding":
            self.back_embedding(e, g)
        else:
            self.back_structural(e, g)

    def part_of(self, e: Expr, p: int) -> Text:
        """The gradient of a joined value where part p stands."""
        return lambda i: f"g{self.number[id(e)]}[{self.concat_place(e, p, i)}]"

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
        if self.turned(e):
            self.back_turned(e, g)
            return
        x, w = e.args
        lead, inner = x.shape[:-1], w.shape[1:]
        if id(x) in self.on_path:
            target = self.target(x)
            with self.loops(lead, "i") as outer, self.loops((x.shape[-1],), "k") as k:
                self.put("gsum = T(0)")
                with self.loops(inner, "j") as j:
                    self.put(f"gsum += {g(outer + j)} * {self.entry(e, k, j)}")
                self.put(f"{target(self.flat(x.shape, outer + k))} += gsum")
        if id(w) in self.on_path:
            with self.loops(lead, "i") as outer, self.loops((x.shape[-1],), "k") as k:
                self.put(f"gx = {self.value(x, outer + k)}")
                with self.loops(inner, "j") as j:
                    self.put(f"{self.entry(e, k, j, 'gc')} += gx * {g(outer + j)}")

    def back_turned(self, e: Expr, g: Text) -> None:
        x, w = e.args
        target = self.target(x) if id(x) in self.on_path else None
        with self.loops(x.shape[:-1], "i") as outer, self.loops(w.shape[1:], "j") as j:
            self.put(f"gx = {g(outer + j)}")
            if target is not None:
                with self.loops((x.shape[-1],), "k") as k:
                    self.put(f"{target(self.flat(x.shape, outer + k))} += gx * {self.entry(e, k, j)}")
            if id(w) in self.on_path:
                with self.loops((x.shape[-1],), "k") as k:
                    self.put(f"{self.entry(e, k, j, 'gc')} += gx * {self.value(x, outer + k)}")

    def back_standardise(self, e: Expr, g: Text) -> None:
        """(g - mean(g) - y mean(g y)) / deviation, over the last axis."""
        n, d, target = self.number[id(e)], e.shape[-1], self.target(e.args[0])
        with self.loops(e.shape[:-1], "i") as outer:
            self.put("gsum = T(0)")
            self.put("gx = T(0)")
            with self.loops(e.shape[-1:], "j") as j:
                self.put(f"gsum += {g(outer + j)}")
                self.put(f"gx += {g(outer + j)} * {self.value(e, outer + j)}")
            with self.loops(e.shape[-1:], "j") as j:
                text = f"({g(outer + j)} - gsum / T({d}) - {self.value(e, outer + j)} * (gx / T({d})))"
                self.put(f"{target(self.flat(e.shape, outer + j))} += {text} * d{n}[{self.flat(e.shape[:-1], outer)}]")

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
