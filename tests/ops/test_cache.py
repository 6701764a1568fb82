"""The cache of compiled kernels: which folder it is, what of it is run, and who compiles."""

from __future__ import annotations

import ast
import fcntl
import functools
import importlib.util
import inspect
import logging
import os
import pickle
import py_compile
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core.compiler_lock import global_compiler_lock

from graphtheta.base import private
from graphtheta.errors import ConfigError
from graphtheta.ops.compile import cache, generated, jit, sources
from graphtheta.ops.compile.generated import compiled
from graphtheta.ops.compile.sources import imported
from graphtheta.ops.kernels import logits, number_header, vector_header

STRANGER = 65534
SOURCE = """@kernel_form
def kernel(x, n):
    for i in range(n):
        x[i] = number(softplus(single(x[i])) + sigmoid(single(x[i])))
"""
EXPECTED = 5 * (np.log1p(np.e) + 1 / (1 + np.exp(-1)))
PROCESS = """
import os, sys
import numpy as np
from graphtheta.ops.compile.generated import compiled
from graphtheta.ops.kernels import vector_header
os.umask(int(sys.argv[1], 8))
kernel = compiled({source!r}, "float64", vector_header)
for dtype in {dtypes}:
    x = np.ones(5, dtype)
    kernel(x, 5)
    print(dtype, x.sum(), sum(kernel.stats.cache_misses.values()))
"""


class Planted:
    """Unpickling it leaves a mark."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and nothing of an earlier one in memory."""
    monkeypatch.setenv("GRAPHTHETA_CACHE", str(tmp_path / "kernels"))
    forget(monkeypatch)
    return tmp_path / "kernels"


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generated, "_loaded", {})


