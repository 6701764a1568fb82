"""The pages of the documentation: width, words, paths, figures, listings, and the built site."""

from __future__ import annotations

import ast
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
]
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


def prose(page: Path) -> str:
    """A page without blocks of code, whose lines keep their numbers."""
    return FENCE.sub(lambda block: "\n" * block[0].count("\n"), page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_lines_are_short(page: Path) -> None:
    """Prose; blocks of code may be as wide as code elsewhere, and a row of a table is one line."""
    texts = (prose(page), WIDTH), (page.read_text(encoding="utf-8"), CODE_WIDTH)
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


@pytest.mark.second
def test_site_builds_and_a_dead_link_fails(tmp_path: Path) -> None:
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
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)

    done = build(DOCS)
    assert not done.returncode, done.stderr
    page = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "A layer of your own" in page
    reference = "".join(
        page.read_text(encoding="utf-8") for page in (tmp_path / "site" / "api").iterdir()
    )
    entries = re.findall(r'<dt [^>]*id="gt\.(\w+)"', reference)
    assert sorted(entries) == sorted(set(gt.__all__) - {"__version__"})
    # nothing is fetched by a reader: no script, style, font or picture from another host
    assert not re.findall(r'(?:src|<link[^>]* href)="(?:https?:)?//', page + reference)

    planted = tmp_path / "planted"
    planted.mkdir()
    shutil.copy(DOCS / "conf.py", planted)
    (planted / "index.md").write_text(
        "# One\n\n[dead](#nowhere) and [gone](gone.md)\n", encoding="utf-8"
    )
    done = build(planted)
    assert done.returncode and "nowhere" in done.stderr and "gone.md" in done.stderr
