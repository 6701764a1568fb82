"""The rules of the house, checked on the source itself: layers, imports, docstrings, packages."""

from __future__ import annotations

import ast
import configparser
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import combinations, product
from math import prod
from pathlib import Path

import pytest
from covering import covering
from stages import stages

from graphtheta.base.collector import collector_paused

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("graphtheta", "ops", "engine", "models")
# the base uses the standard library and numpy only; ops uses graphs in memory and nothing else of
# the front
RANK = {"base": 0, "data": 1, "ops": 2, "engine": 3, "models": 4, "front": 5}
DATA = "graphtheta.graph.data"
# packages and modules of a room that are seen at once
ROOMS = 12
# patterns are put together here so that this file does not match itself
LEFT_UNDONE = re.compile("TO" r"DO\b|FIX" r"ME\b|\bX" r"XX\b")
MACHINE_PATH = re.compile(r"(?<![\w.>])/(work|root|farm|home|Users)" + "/")
# a test of a module: a function, a class, or a function that is made
CASE = re.compile(r"^(?:(?:async )?def |class )?[tT]est\w*(?:[(:]| = )", re.MULTILINE)
# how a test names a library that it needs
NEEDED = re.compile(r"""importorskip\(['"](\w+)|\blibraries\.(\w+)\(""")
TEXT_FILES = ("*.py", "*.md", "*.cfg", "*.toml", "*.yaml", "*.yml", "Makefile", "run")

FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
TESTS = sorted(path for folder in ("tests", "bench") for path in (ROOT / folder).rglob("*.py"))
Function = ast.FunctionDef | ast.AsyncFunctionDef
# that a value was found, made, held, known or kept does not say what it is
SAYS_NOTHING = {"found", "made", "held", "known", "kept"}
# the state of a ``HaloExchange``, which plug-ins return
PUBLIC_METHODS = {"held"}


@cache
def tree_of(path: Path) -> ast.Module:
    # all trees stay until the end
    with collector_paused():
        return ast.parse(path.read_text(encoding="utf-8"))


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Statements below a node, without expressions, which are most of a tree."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for statement in getattr(node, field, ()):
            yield statement
            yield from statements(statement)


def name_of(path: Path) -> str:
    """The module as it is installed."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    parts = parts if parts[0] == "graphtheta" else ["graphtheta", *parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(module: str) -> str:
    """Which layer a module of the package belongs to."""
    second = [*module.split("."), ""][1]
    if second in RANK:
        return second
    # users import errors by this name
    return "base" if second == "errors" else "data" if package_of(module) == DATA else "front"


def package_of(module: str) -> str:
    """The package a module belongs to; a package is its own."""
    return module if module in PACKAGES else module.rpartition(".")[0]


@cache
def imports(path: Path, tree: ast.Module) -> list[tuple[int, str, int]]:
    """Line, absolute module and level of each import; ``from package import name`` gives
    package.name where that is a module.
    """
    inside = name_of(path).split(".")
    package = inside if path.name == "__init__.py" else inside[:-1]
    found = []
    for node in statements(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name, 0) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = [*base, node.module] if node.module else base
            for alias in node.names:
                whole = ".".join([*base, alias.name])
                found.append(
                    (node.lineno, whole if whole in MODULES else ".".join(base), node.level)
                )
    return found


MODULES = {name_of(path) for path in FILES}
PACKAGES = {name_of(path) for path in FILES if path.name == "__init__.py"}


def layer_faults(path: Path, tree: ast.Module) -> list[str]:
    """Imports that point up, or are written the wrong way."""
    faults = []
    own = layer_of(name_of(path))
    for line, module, level in imports(path, tree):
        top = module.split(".")[0]
        where = f"{path.relative_to(ROOT)}:{line} imports {module}"
        if top in FOLDERS[1:]:
            faults.append(f"{where}: that is a second copy; import graphtheta.{module}")
        if top != "graphtheta" or module == "graphtheta":
            continue
        other = layer_of(module)
        if RANK[other] > RANK[own]:
            faults.append(f"{where}: {own} must not know {other}")
        wanted = own in ("ops", "engine", "models") and other in ("ops", "engine", "models")
        if bool(level) != wanted:
            faults.append(f"{where}: import {'siblings relatively' if wanted else 'it absolutely'}")
    return faults


def test_imports_point_down() -> None:
    faults = [fault for path in FILES for fault in layer_faults(path, tree_of(path))]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    "text",
    [
        "from ...engine import x",
        "from graphtheta.ops.functions import x",
        "import engine",
        "from ...log import x",
    ],
)
def test_imports_point_down_sees_a_planted_fault(text: str) -> None:
    assert layer_faults(ROOT / "ops" / "autodiff" / "planted.py", ast.parse(text))


def arrows() -> dict[str, set[str]]:
    """Which modules of the package each module imports, at its top, in functions, or for
    annotations only.
    """
    return {
        own: {module for _, module, _ in imports(path, tree_of(path)) if module in MODULES} - {own}
        for path in FILES
        for own in [name_of(path)]
    }


def between_packages(depth: int = 9) -> dict[str, set[str]]:
    """Which packages each package imports; those below a depth count as one with the package that
    they lie in.

    ``graphtheta`` itself hands names on and starts commands: it imports all, and nothing below
    imports it.
    """
    found: dict[str, set[str]] = {}
    for module, others in arrows().items():
        own = room_of(module, depth)
        if own != "graphtheta":
            found.setdefault(own, set()).update(room_of(other, depth) for other in others)
            found[own] -= {own, "graphtheta"}
    return found


def room_of(module: str, depth: int) -> str:
    """The package of a module, or the one at a depth that it lies in: 2 for those in graphtheta/, 3
    for those in ops/.
    """
    return ".".join(package_of(module).split(".")[:depth])


def circles(graph: dict[str, set[str]]) -> str:
    """One circle of imports, or nothing."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return " imports ".join(error.args[1][::-1])
    return ""


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert not circles(arrows())


