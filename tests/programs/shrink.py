"""Makes a failing program smaller, as long as it fails in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from compare import differences
from program import OF_VIEWS, Drawn, LayerProgram, Program, Term

SIMPLE = ("edge.src.x", "edge.src.h", "edge.dst.x")


def fails(program: Program, kind: str, signature: str) -> bool:
    """Whether an evaluation of a program differs in this way."""
    try:
        return any(d.signature == signature for d in differences(program.case(), (kind,)))
    except Exception:
        # a smaller program may not run at all
        return False


def shrunk(
    program: Program,
    kind: str,
    signature: str,
    most: int = 600,
    failing: Callable[[Program, str, str], bool] = fails,
) -> Program:
    """The smallest program found by trying ``most`` changes."""
    tried = 0
    while True:
        for candidate in candidates(program):
            if tried >= most:
                return program
            if candidate.size() > program.size() and candidate.dtype == program.dtype:
                continue
            tried += 1
            if failing(candidate, kind, signature):
                program = candidate
                break
        else:
            return program


def candidates(program: Program) -> Iterator[Program]:
    """Programs that are a little smaller, those that are much smaller first."""
    for i in range(len(program.layers) if len(program.layers) > 1 else 0):
        yield replace(program, layers=(*program.layers[:i], *program.layers[i + 1 :]))
    yield from _fewer_edges(program)
    for i, layer in enumerate(program.layers):
        for smaller in _layers(layer):
            yield replace(program, layers=(*program.layers[:i], smaller, *program.layers[i + 1 :]))
    yield from _settings(program)
    yield from _narrower(program)


def _layers(layer: LayerProgram) -> Iterator[LayerProgram]:
    if "" not in layer.sums:
        for name, how in layer.sums.items():
            message = layer.messages[name if name in layer.messages else ""]
            yield replace(layer, sums={"": how}, messages={"": message}, apply=Term("total"))
    elif layer.apply.args:
        yield replace(layer, apply=Term("total"))
    if layer.outputs:
        yield replace(layer, outputs={})
    used = {
        t.text
        for root in [*layer.messages.values(), *layer.outputs.values(), layer.apply]
        for t in root.below()
    }
    for name in layer.transform:
        if not any(text.endswith(f".{name}") for text in used):
            yield replace(layer, transform={n: t for n, t in layer.transform.items() if n != name})
    if layer.sums.get("") not in ('"sum"', None):
        yield replace(layer, sums={"": '"sum"'})
    if layer.direction != "in":
        yield replace(layer, direction="in")
    terms = {id(t): t for root in layer.terms() for t in root.below()}
    for t in reversed(terms.values()):
        if not t.args:
            continue
        below = [a for a in t.args if a.text != t.text] + [b for a in t.args for b in a.args]
        for other in dict.fromkeys(
            [*below, *(Term(text) for text in SIMPLE if not any(a.text == text for a in below))]
        ):
            if other.text.startswith("edge.") and t.text.startswith("node."):
                continue
            yield layer.mapped(lambda root, t=t, other=other: root.replaced({id(t): other}))
    for t in terms.values():
        # a column of transform as the input itself
        if not t.args and t.text.startswith(
            ("edge.src.z", "edge.dst.z", "edge.src.t", "edge.dst.t")
        ):
            yield layer.mapped(lambda root, t=t: root.replaced({id(t): Term(t.text[:9] + "x")}))


def _fewer_edges(program: Program) -> Iterator[Program]:
    m = len(program.src)
    for size in sorted({m // 2, m // 4, 2, 1} - {0}, reverse=True):
        for begin in range(0, m, size):
            kept = [i for i in range(m) if not begin <= i < begin + size]
            if len(kept) < m:
                yield _with_edges(
                    program,
                    tuple(program.src[i] for i in kept),
                    tuple(program.dst[i] for i in kept),
                    program.n,
                )
    n = max([-1, *program.src, *program.dst]) + 1
    if 0 < n < program.n:
        yield _with_edges(program, program.src, program.dst, n)


def _with_edges(program: Program, src: tuple[int, ...], dst: tuple[int, ...], n: int) -> Program:
    def resized(name: str, recipe: Drawn) -> Drawn:
        if name in ("attr", "weight", "scale", "kept") or name.startswith("edge."):
            return replace(recipe, shape=(len(src), *recipe.shape[1:]))
        return (
            replace(recipe, shape=(n, *recipe.shape[1:]))
            if name in ("x", "seen") or name.startswith("node.")
            else recipe
        )

    return replace(
        program,
        src=src,
        dst=dst,
        n=n,
        arrays={name: resized(name, a) for name, a in program.arrays.items()},
    )


def _settings(program: Program) -> Iterator[Program]:
    for name in program.bounds:
        yield replace(program, bounds={n: x for n, x in program.bounds.items() if n != name})
    if program.training:
        yield replace(program, training=False)
    for name in (*OF_VIEWS, "weight"):
        if name in program.arrays:
            yield replace(program, arrays={n: a for n, a in program.arrays.items() if n != name})


def _narrower(program: Program) -> Iterator[Program]:
    """Arrays in which an axis of one length is shorter everywhere, and rows stay."""
    of_rows = lambda name: (
        name in ("x", "attr", "weight", *OF_VIEWS) or name.startswith(("node.", "edge."))
    )
    case = program.case()
    lengths = {d for name, a in case.arrays.items() for d in a.shape[of_rows(name) :]}
    for d in sorted(lengths, reverse=True):
        for shorter in sorted({1, 2, d // 2, d - 1} - {0}):
            if shorter < d:
                yield replace(
                    program,
                    arrays={
                        name: replace(
                            a,
                            shape=a.shape[: of_rows(name)]
                            + tuple(shorter if x == d else x for x in a.shape[of_rows(name) :]),
                        )
                        for name, a in program.arrays.items()
                    },
                )
