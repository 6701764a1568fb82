"""The pages of the documentation: width, words, paths, figures, listings, and the built site."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import graphtheta as gt

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "bench/README.md")),
    *sorted(DOCS.rglob("*.md")),
    *sorted(DOCS.rglob("*.ipynb")),
]
NOTEBOOKS = [page for page in PAGES if page.suffix == ".ipynb"]
WIDTH, CODE_WIDTH = 100, 140
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
# commands that must stand in one line
LONG = re.compile(r"python3 -m venv |.bench/\w+/bin/pip install ")
TOP = ("graphtheta", "models", "engine", "ops", "tests", "bench", "deploy", "docs")
PATH = re.compile(rf"`((?:{'|'.join(TOP)})/[\w./-]*|[\w-]+\.py)`")
OF_USERS = ("my_layers.py", "net.py", "train.py")
# words that the documents once had, with those of the field that replaced them
FORBIDDEN = {
    r"\bstands? for (?:several|others?|edges)\b": "has an importance weight",
    r"(?<!random )(?<!\")\bwalk(?:s|ed|ing)?\b": "traverse; with back: backpropagate",
    r"\bwires?\b": "transport",
    r"\bviews? (?:is|are) grown\b|\bgrow(?:s|n|ing)? (?:a |the )?views?\b|\bwidens?\b": (
        "expand the frontier"
    ),
    r"\bunder way\b": "active, in flight",
    r"\bspreads? (?:of|is a|holds)\b|\bthe spread\b": "backward state",
    r"\bput(?:s)? off\b": "lazy elementwise fusion",
    r"\bmaster rules?\b": "node partitioner",
    r"\bedge rules?\b": "edge placement",
    r"\bletters?\b": "control message",
    r"\bmail\b": "message buffer",
    r"\bis told\b|\bare told\b": "is given, is reported",
    r"\bwithout a word\b": "silently",
    r"\b[Ww]hoever waits\b": "a rank that exceeds its limit",
    r"\bpieces\b": "parts",
    r"\bmade again\b": "recomputed",
}


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports the scripts of docs/ by name."""
    monkeypatch.syspath_prepend(DOCS)
    monkeypatch.syspath_prepend(DOCS / "figures")
    yield import_module
    for name in ("draw", "bars", "curves", "peers", "svg", "generated", "paths", "listing"):
        sys.modules.pop(name, None)


def cells(page: Path, kind: str) -> list[dict[str, Any]]:
    """The cells of a notebook of a kind."""
    every = json.loads(page.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in every if cell["cell_type"] == kind]


def text_of(page: Path) -> str:
    """A page, of a notebook what is between its blocks of code."""
    if page.suffix != ".ipynb":
        return page.read_text(encoding="utf-8")
    return "\n".join("".join(cell["source"]) for cell in cells(page, "markdown"))