@pytest.mark.parametrize("depth", [2, 3, 9])
def test_no_package_imports_itself_by_way_of_others(depth: int) -> None:
    """Neither rooms nor the packages inside of them."""
    assert not circles(between_packages(depth))


def test_few_rooms_are_side_by_side() -> None:
    levels: dict[str, list[str]] = {}
    for package in sorted(PACKAGES - {f"graphtheta.{top}" for top in FOLDERS}):
        levels.setdefault(package.rpartition(".")[0], []).append(package)
    crowded = {level: rooms for level, rooms in levels.items() if len(rooms) > ROOMS}
    assert not crowded


def test_a_package_with_one_consumer_lives_with_it() -> None:
    """A package of the front that a single other one imports lies in the same room. Commands start
    what no other needs.
    """
    consumers: dict[str, set[str]] = {}
    for own, others in between_packages().items():
        for other in others:
            consumers.setdefault(other, set()).add(own)
    alone = [
        f"{package} serves {own} only"
        for package, (own, *more) in sorted((p, sorted(c)) for p, c in consumers.items())
        if not more
        and own != "graphtheta.cli"
        and layer_of(package) == "front"
        and room_of(package, 2) != room_of(own, 2)
    ]
    assert not alone, "\n".join(alone)


def test_circles_are_seen() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}}) and not circles(
        {"a": {"b", "c"}, "b": {"c"}}
    )


def test_imports_of_mpi_and_numba() -> None:
    """One module imports mpi4py, and it is no part of ops; only compiled loops and what compiles
    them import numba.
    """
    importing: dict[str, set[str]] = {"mpi4py": set(), "numba": set()}
    for path in FILES:
        for _, module, _ in imports(path, tree_of(path)):
            importing.get(module.split(".")[0], set()).add(name_of(path))
    (mpi,) = importing["mpi4py"]
    assert layer_of(mpi) == "engine"
    compiled = {f"graphtheta.ops.{room}" for room in ("compile", "kernels", "parallel")}
    assert {room_of(module, 3) for module in importing["numba"]} == compiled


def test_no_print_and_nothing_left_undone() -> None:
    faults = []
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            is_print = (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "print"
            )
            if is_print and path != ROOT / "graphtheta" / "base" / "console.py":
                faults.append(f"{path.relative_to(ROOT)}:{node.lineno} print")
    for path in [*FILES, *TESTS]:
        for i, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if LEFT_UNDONE.search(line):
                faults.append(f"{path.relative_to(ROOT)}:{i} {line.strip()}")
            if re.match(r"\s*# (import|from|def|return|if|for) .*[:)=]$", line):
                faults.append(f"{path.relative_to(ROOT)}:{i} code in a comment: {line.strip()}")
    assert not faults, "\n".join(faults)


