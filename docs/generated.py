"""Writes listings into pages: ``python docs/generated.py``. A test compares.

They are the rules between keys, in strategies.md, the map of packages, in architecture.md, and
generated source, in compiler.md; and the help of all commands, which the package has as a file. The
gather is in the first Python block of compiler.md. The source that Numba compiles for it is in
``linecache``, where tracebacks find its lines.
"""

from __future__ import annotations

import ast
import linecache
import re
import textwrap
from pathlib import Path
from typing import Any

from listing import put

import graphtheta as gt
from graphtheta.__main__ import COMMANDS
from graphtheta.cli.recorded import FILE, as_file
from graphtheta.run.job.job import Job
from graphtheta.run.job.rules import all_rules, in_words
from graphtheta.tasks.kinds.registry import readers

HERE = Path(__file__).resolve().parent
MAP = HERE / "architecture.md"
ROOT = HERE.parent
# packages whose subpackages are listed, in the order in which imports point down
TOPS = ("graphtheta", "models", "engine", "ops")
# columns of the map: of a name, and of a line
NAME, WIDTH = 28, 98
GATHER = re.compile(r"```python\n(.*?)```", re.DOTALL)
# columns before the loop over the edges of a row
LOOP = 20
# which part of which kernel a block shows: a word that only this kernel has, and the line at which
# the part begins
SHOWN = {
    "forward": ("state__total", " " * LOOP + "for k in"),
    "sender": ("gsrc", " " * LOOP + "for k in"),
}


def kernels(gather: str) -> list[str]:
    """The sources that a training step with a layer of the page generates."""
    names: dict[str, Any] = {}
    exec(gather, names)

    class Net(gt.Model):
        def __init__(self, d_in: int, d_out: int):
            self.start = gt.Parameter.glorot(d_in, 16)
            self.layer = names["Attention"]()
            self.end = gt.Parameter.glorot(16, d_out)

        def forward(self, graph: Any) -> Any:
            return self.layer(graph, graph.x @ self.start) @ self.end

    gt.Trainer(Net, gt.load("sbm:n_nodes=50,n_edges=200"), epochs=1).fit()
    return [
        "".join(entry[2])
        for name, entry in linecache.cache.items()
        if name.startswith("<graphtheta_kernel") and len(entry) == 4
    ]


def part(sources: list[str], word: str, begin: str) -> str:
    """The loop over the edges of one row, without its prefetches."""
    (source,) = [text for text in sources if word in text.split("def kernel(")[1].split(")")[0]]
    lines = source.split("def kernel(")[1].splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(begin))
    last = next(
        i for i, line in enumerate(lines) if i > first and not line.startswith(" " * (LOOP + 4))
    )
    unread = re.compile(r"\s+(later|far\w*|el|sl|se|ce|prefetch\(.*) ?(=|$)|\s+(if later|prefetch)")
    return "\n".join(line[LOOP:] for line in lines[first:last] if not unread.match(line))


def listing_of_packages() -> str:
    """The packages with the first lines of their docstrings."""
    folders = [
        folder
        for top in TOPS
        for folder in (
            ROOT / top,
            *sorted(path.parent for path in (ROOT / top).glob("*/__init__.py")),
        )
    ]
    lines = []
    for folder in folders:
        tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
        text = (ast.get_docstring(tree) or "").split("\n\n")[0]
        name = f"{folder.relative_to(ROOT).as_posix()}/".ljust(NAME - 1)
        lines += textwrap.wrap(
            " ".join(text.split()),
            WIDTH,
            initial_indent=f"{name} ",
            subsequent_indent=" " * NAME,
        )
    return "\n".join(lines)


def with_map(page: str) -> str:
    """The page with the packages as they are now."""
    return put(page, "map", listing_of_packages())


def with_rules(page: str) -> str:
    """The page of strategies with the rules of all keys."""
    rules = all_rules(Job.model_fields, readers())
    width = max(map(len, rules))
    lines = [
        textwrap.fill(f"{key:{width}}  {in_words(each)}", 96, subsequent_indent=" " * (width + 2))
        for key, each in rules.items()
    ]
    return put(page, "rules", "\n".join(lines))


def with_source(page: str) -> str:
    """The page of the compiler with the source that is generated now."""
    gather = GATHER.search(page)
    assert gather is not None
    sources = kernels(gather[1])
    for name, (word, begin) in SHOWN.items():
        page = put(page, name, part(sources, word, begin))
    return page


PAGES = {
    HERE / "strategies.md": with_rules,
    MAP: with_map,
    HERE / "compiler.md": with_source,
}

if __name__ == "__main__":
    FILE.write_text(as_file(COMMANDS), encoding="utf-8")
    for path, filled in PAGES.items():
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