def prose(page: Path) -> str:
    """A page without blocks of code, whose lines keep their numbers."""
    return FENCE.sub(lambda block: "\n" * block[0].count("\n"), text_of(page))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_lines_are_short(page: Path) -> None:
    """Prose; blocks of code may be as wide as code elsewhere, and a row of a table is one line."""
    texts = (prose(page), WIDTH), (text_of(page), CODE_WIDTH)
    faults = [
        f"{page.name}:{i} {len(line)} columns"
        for text, width in texts
        for i, line in enumerate(text.splitlines(), 1)
        if len(line) > width and not LONG.search(line) and not line.startswith("|")
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_words_are_those_of_the_field(page: Path) -> None:
    faults = [
        f"{page.name}:{i} {line.strip()!r}: write {better}"
        for i, line in enumerate(prose(page).splitlines(), 1)
        for word, better in FORBIDDEN.items()
        if re.search(word, line)
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("page", NOTEBOOKS, ids=lambda page: page.name)
def test_notebooks_are_stored_without_outputs(page: Path) -> None:
    """They run when the site is built."""
    code = cells(page, "code")
    assert code
    assert not [cell for cell in code if cell["outputs"] or cell["execution_count"] is not None]


def test_words_are_found() -> None:
    planted = (
        "it stands for several; walks back; wires; grow a view; under way; the spread; put off;"
        " master rule; edge rules; letters; mail; is told; without a word; Whoever waits; pieces;"
        " made again"
    )
    assert [word for word in FORBIDDEN if not re.search(word, planted)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_paths_exist(page: Path) -> None:
    """A path in backticks is a file or folder of the repository; a bare name of a file lies beside
    the page.
    """
    missing = []
    for i, line in enumerate(prose(page).splitlines(), 1):
        for path in PATH.findall(line):
            beside = "/" not in path and ((page.parent / path).exists() or path in OF_USERS)
            if not beside and not (ROOT / path).exists():
                missing.append(f"{page.name}:{i} {path}")
    assert not missing, "\n".join(missing)


@pytest.mark.second
def test_figures_are_drawn_from_the_source(scripts: Any) -> None:
    """After a change of packages: make figures."""
    draw = scripts("draw")
    kept = {
        name: (DOCS / "figures" / f"{name}.svg").read_text(encoding="utf-8")
        for name in draw.FIGURES
    }
    different = [name for name, made in draw.FIGURES.items() if kept[name] != made().svg()]
    assert not different, f"{different}: run python docs/figures/draw.py"


def test_the_map_has_every_package(scripts: Any) -> None:
    """After a change of packages or of their docstrings: python docs/generated.py."""
    generated = scripts("generated")
    page = generated.MAP.read_text(encoding="utf-8")
    assert generated.with_map(page) == page, "run python docs/generated.py"
    listing = generated.listing_of_packages()
    missing = [room for room in scripts("draw").rooms() if f"{room}/" not in page]
    assert not missing and "models/ " in listing, missing


def test_arrows_that_follow_from_others_are_left_out(scripts: Any) -> None:
    assert scripts("draw").direct({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {
        "a": ["b"],
        "b": ["c"],
        "c": [],
    }


@pytest.mark.second
@pytest.mark.fused
def test_listings_are_what_is_generated() -> None:
    """In a new interpreter, which has compiled nothing."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from generated import PAGES\n"
        "for page, filled in PAGES.items(): assert filled(page.read_text()) == page.read_text()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(DOCS)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert not done.returncode, f"run python docs/generated.py\n{done.stderr}"


@cache
def defined(path: str) -> set[str]:
    """Names of the functions of a file, and of the methods of its classes."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    found = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for cls in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        found |= {
            f"{cls.name}.{node.name}" for node in cls.body if isinstance(node, ast.FunctionDef)
        }
    return found


def test_functions_on_the_paths_exist() -> None:
    """After a change of functions: python docs/paths.py."""
    page = (DOCS / "paths.md").read_text(encoding="utf-8")
    steps = re.findall(r"^ *(\S+) +((?:graphtheta|engine|ops|models)/\S+\.py)$", page, re.MULTILINE)
    assert len(steps) > 50
    missing = [
        f"{path}: {name}"
        for name, path in steps
        if not (ROOT / path).exists() or name not in defined(path)
    ]
    assert not missing, "run python docs/paths.py\n" + "\n".join(missing)


def test_published_figures_stand_beside_the_results() -> None:
    """After a change of results: python bench/papers/page.py."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); import page; print(page.text(), end='')"
    words = [sys.executable, "-c", code, str(ROOT / "bench" / "papers")]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    assert (DOCS / "papers.md").read_text(encoding="utf-8") == done.stdout, (
        "run python bench/papers/page.py"
    )


# what a reader may search for, and a page with this title or heading
SEARCHED = {
    "fraud": "tasks",
    "recommendations": "examples/recommend",
    "molecules": "examples/molecules",
    "knowledge graphs": "knowledge",
    "cheat sheet": "cheat_sheet",
    "coming from dgl": "coming_from_dgl",
}


def titles(site: Path) -> dict[str, set[str]]:
    """Pages by title and heading in lower case, as the search of the site has them."""
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    known = json.loads(index.removeprefix("Search.setIndex(").removesuffix(")"))
    names = known["docnames"]
    return {
        title.lower(): {names[number] for number, _ in places}
        for title, places in known["alltitles"].items()
    }


@pytest.mark.second
def test_site_builds_and_a_dead_link_fails(tmp_path: Path) -> None:
    for library in ("sphinx", "furo", "myst_nb", "ipykernel", "sphinx_copybutton"):
        pytest.importorskip(library)

    def build(source: Path) -> subprocess.CompletedProcess[str]:
        words = [
            sys.executable,
            "-m",
            "sphinx",
            "-q",
            "-W",
            "--keep-going",
            "-b",
            "html",
            str(source),
            str(tmp_path / "site"),
        ]
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=900)

    done = build(DOCS)
    assert not done.returncode, done.stderr
    site = tmp_path / "site"
    pages = {
        page.relative_to(site).as_posix(): page.read_text(encoding="utf-8")
        for page in site.rglob("*.html")
    }
    assert "A layer of your own" in pages["index.html"]
    reference = "".join(text for name, text in pages.items() if name.startswith("api/"))
    entries = re.findall(r'<dt [^>]*id="gt\.(\w+)"', reference)
    assert sorted(entries) == sorted(set(gt.__all__) - {"__version__"})
    # nothing is fetched by a reader: no script, style, font or picture from another host
    fetched = re.compile(r'(?:src|<link[^>]* href)="(?:https?:)?//')
    assert not [name for name, text in pages.items() if fetched.search(text)]
    assert all("copybutton.js" in text for text in pages.values())
    for notebook in NOTEBOOKS:
        page = pages[f"notebooks/{notebook.stem}.html"]
        # curves, and tables of objects
        assert '<img alt="' in page or 'by epoch"' in page, notebook
        assert "<table><caption>" in page, notebook
        assert "Warning" not in page and "epoch/s" not in page, notebook
    found = titles(site)
    wrong = {
        words: page
        for words, page in SEARCHED.items()
        if not any(page in places for title, places in found.items() if words in title)
    }
    assert not wrong

    planted = tmp_path / "planted"
    planted.mkdir()
    shutil.copy(DOCS / "conf.py", planted)
    (planted / "index.md").write_text(
        "# One\n\n[dead](#nowhere) and [gone](gone.md)\n", encoding="utf-8"
    )
    done = build(planted)
    assert done.returncode and "nowhere" in done.stderr and "gone.md" in done.stderr
