"""Draws the figures of these pages: ``python docs/figures/draw.py``. A test compares the files."""

from __future__ import annotations

import ast
import json
import sys
from functools import partial
from graphlib import TopologicalSorter
from pathlib import Path

from accuracy import accuracy
from bars import bars
from curves import curves
from peers import peers
from svg import Figure

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# the part of a room that ops may import
DATA = "graphtheta/graph/data"
# most rooms of a band that are drawn in one line, with arrows, and rooms in each of several lines
LINE, SEVERAL = 9, 6
BANDS = [
    ("graphtheta/", "amber", "commands and training"),
    ("models/", "violet", "published layers"),
    ("engine/", "blue", "the distributed machine"),
    ("ops/", "green", "local numerics"),
    ("data", "red", "graphs and their files"),
]


def rooms() -> dict[str, tuple[str, set[str]]]:
    """The band of each room of the source and the rooms that it imports, by folder name."""
    tops = {
        "graphtheta": "graphtheta",
        "models": "graphtheta.models",
        "engine": "graphtheta.engine",
        "ops": "graphtheta.ops",
    }
    inside = (
        path.parent
        for top in tops
        if top != "models"
        for path in (ROOT / top).glob("*/__init__.py")
    )
    folders = [ROOT / "models", ROOT / DATA, *inside]
    names = {}
    for folder in (f.relative_to(ROOT).as_posix() for f in folders):
        top, _, rest = folder.partition("/")
        names[f"{tops[top]}.{rest}".strip(".").replace("/", ".")] = folder
    found = {}
    for folder in sorted(names.values()):
        files = [
            file
            for file in (ROOT / folder).rglob("*.py")
            if folder == DATA or not file.is_relative_to(ROOT / DATA)
        ]
        imported = {_room(module, names) for file in files for module in _imports(file)}
        found[folder] = (
            "data" if folder == DATA else f"{folder.split('/')[0]}/",
            imported - {folder, "", "graphtheta/base"},
        )
    del found["graphtheta/base"]
    return found


def _imports(file: Path) -> set[str]:
    """Absolute names of the modules that a file imports."""
    parts = file.relative_to(ROOT).parts[:-1]
    own = list(parts) if parts[0] == "graphtheta" else ["graphtheta", *parts]
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = own[: len(own) - node.level + 1] if node.level else []
            found |= {
                ".".join([*base, *([node.module] if node.module else []), alias.name])
                for alias in node.names
            }
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def _room(module: str, names: dict[str, str]) -> str:
    """The folder of the room that a module lies in, or nothing."""
    while module and module not in names:
        module = module.rpartition(".")[0]
    return names.get(module, "")


def direct(graph: dict[str, set[str]]) -> dict[str, list[str]]:
    """The arrows that no chain of other arrows stands for, from rooms in an order that has each
    before what it imports.
    """
    order = list(
        TopologicalSorter(
            {name: sorted(others) for name, others in sorted(graph.items())}
        ).static_order()
    )[::-1]
    reached: dict[str, set[str]] = {}
    for name in order[::-1]:
        reached[name] = graph[name].union(*(reached[other] for other in graph[name]))
    # an arrow is left out if a room on the way reaches its end
    return {
        name: [
            other
            for other in order
            if other in graph[name].difference(*(reached[o] for o in graph[name]))
        ]
        for name in order
    }


