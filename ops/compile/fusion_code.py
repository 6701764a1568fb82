"""Fused elementwise functions as the source of one loop nest over rows, forward and backward.

They are evaluated in registers, one element at a time: inputs are read once, and the result is
written once. Each value is computed in the outermost loop that has its indices, so a factor of
each row costs one evaluation per row. Backward computes the values again and backpropagates. A
gradient that sums over a loop is collected in a variable of the enclosing loop, and one that sums
over rows in an array of each block of rows.

``relu(h * factor + bias)`` with h [n, d], factor [n, 1] and bias [d] becomes

    @kernel_form
    def kernel(begin, end, D0, a0, a1, a2, out):
        for i in range(begin, end):
            v1 = a1[i, 0]
            for j0 in range(D0):
                v0 = a0[i, j0]
                v2 = (v0 * v1)
                v3 = a2[j0]
                v4 = (v2 + v3)
                v5 = relu(v4)
                out[i, j0] = v5

a0, a1, ... are the inputs, v0, v1, ... the values, D0 and j0 length and index of a loop. In
backward g is the gradient of the result, s4 that of v4, and d0 that of a0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .scalar import Scalar

# per axis of a value: the loop it runs with, or None for an axis of length 1
Index = tuple[int | None, ...]
Axes = tuple[int, ...]
# bytes of listed rows between one that is read and one that is prefetched, and of a cache line
AHEAD = 2048
LINE = 64


@dataclass(frozen=True)
class Leaf:
    """An input of fused functions: "row" [n, ...], "listed" (rows of an array by number), "whole"
    (the same for all rows) or "number".
    """

    kind: str
    requires_grad: bool = False


@dataclass(frozen=True)
class FusedStep:
    """One of the functions; its arguments are numbers of leaves, or of earlier steps after these.

    Attributes:
        kind: "scalar", or as ``Traits.lazy``.
        form: Of a scalar function; None for others.
    """

    kind: str
    form: Scalar | None
    args: tuple[int, ...]
    static: tuple[tuple[str, Any], ...]
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Structure:
    """All that the code of fused functions depends on.

    Attributes:
        leaves, steps: The last step is the result; a "total" may only be that.
        unit: For every leaf and step, which of its axes (without rows) have length 1.
    """

    leaves: tuple[Leaf, ...]
    steps: tuple[FusedStep, ...]
    unit: tuple[tuple[bool, ...], ...]


@dataclass
class _Use:
    """A value at the indices it is read with."""

    number: int
    axes: Axes
    args: list[_Use] = field(default_factory=list)
    depth: int = 0
    requires_grad: bool = False
    key: int = 0
    name: str = ""
    mask: str = ""
    slopes: list[str] = field(default_factory=list)


class FusionWriter:
    """Writes the two kernels of fused functions; see ``forward`` and ``backward`` for their
    arguments.
    """

    def __init__(self, structure: Structure):
        self.s = structure
        self.lines: list[str] = []
        self.tab = 1
        self.order: list[_Use] = []
        self._uses: dict[tuple[int, Axes], _Use] = {}
        root = structure.steps[-1]
        n = len(structure.leaves)
        self.total = root.kind == "total"
        top = root.args[0] if self.total else n + len(structure.steps) - 1
        unit = structure.unit[top]
        whole: Index = tuple(None if u else k for k, u in enumerate(unit))
        gone = [len(unit) + a for a in dict(root.static)["axis"]] if self.total else []
        self.top = self._use(top, whole)
        self.out: Axes = tuple(k for k in whole if k is not None and k not in gone)
        self._merge_loops()
        self.loops = len({g for u in self.order for g in u.axes})
        for i, u in enumerate(self.order):
            u.key = i
            u.name = f"v{i}"
            u.depth = 1 + max(u.axes, default=-1)

    # ---- which values at which indices

    def _use(self, number: int, index: Index) -> _Use:
        axes = tuple(
            k for k, u in zip(index, self.s.unit[number], strict=True) if k is not None and not u
        )
        if (number, axes) in self._uses:
            return self._uses[number, axes]
        use = _Use(number, axes)
        n = len(self.s.leaves)
        if number < n:
            use.requires_grad = self.s.leaves[number].requires_grad
        else:
            step = self.s.steps[number - n]
            for a, rank in zip(step.args, step.ranks, strict=True):
                # axes of a value of each row are aligned from the left, all others from the right
                part = index[:rank] if step.kind == "axes" else index[len(index) - rank :]
                use.args.append(self._use(a, part))
            use.requires_grad = any(a.requires_grad for a in use.args)
        self._uses[number, axes] = use
        self.order.append(use)
        return use

    def _merge_loops(self) -> None:
        """Neighbouring axes that all values have or lack together become one loop."""
        groups: list[list[int]] = []
        lists = [u.axes for u in self.order] + [self.out]
        for k in sorted({k for u in self.order for k in u.axes}):
            if groups and all((k in axes) == (groups[-1][-1] in axes) for axes in lists):
                groups[-1].append(k)
            else:
                groups.append([k])
        self.groups = groups
        number = {k: g for g, group in enumerate(groups) for k in group}
        for u in self.order:
            u.axes = tuple(dict.fromkeys(number[k] for k in u.axes))
        self.out = tuple(dict.fromkeys(number[k] for k in self.out))

    # ---- text

    def put(self, text: str) -> None:
        self.lines.append("    " * self.tab + text)

    def flat(self, axes: Axes) -> str:
        text = "0"
        for k in axes:
            text = f"j{k}" if text == "0" else f"({text} * D{k} + j{k})"
        return text

    def _step(self, u: _Use) -> FusedStep | None:
        n = len(self.s.leaves)
        return self.s.steps[u.number - n] if u.number >= n else None

    def write_value(self, u: _Use) -> None:
        step = self._step(u)
        at = self.flat(u.axes)
        if step is None:
            kind = self.s.leaves[u.number].kind
            self.put(
                f"{u.name} = "
                + {
                    "row": f"a{u.number}[i, {at}]",
                    "listed": f"a{u.number}[r{u.number}, {at}]",
                    "whole": f"a{u.number}[{at}]",
                    "number": f"a{u.number}",
                }[kind]
            )
        elif step.kind == "axes":
            u.name = u.args[0].name
        elif step.kind == "draw":
            u.mask = f"k{u.key}"
            low = dict(step.static)["threshold"]
            self.put(
                f"{u.mask} = mix(h{u.number} + np.uint64({at} + 1) * COLUMN) >= np.uint64({low})"
            )
            self.put(f"{u.name} = {self.masked(u, u.args[0].name)}")
        else:
            assert step.form is not None
            self.put(f"{u.name} = {step.form.value.format(*(a.name for a in u.args))}")

    def masked(self, u: _Use, what: str) -> str:
        step = self._step(u)
        assert step is not None
        return f"({what} * T({dict(step.static)['scale']!r}) if {u.mask} else T(0))"

    def write_values(self, depth: int) -> None:
        for u in self.order:
            if u.depth == depth:
                self.write_value(u)

    def _dropouts(self) -> list[int]:
        n = len(self.s.leaves)
        return [n + k for k, step in enumerate(self.s.steps) if step.kind == "draw"]

    def _listed(self) -> list[int]:
        return [k for k, leaf in enumerate(self.s.leaves) if leaf.kind == "listed"]

    def _begin(self) -> None:
        self.lines = []
        self.tab = 1
        self.put("for i in range(begin, end):")
        self.tab = 2
        for k in self._listed():
            self.put(f"r{k} = l{k}[i]")
            self.put(f"far{k} = l{k}[min(i + 1 + {AHEAD} // a{k}.strides[0], end - 1)]")
            self.put(f"for q in range(a{k}.strides[0] // {LINE} + 1):")
            self.put(f"    prefetch(a{k}, far{k}, q)")
        for k in self._dropouts():
            self.put(f"h{k} = mix(np.uint64(g{k}[i]) * GOLDEN + key{k})")

    def _whole(self, *more: str) -> str:
        leaves = [f"a{k}" for k in range(len(self.s.leaves))]
        lists = [f"l{k}" for k in self._listed()]
        draws = [f"{what}{k}" for k in self._dropouts() for what in ("g", "key")]
        lengths = [f"D{g}" for g in range(self.loops)]
        names = ", ".join(["begin", "end", *lengths, *leaves, *lists, *draws, *more])
        return "\n".join(["@kernel_form", f"def kernel({names}):", *self.lines]) + "\n"

    # ---- forward

    def forward(self) -> str:
        """Source of kernel(begin, end, loop lengths.., leaves.., row numbers of listed leaves..,
        (ids, key) of each dropout.., out).
        """
        self._begin()
        # a sum over the inner loops is collected in a variable, any other in the row of the result
        inner = self.out == tuple(range(len(self.out)))
        self.scattered = self.total and not inner
        if self.scattered:
            self._clear("out")
        self._forward(0)
        return self._whole("out")

    def _forward(self, depth: int) -> None:
        self.write_values(depth)
        at = f"out[i, {self.flat(self.out)}]"
        stop = len(self.out)
        collected = self.total and not self.scattered
        if collected and depth == stop:
            self.put("total = T(0)")
        if depth < self.loops:
            self.put(f"for j{depth} in range(D{depth}):")
            self.tab += 1
            self._forward(depth + 1)
            self.tab -= 1
        elif self.total:
            self.put(f"{at} += {self.top.name}" if self.scattered else f"total += {self.top.name}")
        else:
            self.put(f"{at} = {self.top.name}")
        if collected and depth == stop:
            self.put(f"{at} = total")

    def _clear(self, array: str) -> None:
        self.put(f"for q in range({array}.shape[1]):")
        self.put(f"    {array}[i, q] = T(0)")

    # ---- backward

    def backward(self) -> tuple[str, dict[int, int]]:
        """Source of kernel(begin, end, lengths.., leaves.., numbers.., (ids, key).., gradient, b,
        d..).

        There are row numbers for each listed leaf, and (ids, key) for each dropout. There is one d
        for each leaf that requires a gradient. The gradient of a leaf is written to d[i] if it has
        rows, and added to row b of d (one for each block) if all rows share it.

        Returns:
            The source, and for each such leaf the leaf whose d it uses: itself, or
            one of equal gradient.
        """
        self._begin()
        self.shared: dict[int, int] = {}
        self._stored: dict[tuple[str, Axes], int] = {}
        learned = [k for k, leaf in enumerate(self.s.leaves) if leaf.requires_grad]
        for k in learned:
            if self.s.leaves[k].kind == "row" and not self._once(k):
                self._clear(f"d{k}")
        self._backward(0)
        return (
            self._whole("gradient", "b", *(f"d{k}" for k in learned if self.shared[k] == k)),
            self.shared,
        )

    def _once(self, k: int) -> bool:
        """Whether the loops read every element of a leaf once."""
        uses = [u for u in self.order if u.number == k]
        return len(uses) == 1 and uses[0].axes == tuple(range(uses[0].depth))

    def _backward(self, depth: int) -> None:
        self.write_values(depth)
        here = [u for u in self.order if u.requires_grad and u.depth == depth]
        if depth < self.loops:
            for u in here:
                self.put(f"s{u.key} = T(0)")
            self.put(f"for j{depth} in range(D{depth}):")
            self.tab += 1
            self._backward(depth + 1)
            self.tab -= 1
        else:
            self.put(f"g = gradient[i, {self.flat(self.out)}]")
            self.top.slopes.append("g")
        for u in reversed(here):
            self._backpropagate(u)

    def _backpropagate(self, u: _Use) -> None:
        slope = f"s{u.key}"
        if u.depth == self.loops:
            if len(u.slopes) == 1 and u.slopes[0].isidentifier():
                slope = u.slopes[0]
            else:
                self.put(f"{slope} = {' + '.join(u.slopes)}")
        step = self._step(u)
        if step is None:
            self._store(u, slope)
        elif step.kind in ("axes", "draw"):
            self._add(u.args[0], slope if step.kind == "axes" else self.masked(u, slope))
        else:
            assert step.form is not None
            for a, rule in zip(u.args, step.form.grads, strict=True):
                if a.requires_grad and rule is not None:
                    self._add(a, rule.format(*(x.name for x in u.args), g=slope, y=u.name))

    def _add(self, u: _Use, slope: str) -> None:
        if u.depth == self.loops:
            u.slopes.append(slope)
        else:
            self.put(f"s{u.key} += {slope}")

    def _store(self, u: _Use, slope: str) -> None:
        k = u.number
        if self.s.leaves[k].kind == "whole":
            self.shared[k] = k
            self.put(f"d{k}[b, {self.flat(u.axes)}] += {slope}")
        elif not self._once(k):
            self.shared[k] = k
            self.put(f"d{k}[i, {self.flat(u.axes)}] += {slope}")
        else:
            self.shared[k] = self._stored.setdefault((slope, u.axes), k)
            if self.shared[k] == k:
                self.put(f"d{k}[i, {self.flat(u.axes)}] = {slope}")