def names_that_say_nothing(tree: ast.Module) -> list[tuple[int, str]]:
    """Line and name of the variables, attributes, arguments and functions whose whole name is one
    of the words.
    """
    methods = {
        id(function)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for function in node.body
        if isinstance(function, Function) and function.name in PUBLIC_METHODS
    }
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append((node.lineno, node.id))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.append((node.lineno, node.attr))
        elif isinstance(node, ast.arg):
            names.append((node.lineno, node.arg))
        elif isinstance(node, Function) and id(node) not in methods:
            names.append((node.lineno, node.name))
    return [(line, name) for line, name in names if name.strip("_").lower() in SAYS_NOTHING]


def test_names_say_what_the_values_are() -> None:
    faults = [
        f"{path.relative_to(ROOT)}:{line} {name} does not say what the value is"
        for path in FILES
        for line, name in names_that_say_nothing(tree_of(path))
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("found = x", ["found"]),
        ("_HELD: int = 0", ["_HELD"]),
        ("for kept in x: x.known, self._made = kept", ["kept", "known", "_made"]),
        ("def made(known, *, _held=0): return known", ["made", "known", "_held"]),
        ("lambda *found: [made for made in found]", ["found", "made"]),
        ("def held(): pass", ["held"]),
        ("class Exchange:\n    def held(self): pass", []),
        ("known_keys = x.kept + found(made=held)", []),
    ],
)
def test_names_that_say_nothing_are_seen(text: str, names: list[str]) -> None:
    seen = names_that_say_nothing(ast.parse(text))
    assert sorted(name for _, name in seen) == sorted(names)


def documented(doc: str) -> list[str]:
    """Names in the Args section of a docstring."""
    section = re.search(r"^Args:\n((?:[ ]+.*\n|\n)*)", doc + "\n", re.MULTILINE)
    if not section:
        return []
    lines = [line for line in section[1].splitlines() if re.match(r"    \S", line)]
    return [name.strip().lstrip("*") for line in lines for name in line.split(":")[0].split(",")]


def signatures(tree: ast.Module) -> Iterator[tuple[str, str, list[str], int]]:
    """Name, docstring, parameters and line of each function; for ``__init__``, of its class."""
    for node in statements(tree):
        if isinstance(node, ast.ClassDef):
            made = next(
                (f for f in node.body if isinstance(f, Function) and f.name == "__init__"), None
            )
            if made is not None:
                yield node.name, ast.get_docstring(node) or "", parameters(made), node.lineno
        elif isinstance(node, Function):
            yield node.name, ast.get_docstring(node) or "", parameters(node), node.lineno


def parameters(function: Function) -> list[str]:
    """Names of the parameters, without self."""
    args = function.args
    named = [
        a.arg
        for a in [
            *args.posonlyargs,
            *args.args,
            *([args.vararg] if args.vararg else []),
            *args.kwonlyargs,
        ]
    ]
    named += [args.kwarg.arg] if args.kwarg else []
    return [name for name in named if name not in ("self", "cls")]


def test_documented_arguments_equal_the_signature() -> None:
    faults = []
    for path in FILES:
        for name, doc, given, line in signatures(tree_of(path)):
            told = documented(doc)
            # a docstring may tell of some arguments only, where the others say it all by their
            # names; it must not invent any
            if set(told) - set(given):
                faults.append(
                    f"{path.relative_to(ROOT)}:{line} {name} documents"
                    f" {sorted(set(told) - set(given))}, takes {given}"
                )
    assert not faults, "\n".join(faults)


def test_documented_arguments_sees_a_planted_fault() -> None:
    assert documented(
        "Do.\n\nArgs:\n    a, b: Two.\n    c: One,\n        with: more.\n\nReturns:\n    d: No.\n"
    ) == ["a", "b", "c"]