def layers() -> Figure:
    """Rooms in their layers, each before those that it imports; a band of one line has an arrow for
    each import that no chain shows.
    """
    found = rooms()
    left = 192
    step = 40
    y = 12
    bands = []
    for band, colour, what in BANDS:
        inside = {
            name: others & {n for n, (b, _) in found.items() if b == band}
            for name, (b, others) in found.items()
            if b == band
        }
        across = len(inside) if len(inside) <= LINE else SEVERAL
        bands.append((band, colour, what, direct(inside), across, -(-len(inside) // across)))
    height = sum(54 + step * lines for *_, lines in bands) + 66
    figure = Figure(
        1000, height, "The layers: rooms in five bands; imports point down or to the right"
    )
    for band, colour, what, arrows, across, lines in bands:
        high = 38 + step * lines
        figure.box(12, y, 976, high, "", "paper")
        figure.text(26, y + 34, band, size=15, bold=True)
        figure.text(26, y + 54, what, size=11, soft=True)
        gap = 14 if lines > 1 else 18
        width = min(112, (976 - left + gap) / across - gap)
        at = {
            name: (left + k % across * (width + gap), y + 30 + k // across * step)
            for k, name in enumerate(arrows)
        }
        for name, (x, top) in at.items():
            figure.box(x, top, width, 30, name.split("/")[-1], colour, 12)
            for other in arrows[name] if lines == 1 else ():
                if at[other][0] - x < width + gap + 1:
                    figure.arrow((x + width, top + 15), (at[other][0] - 1, top + 15))
                else:
                    figure.arrow(
                        (x + width * 0.8, top), (at[other][0] + width * 0.2, top - 1), bend=22
                    )
        y += high + 16
        figure.arrow((86, y - 16), (86, y - 1))
    figure.box(12, y, 976, 40, "", "plain")
    figure.text(26, y + 25, "base", size=15, bold=True)
    figure.text(
        left,
        y + 25,
        "errors, random numbers, logger, console, arrays from files: the standard library and NumPy"
        " only",
    )
    return figure


def halo() -> Figure:
    """The blocks and the halo."""
    f = Figure(
        1000,
        400,
        "Rows of two workers, the two moves between them, and the four blocks of edges of one"
        " worker",
    )
    f.text(24, 34, "Rows of two workers, and the two moves between them", bold=True, size=14)
    for y, name, own, mirrors in (
        (60, "worker 0", "masters of 0", "mirrors of 1"),
        (190, "worker 1", "masters of 1", "mirrors of 0"),
    ):
        f.text(24, y + 27, name)
        f.box(100, y, 190, 44, own, "blue")
        f.box(290, y, 110, 44, mirrors, "amber")
    f.text(410, 78, "rows [0, n_masters),", size=11, soft=True)
    f.text(410, 94, "then the halo", size=11, soft=True)
    f.arrow((200, 190), (316, 106))
    f.arrow((376, 106), (260, 189))
    f.text(196, 168, "to_mirrors", "end", mono=True)
    f.text(334, 168, "to_masters", mono=True)
    f.text(24, 270, "to_mirrors copies master rows to the workers that read them.", size=12)
    f.text(
        24,
        290,
        "to_masters sends mirror rows to their owners, which add them in rank order.",
        size=12,
    )
    f.text(
        24, 310, "Each is the adjoint of the other: both use the same two lists of rows.", size=12
    )
    f.text(568, 34, "The four blocks of edges of one worker", bold=True, size=14)
    x0 = 660
    y0 = 84
    w = 150
    h = 110
    f.text(x0 + w / 2, y0 - 10, "into masters", "middle")
    f.text(x0 + 1.5 * w, y0 - 10, "into mirrors", "middle")
    f.text(x0 - 10, y0 + h / 2, "from", "end")
    f.text(x0 - 10, y0 + h / 2 + 16, "masters", "end")
    f.text(x0 - 10, y0 + 1.5 * h, "from", "end")
    f.text(x0 - 10, y0 + 1.5 * h + 16, "mirrors", "end")
    f.box(x0, y0, w, h, "core\nreads own rows\nwaits for nothing", "blue", 12)
    f.box(x0 + w, y0, w, h, "block 2\npartial sums,\nsent to the owner", "amber", 12)
    f.box(x0, y0 + h, w, h, "block 1\nreads source columns\nfrom the halo", "amber", 12)
    f.box(x0 + w, y0 + h, w, h, "block 3\nboth\n(vertex-cut only)", "red", 12)
    f.text(568, 336, "1d-src fills core and 2: the owner of the source has the edge.", size=12)
    f.text(568, 356, "1d-dst fills core and 1: the owner of the destination has the edge.", size=12)
    f.text(
        568, 376, "In each block, each end is in one array, so a kernel needs no branch.", size=12
    )
    return f


def frame() -> Figure:
    """The prefix frame."""
    f = Figure(
        940,
        372,
        "Rows of a view in prefix order, and the rows that each of two supersteps reads and writes",
    )
    parts = [
        (150, "targets", "blue"),
        (230, "needed 1 hop before the end", "green"),
        (330, "needed 2 hops before the end", "amber"),
    ]
    x = 190.0
    edges = [190.0]
    f.text(24, 42, "Rows of the view", bold=True, size=14)
    for w, name, colour in parts:
        f.box(x, 24, w, 38, name, colour, 12)
        x += w
        edges.append(x)
    f.text(190, 80, "row 0", size=11, soft=True)
    bars = [
        ("features x", 3, "graph.x"),
        ("after superstep 1", 2, "h1 = first(...)"),
        ("after superstep 2", 1, "h2"),
    ]
    for i, (name, k, code) in enumerate(bars):
        y = 108 + i * 70
        f.text(24, y + 24, name)
        for j in range(k):
            f.box(edges[j], y, edges[j + 1] - edges[j], 36, "", parts[j][2])
        f.text(edges[0] + 10, y + 23, code, size=12, mono=True)
        if i < 2:
            f.arrow((edges[k] - 60, y + 36), (edges[k - 1] - 20, y + 69))
            f.text(
                edges[k - 1] + 16,
                y + 93,
                "made of messages along the edges of level " + str(i + 1),
                size=11,
                soft=True,
            )
    f.text(24, 336, "The rows of every depth are a prefix of the rows before it.")
    f.text(
        24, 356, "A residual connection, h2 + h1, cuts h1 to its first rows; no index is needed."
    )
    return f


def overlap() -> Figure:
    """Overlap in a superstep."""
    f = Figure(
        980,
        430,
        "What one worker computes and what is on the network during gather and sum, forward and"
        " backward",
    )

    def lane(
        y: float,
        title: str,
        work: list[tuple[float, float, str, str]],
        flying: list[tuple[float, float, str]],
    ) -> None:
        f.text(24, y + 4, title, bold=True, size=14)
        f.text(24, y + 46, "computes")
        f.text(24, y + 110, "network")
        for x, w, name, colour in work:
            f.box(x, y + 20, w, 46, name, colour, 11)
        for k, (x, w, name) in enumerate(flying):
            f.box(x, y + 84 + 30 * (k % 2), w, 26, name, "plain", 11, mono=True)

    lane(
        28,
        "Forward",
        [
            (120, 34, "pack", "plain"),
            (154, 150, "edges into mirrors\nthat read no halo", "amber"),
            (304, 34, "pack", "plain"),
            (338, 260, "core edges", "blue"),
            (598, 170, "edges that\nread the halo", "amber"),
            (768, 110, "add partial\nsums, finish", "green"),
            (878, 80, "apply", "violet"),
        ],
        [(154, 330, "to_mirrors: columns read"), (338, 330, "to_masters: partial sums")],
    )
    lane(
        230,
        "Backward",
        [
            (120, 34, "pack", "plain"),
            (154, 170, "edges into masters\nfrom mirrors", "amber"),
            (324, 150, "edges into\nmirrors", "amber"),
            (474, 34, "pack", "plain"),
            (508, 270, "core edges", "blue"),
            (778, 110, "add halo\ngradients", "green"),
        ],
        [(154, 170, "to_mirrors"), (508, 270, "to_masters: gradients")],
    )
    f.text(
        120,
        412,
        "Boxes on the network are messages; the boxes above them are computed at the same time.",
        size=12,
    )
    return f


def compiler() -> Figure:
    """From gather to kernels."""
    f = Figure(
        980,
        392,
        "From a gather function through expression, plan and phases to three kernels and the cache"
        " of machine code",
    )
    f.text(24, 32, "In every pass", bold=True, size=14)
    f.box(24, 48, 140, 58, "gather(edge)\nwith symbols", "violet", 12)
    f.box(204, 48, 140, 58, "expression:\nprimitives, leaves", "violet", 12)
    f.box(384, 48, 140, 58, "structure:\nshapes, dtypes, keys", "violet", 12)
    f.arrow((164, 77), (203, 77))
    f.arrow((344, 77), (383, 77))
    f.box(820, 48, 136, 58, "bind operands,\nrun the phases", "violet", 12)
    f.arrow((524, 77), (819, 77))
    f.text(672, 68, "known: from the program cache", "middle", 11, soft=True)
    f.text(24, 148, "Once for a structure", bold=True, size=14)
    steps = [
        "split into phases:\nsoftmax in one\nor in two",
        "rewrite:\nsimplify,\nlinear maps",
        "hoist:\none-ended parts\nto node columns",
        "aggregator:\na monoid and its\nbackward state",
    ]
    f.arrow((454, 106), (454, 122), (10, 122), (10, 195), (23, 195))
    f.text(462, 120, "new", size=11, soft=True)
    for i, name in enumerate(steps):
        f.box(24 + i * 180, 162, 140, 66, name, "blue", 12)
        if i < 3:
            f.arrow((164 + i * 180, 195), (203 + i * 180, 195))
    f.text(24, 270, "Once for a phase, widths and dtype", bold=True, size=14)
    kernels = ["forward\nby receivers", "backward\nby receivers", "backward\nby senders"]
    f.arrow((634, 228), (634, 244), (10, 244), (10, 309), (23, 309))
    for i, name in enumerate(kernels):
        f.box(24 + i * 130, 282, 114, 54, name, "green", 12)
    f.text(24, 358, "generated source, in vectors of 64 bytes", size=11, soft=True)
    f.arrow((398, 309), (453, 309))
    f.box(454, 282, 110, 54, "Numba,\nLLVM", "green", 12)
    f.arrow((564, 309), (619, 309))
    f.box(620, 282, 130, 54, "machine code\non disk", "green", 12)
    f.arrow((750, 309), (946, 309), (946, 107))
    f.arrow((874, 162), (874, 107))
    f.box(806, 162, 132, 66, "reference back end:\nNumPy over\nchunks of edges", "amber", 12)
    f.arrow((704, 195), (805, 195), dashed=True)
    f.text(755, 186, "no fused form", "middle", 11, soft=True)
    f.text(454, 358, "a later run compiles nothing", size=11, soft=True)
    return f


def types() -> Figure:
    """From dicts to one numbering."""
    f = Figure(
        980,
        388,
        "Types and relations given as dicts, and the one numbering of nodes and of edges that they"
        " become",
    )
    f.text(24, 32, "Given: dicts by type and by relation", bold=True, size=14)
    kinds = [("paper", 90, 70, "blue"), ("author", 120, 0, "green"), ("subject", 50, 40, "amber")]
    y = 52.0
    for name, height, width, colour in kinds:
        f.text(24, y + height / 2 + 4, name)
        f.box(96, y, 30, height, "", colour)
        if width:
            f.box(136, y, width, height, "x", colour, 12)
        else:
            f.text(140, y + height / 2 + 4, "no features", size=11, soft=True)
        y += height + 14
    f.text(222, 100, "author writes paper", mono=True, size=12)
    f.text(222, 124, "paper has subject", mono=True, size=12)
    f.text(222, 148, "ids of each type from 0", size=11, soft=True)
    f.arrow((372, 176), (436, 176))
    f.text(450, 32, "Stored: one graph", bold=True, size=14)
    y = 52.0
    for code, (name, height, width, colour) in enumerate(kinds):
        f.box(450, y, 30, height, str(code), colour, 12)
        f.box(490, y, 110, height, "", "plain")
        if width:
            f.box(490 if code == 0 else 560, y, width, height, "", colour)
        f.text(612, y + height / 2 + 4, name, size=12)
        y += height
    f.text(450, y + 20, "type", mono=True, size=12)
    f.text(520, y + 20, "x: zero outside", size=12)
    f.text(520, y + 36, "of the own columns", size=12)
    x = 710.0
    rows = [
        ("relation", "", ""),
        ("0", "author", "paper"),
        ("1", "paper", "subject"),
        ("2", "paper", "author"),
        ("3", "subject", "paper"),
    ]
    for i, (code, src, dst) in enumerate(rows):
        top = 52 + i * 44
        if i:
            f.box(x, top, 60, 34, code, "violet", 12)
            f.text(x + 74, top + 22, f"{src} -> {dst}", size=12)
        else:
            f.text(x, top + 22, "relation", mono=True, size=12)
            f.text(x + 74, top + 22, "edges, in one numbering", size=12)
    f.text(x, 52 + 5 * 44 + 12, "2 and 3 are the inverse relations of 0 and 1", size=11, soft=True)
    return f


def example(results: Path) -> Figure:
    """The runs of an example: its metric by relation, or by epoch."""
    return (
        bars(results)
        if "relations" in json.loads(results.read_text(encoding="utf-8"))
        else curves(results)
    )


FIGURES = {
    "layers": layers,
    "halo": halo,
    "frame": frame,
    "overlap": overlap,
    "compiler": compiler,
    "types": types,
    "peers": peers,
    "accuracy": accuracy,
    **{
        f"example-{file.stem}": partial(example, file)
        for file in sorted((ROOT / "docs" / "examples" / "results").glob("*.json"))
    },
}

if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    for name, draw in FIGURES.items():
        (target / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")
