"""Only one module creates, replaces and removes files, as read from the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted(
    path
    for folder in ("graphtheta", "ops", "engine", "models")
    for path in (ROOT / folder).rglob("*.py")
)
# the kernel cache has stricter rules of its own; a picture is written into a file that is open; a
# knob of the kernel, /proc/self/clear_refs, is no file
FREE = {
    "graphtheta/base/atomic.py",
    "graphtheta/base/picture.py",
    "graphtheta/base/private.py",
    "ops/compile/cache.py",
    "graphtheta/partitioners/report.py",
}
CHANGING = {
    "os": {
        "unlink",
        "remove",
        "rmdir",
        "removedirs",
        "rename",
        "renames",
        "replace",
        "mkdir",
        "makedirs",
        "link",
        "symlink",
        "mkfifo",
        "mknod",
        "truncate",
    },
    "shutil": {"rmtree", "move", "copy", "copy2", "copyfile", "copytree", "copymode", "copystat"},
    "tempfile": {
        "mkdtemp",
        "mkstemp",
        "TemporaryFile",
        "NamedTemporaryFile",
        "TemporaryDirectory",
        "SpooledTemporaryFile",
    },
    "pa": {"OSFile"},
}
METHODS = {
    "unlink",
    "rmdir",
    "rename",
    "mkdir",
    "touch",
    "write_text",
    "write_bytes",
    "symlink_to",
    "hardlink_to",
    "link_to",
    "savefig",
}
FLAGS = {"O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND"}


def faults(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of each call that makes, changes, renames or removes a file, and of each import
    of such a function.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in CHANGING:
            yield from (
                (node.lineno, alias.name)
                for alias in node.names
                if alias.name in CHANGING[node.module]
            )
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        name = (
            called.attr
            if isinstance(called, ast.Attribute)
            else called.id
            if isinstance(called, ast.Name)
            else ""
        )
        owner = (
            called.value.id
            if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name)
            else ""
        )
        if owner in CHANGING and name in CHANGING[owner]:
            # what pyarrow opens to read has no mode
            if owner != "pa" or len(node.args) > 1:
                yield node.lineno, f"{owner}.{name}"
        elif isinstance(called, ast.Attribute) and name in METHODS:
            yield node.lineno, name
        elif (
            name == "replace"
            and owner != "dataclasses"
            and len(node.args) == 1
            and not node.keywords
        ):
            yield node.lineno, "replace"
        elif name == "open" and (owner == "os" or not owner or isinstance(called, ast.Attribute)):
            yield from ((node.lineno, f"open({mode!r})") for mode in modes(node, owner))


def modes(call: ast.Call, owner: str) -> list[str]:
    """The modes or flags of a call of open that change a file; nothing for the null device."""
    if any(isinstance(arg, ast.Attribute) and arg.attr == "devnull" for arg in call.args):
        return []
    if owner == "os":
        return [
            x.attr
            for arg in call.args
            for x in ast.walk(arg)
            if isinstance(x, ast.Attribute) and x.attr in FLAGS
        ]
    given = [*call.args, *(key.value for key in call.keywords if key.arg == "mode")]
    texts = [
        x.value
        for arg in given
        for x in ast.walk(arg)
        if isinstance(x, ast.Constant) and isinstance(x.value, str)
    ]
    return [text for text in texts if set(text) <= set("rwxabt+") and set(text) & set("wxa+")]


def test_no_other_module_changes_files() -> None:
    changing = {
        name: found
        for path in FILES
        for name in [str(path.relative_to(ROOT))]
        for found in [list(faults(ast.parse(path.read_text(encoding="utf-8"))))]
        if found and name not in FREE
    }
    assert not changing


@pytest.mark.parametrize(
    "text",
    [
        "open(p, 'w')",
        "p.open('xb')",
        "open(p, mode='a')",
        "open(p, 'r+b' if x else 'rb')",
        "os.open(p, os.O_RDWR | os.O_CREAT)",
        "shutil.rmtree(p)",
        "p.unlink(missing_ok=True)",
        "p.replace(q)",
        "os.replace(p, q)",
        "from shutil import rmtree",
        "p.write_bytes(b'')",
        "pa.OSFile(p, 'wb')",
        "tempfile.mkdtemp()",
        "Path(p).mkdir()",
    ],
)
def test_planted_changes_are_seen(text: str) -> None:
    assert list(faults(ast.parse(text)))


@pytest.mark.parametrize(
    "text",
    [
        "open(p)",
        "p.open('rb')",
        "os.open(p, os.O_RDONLY)",
        "text.replace('a', 'b')",
        "pa.OSFile(p)",
    ],
)
def test_reading_is_free(text: str) -> None:
    assert not list(faults(ast.parse(text)))