def test_public_names_are_documented() -> None:
    faults = []
    for path in FILES:
        if not ast.get_docstring(tree_of(path)):
            faults.append(f"{path.relative_to(ROOT)}: the module")
        for node in tree_of(path).body:
            if (
                isinstance(node, ast.ClassDef | Function)
                and not node.name.startswith("_")
                and not ast.get_docstring(node)
            ):
                faults.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
    assert not faults, "\n".join(faults)


def test_every_primitive_has_a_rule_for_each_argument() -> None:
    # in a new interpreter: other tests register primitives without rules
    assert (
        fresh(
            "from graphtheta.ops import PRIMITIVES; "
            "print({p.name: a for p in PRIMITIVES.values() for a in p.args if a not in p.rules})"
        )
        == "{}"
    )


def test_packages_equal_the_folders() -> None:
    """A folder that is not listed imports fine from a checkout and is missing from the wheel."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = set(config["options"]["packages"].split())
    assert listed == {name_of(path) for path in FILES if path.name == "__init__.py"}
    mapped = dict(
        line.split(" = ") for line in config["options"]["package_dir"].strip().splitlines()
    )
    assert mapped == {name_of(ROOT / folder / "__init__.py"): folder for folder in FOLDERS}


def fresh(code: str) -> str:
    """What a new interpreter prints."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        cwd=ROOT,
    ).stdout.strip()


def test_importing_ops_loads_neither_mpi_nor_numba() -> None:
    assert (
        fresh("import sys, graphtheta.ops; print(sorted({'mpi4py', 'numba'} & set(sys.modules)))")
        == "[]"
    )


def test_importing_graphtheta_is_lazy() -> None:
    assert (
        fresh(
            "import sys, graphtheta; print(sorted({'numpy', 'scipy', 'numba', 'mpi4py', 'pydantic'}"
            " & set(sys.modules)))"
        )
        == "[]"
    )


def test_commands_load_what_few_jobs_need_on_use() -> None:
    """Drawing, clustering, MPI and parts of SciPy take longer to import than all the rest; every
    process would pay.
    """
    heavy = {
        "matplotlib",
        "networkit",
        "pymetis",
        "networkx",
        "mpi4py",
        "sklearn",
        "pandas",
        "pyarrow",
        "scipy.stats",
        "scipy.optimize",
        "scipy.special",
        "scipy.sparse",
        "numpy.testing",
        "unittest",
    }
    assert (
        fresh(f"import sys, graphtheta.cli.command; print(sorted({heavy!r} & set(sys.modules)))")
        == "[]"
    )


def test_every_public_name_resolves() -> None:
    import graphtheta

    assert [name for name in graphtheta.__all__ if not hasattr(graphtheta, name)] == []
    names = [name for listed in graphtheta._PUBLIC.values() for name in listed]
    assert sorted(names) == sorted(set(names))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = graphtheta.no_such_name


@pytest.mark.parametrize("folder", FOLDERS[1:])
def test_a_second_copy_cannot_be_imported(folder: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import {folder}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=ROOT,
    )
    assert done.returncode and f"import graphtheta.{folder}, not {folder}" in done.stderr


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_typetree_holds_every_file(tmp_path: Path) -> None:
    """Guards against a type checker that is content because it sees nothing."""
    subprocess.run(
        ["make", "typetree", f"TREE={tmp_path}/tree"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=60,
    )
    seen = links(tmp_path / "tree")
    assert seen == len(FILES)


def links(tree: Path) -> int:
    """Number of Python files below a folder, following links."""
    return sum(links(path) if path.is_dir() else path.suffix == ".py" for path in tree.iterdir())


def test_every_test_is_in_one_of_two_stages() -> None:
    """A test is marked ``second`` or not, and CI runs both kinds; only cases of tables that have
    others in the second are marked ``third``. What pytest does not collect is in none.
    """
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    pytest_reads = settings["tool:pytest"]
    words = shlex.split(pytest_reads["addopts"])
    assert words[words.index("-m") + 1] == "not second and not third"
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    stages = [line for line in script if line.startswith("python -m pytest -q --durations")]
    assert [" -m second " in line for line in stages] == [False, True]
    for path in TESTS:
        collected = (
            path.name.startswith("test_") and ROOT / pytest_reads["testpaths"] in path.parents
        )
        assert collected == bool(CASE.search(path.read_text(encoding="utf-8"))), path


def in_the_wrong_stage(tree: ast.Module, libraries: set[str]) -> list[str]:
    """Tests that need one of these libraries, and are not marked ``second``."""
    marks = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign)]
    if any(re.match(r"pytestmark = .*mark\.second", mark) for mark in marks):
        return []
    found = []
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test"):
            continue
        body = "\n".join(map(ast.unparse, node.body))
        needed = NEEDED.findall(body)
        marked = any("mark.second" in ast.unparse(mark) for mark in node.decorator_list)
        if not marked and any(libraries & set(names) for names in needed):
            found.append(node.name)
    return found


