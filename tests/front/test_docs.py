"""The documentation runs: Python blocks do what they say, and commands are understood.

The Python blocks of a file run from top to bottom in one namespace. A block that begins with ``#
file: NAME`` is written to that file instead, so that later blocks can import it. A ``text`` block
right below a Python block is what that block prints. A file that a page includes is a Python block.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

import graphtheta.cli.command
import graphtheta.cli.datasets
import graphtheta.cli.doctor
import graphtheta.cli.launch
import graphtheta.cli.predict
import graphtheta.cli.report
import graphtheta.cli.runs
from graphtheta.__main__ import main
from graphtheta.engine.train.metrics import METRICS
from graphtheta.graph.datasets.download import Downloaded
from graphtheta.inspect.reports.runs import Comparison
from graphtheta.models.registry import MODELS
from graphtheta.ops import PRIMITIVES
from graphtheta.run.job.job import Job
from graphtheta.tasks.kinds.registry import TASKS

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "reference").glob("*.md")),
    *sorted((ROOT / "docs" / "examples").glob("*.md")),
]
FIRST_HOUR = ROOT / "docs" / "first_hour.md"
# the words of the page, for the Python that runs the tests
SHELL = """
graphtheta() { "$PYTHON" -m graphtheta "$@"; }
python() { "$PYTHON" "$@"; }
set -euo pipefail
"""
FENCE = re.compile(r"^```([\w{}-]*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INCLUDED = re.compile(r"^```\{literalinclude\} (\S+\.py)\n.*?^```$", re.MULTILINE | re.DOTALL)
LIBRARY = re.compile(r"^import torch$", re.MULTILINE)
COMMAND = re.compile(r"^(?:mpiexec -n \d+ )?graphtheta( .*)$", re.MULTILINE)


# pages whose blocks run on compiled kernels, since their operations have kernels of their own. The
# other pages are about the numbers, which are the same on the reference, and compiling for them
# takes more time than running; what a user runs first is compiled in the second stage
COMPILED = ("extending", "compiler")
# pages whose blocks take longest
LONG = ("layers", "messages", "partition", "extending")


def marks_of(page: Path) -> list[pytest.MarkDecorator]:
    reference = [] if page.stem in COMPILED else [pytest.mark.reference]
    return [*reference, *([pytest.mark.second] if page.stem in LONG else [])]


def with_included(page: Path) -> str:
    """The text of a page, with the Python files that it includes as blocks."""

    def block(directive: re.Match[str]) -> str:
        code = (page.parent / directive[1]).read_text(encoding="utf-8")
        return f"```python\n{code}```"

    return INCLUDED.sub(block, page.read_text(encoding="utf-8"))


def python_blocks(text: str) -> list[tuple[int, str, str | None]]:
    """Line, code and expected output of each Python block."""
    fences = list(FENCE.finditer(text))
    found = []
    for fence, following in zip_longest(fences, fences[1:]):
        if fence[1] != "python":
            continue
        told = (
            following is not None
            and following[1] == "text"
            and not text[fence.end() : following.start()].strip()
        )
        found.append(
            (
                text.count("\n", 0, fence.start()) + 2,
                fence[2],
                following[2] if following is not None and told else None,
            )
        )
    return found


def commands() -> list[str]:
    """Every line of a shell block that runs graphtheta."""
    fences = [fence for page in PAGES for fence in FENCE.finditer(page.read_text(encoding="utf-8"))]
    blocks = [fence[2].replace("\\\n", " ") for fence in fences if fence[1] == "sh"]
    return list(
        dict.fromkeys(
            line.group(1).split(" #")[0].strip()
            for block in blocks
            for line in COMMAND.finditer(block)
        )
    )


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=marks_of(page), id=page.name) for page in PAGES]
    + [pytest.param(ROOT / "README.md", marks=pytest.mark.second, id="README.md compiled")],
)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    modules = set(sys.modules)
    registries = [(table, set(table)) for table in (PRIMITIVES, METRICS, TASKS, MODELS)]
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        for line, code, expected in python_blocks(with_included(page)):
            file = re.match(r"# file: (\S+)\n", code)
            if file:
                (tmp_path / file[1]).write_text(code, encoding="utf-8")
                continue
            # programs for libraries that the first stage has not run in the second one
            if LIBRARY.search(code):
                continue
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                # numbers of lines as in the page, for tracebacks
                exec(compile("\n" * (line - 1) + code, str(page), "exec"), names)
            if expected is not None:
                assert said.getvalue() == expected, f"{page.name}:{line}"
    finally:
        for table, known in registries:
            for name in set(table) - known:
                del table[name]
        for name in set(sys.modules) - modules:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
                del sys.modules[name]


def trainings() -> list[str]:
    """The trainings on generated graphs, which need no file, no run and not many processors."""
    files = re.compile(r"\.(py|store)\b|--(preset|resume|seeds|stage-threads|dataset (?!sbm))")
    return [
        command
        for command in commands()
        if re.match("train", command) and not files.search(command)
    ]


@pytest.mark.second
@pytest.mark.reference
@pytest.mark.parametrize("command", trainings())
def test_trainings_run(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For an epoch on one worker: whether keys fit the graph is only seen when it is there."""
    monkeypatch.chdir(tmp_path)
    # of a process that has run many tests, which is larger than that of a reader
    roomy = ["--inference-memory", "64"] if "--inference-memory" in command else []
    # the last one of a flag that is given twice counts
    assert main([*shlex.split(command), *roomy, "--epochs", "1"]) == 0


