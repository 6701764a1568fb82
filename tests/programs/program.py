"""Programs that the search draws: layers as terms, which become source text, and the data they run
on.

A term is a template of source text with places for its arguments, ``Term("gt.where({0}, {1}, {2})",
(mask, x, y))``. The text of a program imports nothing: it is run with ``gt`` as the product, and
with ``gt`` as the module ``eager``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

NAMED = ("in", "out", "both")
# arrays that describe the view of a pass
OF_VIEWS = ("scale", "seen", "kept")
# types of features, in memory or in a mapped file; int8 holds multiples of 1/2
STORED = ("float32", "float16", "int8", "float32 mapped", "float16 mapped")


@dataclass(frozen=True, eq=False)
class Term:
    """An expression: a template, and what stands in its places. The same object twice is computed
    once.
    """

    text: str
    args: tuple[Term, ...] = ()

    def below(self) -> Iterator[Term]:
        """All terms below it and itself, arguments first, each once."""
        seen: set[int] = set()

        def visit(t: Term) -> Iterator[Term]:
            if id(t) not in seen:
                seen.add(id(t))
                for a in t.args:
                    yield from visit(a)
                yield t

        return visit(self)

    def replaced(self, by: Mapping[int, Term], done: dict[int, Term] | None = None) -> Term:
        """The term with some terms, by id, replaced by others."""
        done = {} if done is None else done
        if id(self) in by:
            return by[id(self)]
        if id(self) not in done:
            args = tuple(a.replaced(by, done) for a in self.args)
            done[id(self)] = self if args == self.args else Term(self.text, args)
        return done[id(self)]


@dataclass(frozen=True)
class Drawn:
    """An array by its recipe, so that programs can be printed and made smaller.

    Attributes:
        shape: Its shape.
        style: "grid" (multiples of 1/64 in -2 to 2), "coarse" (multiples of 1/2, of which many are
            equal), "few" (0 and 1/2), "positive" (0.25 to 2), "codes" (0 to ``most`` - 1), "signed"
            (integers from -3 to 3), "times" (large integers), "mask", "most" (a mask of four in
            five), "constant" (``most``), "special" (grid with NaN and infinities).
        seed: Of its numbers.
        dtype: "float", which is the type of the job, or a name.
        most: See style.
    """

    shape: tuple[int, ...]
    style: str = "grid"
    seed: int = 0
    dtype: str = "float"
    most: float = 0

    def array(self, job: str) -> np.ndarray:
        """The numbers, exact in float32."""
        rng = np.random.default_rng(self.seed)
        dtype = job if self.dtype == "float" else self.dtype
        if self.style in ("grid", "special"):
            found = rng.integers(-128, 129, self.shape) / 64
            if self.style == "special":
                found = np.where(
                    rng.random(self.shape) < 0.1,
                    rng.choice([np.nan, np.inf, -np.inf], self.shape),
                    found,
                )
        elif self.style == "coarse":
            found = rng.integers(-2, 3, self.shape) / 2
        elif self.style == "few":
            found = rng.integers(0, 2, self.shape) / 2
        elif self.style == "positive":
            found = rng.integers(16, 129, self.shape) / 64
        elif self.style == "codes":
            found = rng.integers(0, int(self.most), self.shape)
        elif self.style == "signed":
            found = rng.integers(-3, 4, self.shape)
        elif self.style == "times":
            found = 2**33 + rng.integers(0, 8, self.shape)
        elif self.style == "mask":
            found = rng.random(self.shape) < 0.5
        elif self.style == "most":
            found = rng.random(self.shape) < 0.8
        else:
            found = np.full(self.shape, self.most)
        return np.asarray(found).astype(dtype)


@dataclass(frozen=True)
class LayerProgram:
    """One layer.

    Attributes:
        direction: Of the layer.
        sums: Source text of each aggregator, by name of the total; one of the name "" for a single
            total. An accumulator is a call of one of ``classes``.
        named: Whether several aggregators are given as a dict, and not as a tuple.
        transform: Node columns by name.
        messages: By name of the total; one of the name "" serves all.
        outputs: New edge values by name.
        apply: The result of the layer.
        classes: Source text of the classes of accumulators with parameters, those that others
            call first.
    """

    direction: str
    sums: Mapping[str, str]
    named: bool
    transform: Mapping[str, Term]
    messages: Mapping[str, Term]
    outputs: Mapping[str, Term]
    apply: Term
    classes: tuple[str, ...] = ()

    def terms(self) -> list[Term]:
        """The roots of all stages."""
        return [
            *self.transform.values(),
            *self.messages.values(),
            *self.outputs.values(),
            self.apply,
        ]

    def mapped(self, change: Callable[[Term], Term]) -> LayerProgram:
        """The layer with all roots changed."""
        each = lambda terms: {name: change(t) for name, t in terms.items()}
        return replace(
            self,
            transform=each(self.transform),
            messages=each(self.messages),
            outputs=each(self.outputs),
            apply=change(self.apply),
        )


@dataclass(frozen=True)
class Case:
    """A program as text, with all that it runs on.

    Attributes:
        text: Classes of layers, and the model ``Net``; it reads parameters and constants as
            ``data["NAME"]``.
        arrays: "x" and "attr" of the graph, "weight" of edges, named columns "node.NAME" and
            "edge.NAME", importance weights of edges "scale", masks of the nodes "seen" and edges
            "kept" of the view, and everything else that the text reads.
        n: Number of nodes.
        src, dst: Edges.
        dtype: Float type of the job.
        training: Whether dropout drops.
        bounds: Bounds of the planner and the code generator that are changed, such as
            {"MOST_VECTORS": 2}.
        stored: How the graph stores "x", one of ``STORED``, or "" if the pass is given it, with a
            gradient.
    """

    text: str
    arrays: Mapping[str, Drawn]
    n: int
    src: tuple[int, ...]
    dst: tuple[int, ...]
    dtype: str = "float64"
    training: bool = True
    bounds: Mapping[str, int] = field(default_factory=dict)
    stored: str = ""

    @property
    def special(self) -> bool:
        """Whether NaN and infinities are among its numbers."""
        return any(recipe.style == "special" for recipe in self.arrays.values())

    @property
    def decodes(self) -> bool:
        """Whether its values are those of edges."""
        return "sum = None" in self.text

    def data(self) -> dict[str, np.ndarray]:
        """All arrays."""
        return {name: recipe.array(self.dtype) for name, recipe in self.arrays.items()}

    def printed(self) -> str:
        """The case as Python source, to be added to ``found.py`` or run by itself."""
        arrays = "".join(f"        {name!r}: {recipe!r},\n" for name, recipe in self.arrays.items())
        body = self.text.replace("\\", "\\\\")
        return (
            f"Case(\n    text='''\n{body}''',\n    arrays={{\n{arrays}    }},\n    n={self.n},"
            f" src={self.src}, dst={self.dst}, dtype={self.dtype!r}, training={self.training},"
            f" bounds={dict(self.bounds)}, stored={self.stored!r})"
        )


@dataclass(frozen=True)
class Program:
    """Layers as terms, and what they run on; see ``Case`` for the attributes that have the same
    names.
    """

    layers: tuple[LayerProgram, ...]
    arrays: Mapping[str, Drawn]
    n: int
    src: tuple[int, ...]
    dst: tuple[int, ...]
    dtype: str = "float64"
    training: bool = True
    bounds: Mapping[str, int] = field(default_factory=dict)
    stored: str = ""

    def case(self) -> Case:
        """The program as text."""
        texts = [_layer_text(i, layer) for i, layer in enumerate(self.layers)]
        lines = ["class Net(gt.Model):", "    def __init__(self):"]
        lines += [f"        self.layer{i} = Layer{i}()" for i in range(len(self.layers))]
        lines += ["", "    def forward(self, graph):", "        h = graph.x"]
        lines += [f"        h = self.layer{i}(graph, h)" for i in range(len(self.layers))] + [
            "        return h",
            "",
        ]
        text = "\n".join([*texts, *lines])
        used = {
            name: recipe
            for name, recipe in self.arrays.items()
            if name in ("x", *OF_VIEWS) or _reads(text, name)
        }
        return Case(
            text=text,
            arrays=used,
            n=self.n,
            src=self.src,
            dst=self.dst,
            dtype=self.dtype,
            training=self.training,
            bounds=self.bounds,
            stored=self.stored,
        )

    def size(self) -> tuple[int, ...]:
        """What the shrinker makes smaller: operations, layers, edges, numbers, nodes."""
        terms = {
            id(t) for layer in self.layers for root in layer.terms() for t in root.below() if t.args
        }
        totals = sum(
            len(layer.sums) + len(layer.outputs) + len(layer.transform) for layer in self.layers
        )
        return (
            len(terms),
            len(self.layers),
            totals,
            len(self.src),
            sum(prod(a.shape) for a in self.arrays.values()),
            self.n,
        )


def _reads(text: str, name: str) -> bool:
    if name.startswith(("node.", "edge.")) or name in ("attr", "weight"):
        # as an attribute, or by name, as that by which a sum sorts
        return re.search(rf"[.\"]{name.rpartition('.')[2]}\b", text) is not None
    return f'data["{name}"]' in text


def _layer_text(number: int, layer: LayerProgram) -> str:
    names = sorted(
        {t.text for root in layer.terms() for t in root.below() if t.text.startswith("self.")}
    )
    sums = _sums_text(layer)
    # an accumulator with parameters is an attribute of the layer
    of_layer = [sums] if any(is_called(text, sums) for text in layer.classes) else []
    classes: list[str] = []
    for text in reversed(layer.classes):
        if is_called(text, "".join((sums, *classes))):
            classes.insert(0, text)
    lines = [
        *classes,
        f"class Layer{number}(gt.Layer):",
        f'    direction = "{layer.direction}"',
        *([] if of_layer else [f"    sum = {sums}"]),
        "",
    ]
    if names or of_layer:
        lines += [
            "    def __init__(self):",
            *(f"        self.sum = {text}" for text in of_layer),
            *(f"        {line}" for line in parameters_text(names)),
            "",
        ]
    if layer.transform:
        lines += [
            "    def transform(self, node):",
            *_body(list(layer.transform.values()), lambda found: _dict(layer.transform, found)),
            "",
        ]
    roots = [*layer.messages.values(), *layer.outputs.values()]

    def returned(found: list[str]) -> str:
        messages = (
            found[0]
            if "" in layer.messages
            else _dict(layer.messages, found[: len(layer.messages)])
        )
        return (
            f"({messages}, {_dict(layer.outputs, found[len(layer.messages) :])})"
            if layer.outputs
            else messages
        )

    lines += ["    def gather(self, edge):", *_body(roots, returned), ""]
    if layer.sums.get("") == "None":
        return "\n".join([*lines, ""])
    lines += [
        "    def apply(self, node, total):",
        *_body([layer.apply], lambda found: found[0]),
        "",
        "",
    ]
    return "\n".join(lines)


def is_called(definition: str, text: str) -> bool:
    """Whether a text calls the class that a definition begins with."""
    return f"{definition.split()[1].partition('(')[0]}()" in text


def parameters_text(names: Iterable[str]) -> list[str]:
    """Lines that make parameters of the arrays of their names, ``self.NAME``."""
    return [f'{name} = gt.Parameter(data["{name[5:]}"])' for name in names]


def class_text(
    name: str, base: str, made: list[str], methods: Mapping[str, tuple[str, list[str]]]
) -> str:
    """Source text of a class.

    Args:
        name, base: Of the class.
        made: Lines of its constructor.
        methods: Arguments after self, and lines of the body, by name.
    """
    lines = [f"class {name}(gt.{base}):"]
    for method, (arguments, body) in {"__init__": ("", made), **methods}.items():
        lines += [f"    def {method}({', '.join(filter(None, ('self', arguments)))}):"]
        lines += [f"        {line}" for line in body or ["pass"]] + [""]
    return "\n".join([*lines, ""])


def _sums_text(layer: LayerProgram) -> str:
    if "" in layer.sums:
        return layer.sums[""]
    if layer.named:
        return "{" + ", ".join(f'"{name}": {text}' for name, text in layer.sums.items()) + "}"
    return "(" + ", ".join(layer.sums.values()) + ",)"


def _dict(names: Mapping[str, Term], texts: list[str]) -> str:
    return (
        "{" + ", ".join(f'"{name}": {text}' for name, text in zip(names, texts, strict=True)) + "}"
    )


def _body(roots: list[Term], returned: Callable[[list[str]], str]) -> list[str]:
    return [f"        {line}" for line in body_text(roots, returned)]


def body_text(roots: list[Term], returned: Callable[[list[str]], str]) -> list[str]:
    """Lines of the body of a method; a term that is used twice gets a name."""
    uses: dict[int, int] = {}
    order: dict[int, Term] = {}
    for root in roots:
        uses[id(root)] = uses.get(id(root), 0) + 1
        for t in root.below():
            order.setdefault(id(t), t)
    for t in order.values():
        for a in t.args:
            uses[id(a)] = uses.get(id(a), 0) + 1
    texts: dict[int, str] = {}
    lines = []
    for t in order.values():
        texts[id(t)] = t.text.format(*(texts[id(a)] for a in t.args)) if t.args else t.text
        # a draw of dropout belongs to its place in the text
        if t.args and (uses[id(t)] > 1 or "dropout" in t.text):
            name = f"v{len(lines)}"
            lines.append(f"{name} = {texts[id(t)]}")
            texts[id(t)] = name
    return [*lines, f"return {returned([texts[id(root)] for root in roots])}"]