def process(folder: Path, *dtypes: str, umask: str = "022") -> subprocess.Popen[str]:
    """Another process that calls the kernel for some types."""
    code = PROCESS.format(source=SOURCE, dtypes=dtypes)
    return subprocess.Popen(
        [sys.executable, "-c", code, umask],
        env={**os.environ, "GRAPHTHETA_CACHE": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
    )


def result(started: subprocess.Popen[str]) -> dict[str, int]:
    """How many kernels it had compiled after each type; its numbers are checked."""
    words = started.communicate(timeout=120)[0].split()
    assert started.returncode == 0
    assert all(abs(float(x) - EXPECTED) < 1e-5 for x in words[1::3])
    return dict(zip(words[::3], map(int, words[2::3]), strict=True))


def call(monkeypatch: pytest.MonkeyPatch) -> int:
    """Call the kernel as a new process would, and say how many were compiled."""
    forget(monkeypatch)
    kernel = compiled(SOURCE, "float64", vector_header)
    x = np.ones(5)
    kernel(x, 5)
    assert abs(x.sum() - EXPECTED) < 1e-12
    return sum(kernel.stats.cache_misses.values())  # type: ignore[attr-defined]


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{cache.SUFFIX}"))


# ---- which folder


def test_a_given_folder_that_cannot_be_used_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GRAPHTHETA_CACHE", str(tmp_path / "file" / "kernels"))
    forget(monkeypatch)
    with pytest.raises(
        ConfigError,
        match=(
            r"GRAPHTHETA_CACHE = .*is not safe for compiled kernels.*Not a directory.*or unset it$"
        ),
    ):
        compiled(SOURCE, "float64", vector_header)(np.ones(5), 5)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv("GRAPHTHETA_CACHE", str(shared))
    with pytest.raises(
        ConfigError,
        match=(
            r"every user can write to .*mode 0777; remedy: chmod go-w .*; use a folder of your own"
        ),
    ):
        cache.cache_folder()


def test_the_default_folder_is_replaced_by_one_of_the_process_and_the_reason_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("GRAPHTHETA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / "graphtheta" and not caplog.records
    (tmp_path / "graphtheta").chmod(0o757)
    folders = {cache.cache_folder() for _ in range(3)}
    (message,) = caplog.messages
    assert (
        "compiled for this run only" in message
        and "every user can write to" in message
        and "unset" not in message
    )
    caplog.clear()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    folders.add(cache.cache_folder())
    assert "Not a directory" in caplog.text
    monkeypatch.delenv("XDG_CACHE_HOME")

    def nowhere() -> Path:
        raise RuntimeError("could not determine home directory")

    monkeypatch.setattr(Path, "home", nowhere)
    folders.add(cache.cache_folder())
    assert "could not determine home directory" in caplog.text
    (folder,) = folders
    assert folder.is_dir() and folder.stat().st_mode & 0o777 == 0o700


def test_a_relative_folder_is_below_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAPHTHETA_CACHE", "kernels")
    assert cache.cache_folder() == tmp_path / "kernels"


def test_a_folder_of_another_user_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert call(monkeypatch) == 1
    folder.chmod(0o755)
    give_away(folder)
    with pytest.raises(ConfigError, match=f"belongs to user {STRANGER} and not to you"):
        call(monkeypatch)
    monkeypatch.delenv("GRAPHTHETA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder.parent))
    folder.rename(folder.with_name("graphtheta"))
    assert call(monkeypatch) == 1 and f"belongs to user {STRANGER}" in caplog.text


def give_away(path: Path) -> None:
    try:
        os.chown(path, STRANGER, -1, follow_symlinks=False)
    except PermissionError:
        pytest.skip("only root can give files to another user")


# ---- what is run


def test_all_files_are_for_the_user_alone_under_umask_000(tmp_path: Path) -> None:
    assert result(process(tmp_path / "kernels", "float64", umask="000")) == {"float64": 1}
    found = [tmp_path / "kernels", *(tmp_path / "kernels").rglob("*")]
    assert {path.suffix for path in found} == {"", cache.SUFFIX, ".lock"}
    assert {path.stat().st_mode & 0o777 for path in found if path.is_dir()} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in found if not path.is_dir()} == {0o600}
    assert result(process(tmp_path / "kernels", "float64", umask="000")) == {"float64": 0}


def spoil_owner(path: Path) -> None:
    give_away(path)


def spoil_mode(path: Path) -> None:
    path.chmod(0o666)


def spoil_link(path: Path) -> None:
    path.symlink_to(path.rename(path.with_suffix(".moved")))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (spoil_owner, "belongs to user"),
        (spoil_mode, "every user can write"),
        (spoil_link, "is a symbolic link"),
    ],
)
def test_a_file_that_others_could_change_is_replaced(
    spoil: Callable[[Path], None],
    reason: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert [call(monkeypatch), call(monkeypatch)] == [1, 0]
    (path,) = files(folder)
    spoil(path)
    assert [call(monkeypatch), call(monkeypatch)] == [1, 0]
    (message,) = caplog.messages
    assert "compiled again" in message and reason in message and str(path) in message


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "damage",
    [
        lambda x: b"",
        lambda x: x[:20],
        lambda x: x[:32],
        lambda x: x[:-1],
        lambda x: x + b"0",
        lambda x: x[:1000] + bytes([x[1000] ^ 1]) + x[1001:],
        lambda x: bytes(len(x)),
        lambda x: x[32:],
    ],
)
def test_a_damaged_file_is_replaced(
    damage: Callable[[bytes], bytes],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert call(monkeypatch) == 1
    (path,) = files(folder)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert [call(monkeypatch), call(monkeypatch)] == [1, 0]
    (message,) = caplog.messages
    assert str(path) in message and "damaged" in message


def test_a_file_under_the_name_of_another_is_replaced(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names say what code does: these two give different numbers for the same types."""
    assert call(monkeypatch) == 1
    (right,) = files(folder)
    compiled("@kernel_form\ndef kernel(x, n):\n    x[0] = n\n", "float64", vector_header)(
        np.ones(5), 5
    )
    (wrong,) = set(files(folder)) - {right}
    right.write_bytes(wrong.read_bytes())
    assert [call(monkeypatch), call(monkeypatch)] == [1, 0]


def test_nothing_that_was_planted_is_run(tmp_path: Path) -> None:
    """Pickles, sources and bytecode, under all names that could be looked up, by the user's own
    hand.
    """
    folder, mark = tmp_path / "kernels", tmp_path / "mark"
    assert result(process(folder, "float64")) == {"float64": 1}
    planted = f"import os\nos.mkdir({str(mark)!r})\n"
    for path in [p for p in folder.rglob("*") if p.is_file()]:
        if path.suffix == ".py":
            path.write_text(planted + path.read_text(encoding="utf-8"), encoding="utf-8")
        else:
            path.write_bytes(pickle.dumps(Planted(mark)))
        source = path.with_suffix(".py")
        if not source.exists():
            source.write_text(planted, encoding="utf-8")
        py_compile.compile(
            str(source),
            importlib.util.cache_from_source(str(source)),
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    assert result(process(folder, "float64")) == {"float64": 1}
    assert not mark.exists()


def test_a_planted_lock_leaves_what_it_points_to_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call(monkeypatch) == 1
    (lock,) = folder.glob("*.lock")
    lock.unlink()
    precious = folder.parent / "precious"
    precious.write_text("content")
    lock.symlink_to(precious)
    assert call(monkeypatch) == 0 and precious.read_text() == "content"


# ---- what a name stands for


def test_each_list_of_argument_types_has_a_file_of_its_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = compiled(
        "@kernel_form\ndef kernel(x, n):\n    n[0] = x.size\n", "float64", vector_header
    )
    given = [
        np.ones((2, 2)),
        np.ones((2, 2), np.float32),
        np.asfortranarray(np.ones((2, 2))),
        np.ones((4, 4))[::2, ::2],
        np.ones(4),
        np.ones((1, 2, 2)),
    ]
    for i, x in enumerate(given):
        n = np.zeros(1, np.int64)
        kernel(x, n)
        assert n[0] == x.size and len(files(folder)) == i + 1


OPS = "graphtheta.ops"
EDGE, ELEMENTWISE = (
    generated.HEADER.format(header=header.__name__, dtype="float64") + "def kernel(x):\n    pass\n"
    for header in (vector_header, number_header)
)
# what identifies a kernel: of the package, of an edge program, of fused elementwise operations
KERNELS = {
    "logits": ("logits", frozenset({f"{OPS}.kernels.logits"})),
    "sampling": ("sampling", frozenset({f"{OPS}.kernels.sampling.draw"})),
    "optimiser": ("optimiser", frozenset({f"{OPS}.optimisers.kernels"})),
    "edge": (EDGE, imported(compile(EDGE, "edge", "exec"))),
    "elementwise": (ELEMENTWISE, imported(compile(ELEMENTWISE, "elementwise", "exec"))),
}
# module, a text in it and what it is changed to, and the kernels that depend on it
CHANGES = [
    ("kernels.decay", "def exp_down(x", "def  exp_down(x", {"logits", "elementwise"}),
    ("kernels.hash", "COLUMN = ", "COLUMN = 2 * ", {"sampling", "edge", "elementwise"}),
    ("kernels.prefetch", "LINE = 64", "LINE = 32", {"sampling", "edge", "elementwise"}),
    ("kernels.lanes", "def vector(", "def  vector(", {"edge", "elementwise"}),
    ("kernels.lane_math", "def raised(", "def  raised(", {"edge"}),
    ("compile.entry", "def entry(", "def  entry(", {"edge"}),
    ("kernels.sampling.draw", "@njit(", "@njit( ", {"sampling"}),
    ("optimisers.kernels", "@jit(", "@jit( ", {"optimiser"}),
    ("compile.jit", '"nogil": True', '"nogil": False', set(KERNELS)),
    ("compile.cache", "def load(", "def  load(", set()),
    ("compile.sources", "def sources(", "def  sources(", set()),
    ("compile.elementary", "return y * (", "return  y * (", {"edge", "elementwise"}),
    ("kernels.vector_header", '"prefetch"', '"prefetched"', {"edge"}),
    ("kernels.number_header", '"COLUMN"', '"COLUMNS"', {"elementwise"}),
    ("kernels.partition.forest", "@jit", "@jit ", set()),
    ("optimisers.optim", "class ", "class  ", set()),
    ("edge.plan", "def ", "def  ", set()),
]


def names() -> dict[str, str]:
    """The hash of each kernel, as in a process of its own."""
    jit._hash_of_sources.cache_clear()
    return {name: jit.identity(*kernel) for name, kernel in KERNELS.items()}


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Hashes of changed modules are forgotten afterwards."""
    yield
    jit._hash_of_sources.cache_clear()


@pytest.mark.parametrize("where", ["numba", "llvmlite", "np", "sys"])
def test_a_name_follows_from_versions(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = names()
    version = "version" if where == "sys" else "__version__"
    monkeypatch.setattr(getattr(jit, where), version, "0.0.0")
    assert not set(before.values()) & set(names().values())


@functools.cache
def unchanged_names() -> dict[str, str]:
    """Those of the package as it is, the same when they are found again."""
    found = names()
    assert found == names() and len(set(found.values())) == len(KERNELS)
    return found


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("module", "old", "new", "dependent"), CHANGES, ids=[change[0] for change in CHANGES]
)
def test_a_name_follows_from_the_modules_that_are_imported(
    module: str,
    old: str,
    new: str,
    dependent: set[str],
    monkeypatch: pytest.MonkeyPatch,
    forgotten: None,
) -> None:
    """A function, a constant or an option is changed in a module, of which the kernel imports
    another name or nothing.
    """
    before = unchanged_names()
    changed = Path(importlib.import_module(f"{OPS}.{module}").__file__ or "")
    assert old in changed.read_text(encoding="utf-8")
    real = Path.read_text

    def read(path: Path, *args: Any, **kwargs: Any) -> str:
        text = real(path, *args, **kwargs)
        return text.replace(old, new) if path == changed else text

    monkeypatch.setattr(Path, "read_text", read)
    after = names()
    assert {name for name in KERNELS if after[name] != before[name]} == dependent


def test_the_text_of_a_kernel_is_part_of_the_name() -> None:
    text, modules = KERNELS["edge"]
    assert jit.identity(text.replace("float64", "float32"), modules) != jit.identity(text, modules)


def test_imports_of_every_form_are_followed() -> None:
    text = (
        "import graphtheta.ops.a\nfrom . import b\nfrom ..c import d\n"
        "def f():\n    try:\n        from .e import g\n    except E:\n        import numpy\n"
        "    else:\n        from math import pi\n    finally:\n        import graphtheta.ops.h\n"
    )
    code = compile(text, "module", "exec")
    assert sources.imported(code, f"{OPS}.kernels") == {
        f"{OPS}.{name}" for name in ("a", "kernels", "kernels.b", "c", "c.d", "kernels.e", "h")
    } | {f"{OPS}.kernels.e.g"}


def test_kernels_are_loaded_without_syntax_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads load kernels at the same time, and CPython makes syntax trees with one counter for
    all threads: where garbage is collected meanwhile, it fails, rarely.
    """
    jit._hash_of_sources.cache_clear()
    parsed = []
    with monkeypatch.context() as patch:
        patch.setattr(ast, "parse", lambda *args, **keys: parsed.append(args))
        kernel = generated._load(f"import numba\n{EDGE}kernel = numba.njit(kernel)\n")
    assert callable(kernel) and not parsed


@pytest.mark.parametrize("text", [EDGE, ELEMENTWISE], ids=["edge", "elementwise"])
def test_all_that_a_generated_kernel_refers_to_is_in_its_sources(text: str) -> None:
    """Imports stand in the text; names that the module gets otherwise would be missed."""
    names: dict[str, Any] = {"__name__": "kernel"}
    exec(text, names)
    assert not strange(names, imported(compile(text, "kernel", "exec")))


def test_all_that_a_compiled_function_refers_to_is_in_its_sources() -> None:
    """Of every function of the package: what it calls and reads, and what that calls and reads."""
    ops = Path(jit.__file__).parent.parent
    compiling = [
        ".".join((OPS, *path.relative_to(ops).with_suffix("").parts))
        for path in sorted(ops.rglob("*.py"))
        if re.search(r"^@(jit|njit|numba\.njit)\b", path.read_text("utf-8"), re.M)
    ]
    assert len(compiling) > 25
    for name in compiling:
        missed = strange(vars(importlib.import_module(name)), frozenset({name}))
        assert not missed, (name, missed)


def strange(names: dict[str, Any], modules: frozenset[str]) -> set[str]:
    """Modules that compiled functions refer to, directly or through others, of which the text is
    not among the sources.
    """
    waiting = list(names.values())
    seen = set()
    missed = set()
    text = sources.sources(modules)
    while waiting:
        value = waiting.pop()
        function = getattr(value, "py_func", None) or getattr(value, "_defn", value)
        home = getattr(function, "__module__", None) or ""
        if id(value) in seen or not inspect.isfunction(function) or not home.startswith(OPS):
            continue
        seen.add(id(value))
        if f"{home}\n" not in text:
            missed.add(home)
        used = inspect.getclosurevars(function)
        waiting += [*used.globals.values(), *used.nonlocals.values()]
    return missed


def test_functions_of_the_package_are_kept_in_the_same_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not where Numba would put them, which is not checked."""
    x = np.zeros((3, 4), np.float32)
    labels = np.zeros(3, np.int64)
    rows = np.arange(3)
    for compiling in (1, 0):
        again = jit.jit(fastmath=logits.FAST)(logits.cross_entropy.py_func)
        assert abs(again(x, labels, rows) - 3 * np.log(4)) < 1e-5
        assert sum(again.stats.cache_misses.values()) == compiling and len(files(folder)) == 1


def test_no_function_is_left_to_the_cache_of_numba() -> None:
    for path in [
        *Path(jit.__file__).parent.glob("*.py"),
        *Path(logits.__file__).parent.glob("*.py"),
    ]:
        assert "cache=" not in path.read_text(encoding="utf-8"), path


def test_arrays_that_may_not_be_written_need_no_code_of_their_own(folder: Path) -> None:
    """Alone or in tuples, whichever comes first; later calls do not look for it again."""
    function = """@kernel_form
def kernel(x, pair, out):
    out[0] = x[0] + pair[0][1] + pair[1][0][2]
"""
    kernel = compiled(function, "float64", vector_header)
    fixed = np.arange(3.0)
    fixed.flags.writeable = False
    free = np.arange(3.0)
    for x, y, z in ((fixed, free, fixed), (free, free, free), (free, fixed, fixed)) * 2:
        out = np.zeros(1)
        kernel(x, (y, (z, 1)), out)
        assert out[0] == 3
    assert len(files(folder)) == 1
    assert sum(kernel.stats.cache_misses.values()) == 1  # type: ignore[attr-defined]
    assert len(kernel.overloads) == 3  # type: ignore[attr-defined]


# ---- who compiles


def test_functions_of_files_from_two_processes_have_different_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where two files hold functions of one name, the first one that is loaded is run for both."""
    # names say the options of the compiler in the order of a set
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    names = []
    for folder in (tmp_path / "one", tmp_path / "other"):
        folder.mkdir(mode=0o700)
        result(process(folder, "float64"))
        (file,) = files(folder)
        names.append(set(re.findall(rb"_ZN[\w.$]+", cache.load(file) or b"")))
    assert all(names)
    assert not names[0] & names[1]


@pytest.mark.second
def test_processes_may_compile_at_once(tmp_path: Path) -> None:
    """The same kernel for different argument types, each of which is compiled by one of them."""
    orders = [["float32", "float64"], ["float64", "float32"], ["float64", "float32"]]
    for again in (False, True):
        found = [result(p) for p in [process(tmp_path, *dtypes) for dtypes in orders]]
        assert sum(max(f.values()) for f in found) == (0 if again else 2)
    assert len(files(tmp_path)) == 2 and {p.suffix for p in tmp_path.iterdir()} == {
        cache.SUFFIX,
        ".lock",
    }


def test_threads_may_compile_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = compiled(SOURCE, "float64", vector_header)
    values = np.ones((8, 5))
    threads = [threading.Thread(target=kernel, args=(x, 5)) for x in values]
    for t in threads:
        t.start()
    for t in threads:
        t.join(timeout=120)
    assert np.allclose(values.sum(1), EXPECTED) and len(files(folder)) == 1
    assert sum(kernel.stats.cache_misses.values()) == 1  # type: ignore[attr-defined]


def test_a_thread_that_waits_for_a_file_holds_the_lock_of_the_compiler(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it could wait for the file of a kernel that another thread compiles, which waits for its
    file.
    """
    held = []
    take = jit.one_at_a_time

    def spy(path: Path) -> Any:
        held.append(global_compiler_lock.is_locked())
        return take(path)

    monkeypatch.setattr(jit, "one_at_a_time", spy)
    assert call(monkeypatch) == 1 and held and all(held)


def test_without_locks_or_room_on_the_disk_the_run_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*args: object) -> None:
        raise OSError("not today")

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", fails)
        patch.setattr(private, "write", fails)
        assert [call(monkeypatch), call(monkeypatch)] == [1, 1]
    assert (
        all("cannot be cached" in m and "not today" in m for m in caplog.messages)
        and caplog.records[0].levelno == logging.WARNING
    )
    assert [call(monkeypatch), call(monkeypatch)] == [1, 0]