@pytest.mark.parametrize("command", commands())
def test_commands_are_understood(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The words are read and make a job; nothing is run."""
    monkeypatch.setattr(graphtheta.__main__, "run_main", lambda program: 0)
    for module in (graphtheta.cli.command, graphtheta.cli.predict):
        monkeypatch.setattr(module, "job_of", lambda run, keys, trust=False: Job(**keys))
    monkeypatch.setattr(
        graphtheta.cli.datasets,
        "obtained",
        lambda name, data_dir, source: Downloaded(Path(name), (), recorded=False),
    )
    monkeypatch.setattr(graphtheta.cli.doctor, "doctor", lambda argv: 0)
    monkeypatch.setattr(graphtheta.cli.report, "report", lambda argv: 0)
    monkeypatch.setattr(graphtheta.cli.runs, "compare_runs", lambda folder: Comparison([], {}))
    monkeypatch.setattr(graphtheta.cli.launch.Restarts, "run", lambda self: 0)
    assert main(shlex.split(command)) == 0


def test_blocks_are_found() -> None:
    text = "```python\na\n```\n\n```text\nb\n```\n\n```python\nc\n```\nword\n\n```text\nd\n```\n"
    assert python_blocks(text) == [(2, "a\n", "b\n"), (10, "c\n", None)]
    assert commands()


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(
            r"\]\(([^)#\s]+)(?:#[^)]*)?\)", FENCE.sub("", page.read_text(encoding="utf-8"))
        ):
            assert target.startswith("http") or (page.parent / target).exists(), (
                f"{page.name}: {target}"
            )


def test_pages_of_the_site_lead_to_pages_of_the_site() -> None:
    """The site is made of docs/ alone: a text elsewhere is no page, and the link a warning."""
    site = ROOT / "docs"
    for page in sorted(site.rglob("*.md")):
        for target in re.findall(
            r"\]\(([^)#:\s]+\.md)(?:#[^)]*)?\)", FENCE.sub("", page.read_text(encoding="utf-8"))
        ):
            assert (page.parent / target).resolve().is_relative_to(site), f"{page.name}: {target}"


def test_no_heading_stands_twice_on_a_page() -> None:
    for page in (*PAGES, ROOT / "bench" / "README.md"):
        headings = re.findall(
            r"^#+ .*", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE
        )
        twice = [name for name, count in Counter(headings).items() if count > 1]
        assert not twice, f"{page.name}: {twice}"


@pytest.mark.second
def test_the_commands_of_the_first_hour(tmp_path: Path) -> None:
    """They run in their order and as they stand there, and their predictions are right."""
    text = FIRST_HOUR.read_text(encoding="utf-8")
    for program in INCLUDED.findall(text):
        shutil.copy(FIRST_HOUR.parent / program, tmp_path)
    commands = [fence[2] for fence in FENCE.finditer(text) if fence[1] == "sh"]
    done = subprocess.run(
        ["bash", "-c", SHELL + "".join(commands)],
        cwd=tmp_path,
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    with (tmp_path / "accounts_may.csv").open(newline="") as file_of_may:
        accounts = [row["account"] for row in csv.DictReader(file_of_may)]
    with (tmp_path / "may.csv").open(newline="") as file_of_predictions:
        predictions = list(csv.DictReader(file_of_predictions))
    assert [row["id"] for row in predictions] == accounts
    # every third account leaves, which no column says
    right = [row["class"] == ("no", "yes")[i % 3 == 0] for i, row in enumerate(predictions)]
    assert sum(right) > 0.8 * len(right)
    assert (tmp_path / "april" / "report.html").is_file()


def test_results_of_the_page_have_commands() -> None:
    """Every command of the table of results is one that the page runs."""
    text = FIRST_HOUR.read_text(encoding="utf-8")
    told = re.findall(r"^\| .* \| `(graphtheta [\w -]+)` \|", text, re.MULTILINE)
    code = " ".join(fence[2] for fence in FENCE.finditer(text) if fence[1] == "sh")
    assert len(told) == 7
    for command in told:
        assert all(word in code for word in command.split()[1:]), command