@cache
def libraries_of_the_second_stage() -> set[str]:
    """Names to import; adbc-driver-sqlite>=1.0 is imported as adbc_driver_sqlite."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")

    def names(extra: str) -> set[str]:
        words = settings["options.extras_require"][extra].split()
        return {re.split("[<>]", word)[0].replace("-", "_") for word in words}

    # pictures are drawn in the first stage, too
    return names("libraries") | names("docs") - names("plot")


def test_what_needs_a_library_of_the_second_stage_is_in_it() -> None:
    """CI has the libraries in the second stage only, and would never run the test."""
    found = {
        path.name: in_the_wrong_stage(tree_of(path), libraries_of_the_second_stage())
        for path in TESTS
        if NEEDED.search(path.read_text(encoding="utf-8"))
    }
    assert {name: tests for name, tests in found.items() if tests} == {}


@pytest.mark.parametrize(
    ("mark", "found"), [("@pytest.mark.second", []), ("@pytest.mark.fused", ["test_it"])]
)
@pytest.mark.parametrize("call", ["pytest.importorskip('torch.nn')", "libraries.dgl()"])
def test_a_library_in_the_wrong_stage_is_seen(call: str, mark: str, found: list[str]) -> None:
    tree = ast.parse(f"{mark}\ndef test_it():\n    {call}")
    assert in_the_wrong_stage(tree, libraries_of_the_second_stage()) == found


@pytest.mark.parametrize(
    ("name", "shares", "n_cases"),
    covering(
        ("test_a", "test_b", "test_c"),
        ((2,), (7,), (100,), (5, 3), (21, 4), (0, 2)),
        (1, 2, 5, 33),
    ),
)
def test_a_long_table_is_divided(name: str, shares: tuple[int, ...], n_cases: int) -> None:
    """No case is lost, and as many are in the first two stages as the shares say."""
    first, second = (*shares, 1)[:2]
    found = stages(name, n_cases, *shares)
    count = {stage: found.count(stage) for stage in (1, 2, 3)}
    assert sum(count.values()) == n_cases
    if first:
        assert count[1] in {max(1, n_cases // first), -(-n_cases // first)}
    else:
        assert count[1] == 0
    assert count[2] == -(-(n_cases - count[1]) // second)


@pytest.mark.parametrize("sizes", [(2, 3), (3, 3, 3, 3), (1, 4, 2, 2, 3, 2, 1)])
@pytest.mark.parametrize("begin", range(3))
def test_few_combinations_have_every_pair_of_values(sizes: tuple[int, ...], begin: int) -> None:
    rows = covering(*map(range, sizes), begin=begin)
    for p, q in combinations(range(len(sizes)), 2):
        assert {(row[p], row[q]) for row in rows} == set(product(range(sizes[p]), range(sizes[q])))
    assert len(rows) <= 2 * prod(sorted(sizes)[-2:])


def test_names_no_path_of_a_machine() -> None:
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    faults = []
    for name in filter(None, listed.stdout.decode().split("\0")):
        path = ROOT / name
        if path.is_file() and any(path.match(pattern) for pattern in TEXT_FILES):
            lines = path.read_text(encoding="utf-8").splitlines()
            faults += [
                f"{name}:{i} {line.strip()}"
                for i, line in enumerate(lines, 1)
                if MACHINE_PATH.search(line)
            ]
    assert not faults, "\n".join(faults)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "text", ["gt.models.GCN", "gt.errors.DataError", "gt.ops.matmul", "gt.GraphThetaError"]
)
def test_modules_of_the_guides_are_there_in_a_fresh_process(text: str) -> None:
    assert fresh(f"import graphtheta as gt; print({text}.__name__)") == text.rpartition(".")[2]
