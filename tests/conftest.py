"""Fixtures of all tests."""

from __future__ import annotations

import gc
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from stages import stages
from warm.communities import import_networkit
from warm.reference import VARIABLE

from graphtheta.base import private
from graphtheta.base.collector import collector_paused
from graphtheta.ops.edge.backend import fused
from graphtheta.ops.edge.backend.fused import backend_scope

# threads of OpenMP that wait take the core from whatever else is tested
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# most of the time of a program that a test starts is that of imports, and most of their time
# without bytecode is the compiler's; workers of pytest and programs take what others have written
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# another test may have the core while inputs are drawn
settings.register_profile("tests", suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

ROOT = Path(__file__).resolve().parent.parent
# files with the tests that take longest, which begin first
LONGEST = ("test_bench.py", "test_docs_site.py", "test_warmup.py", "test_kill.py")
# by name, as an import that nothing here uses is taken out by tools
pytest_plugins = ["warm.plugin"]


def pytest_xdist_auto_num_workers() -> int:
    """Two workers more than cores, because many tests wait for processes."""
    return (os.cpu_count() or 1) + 2


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Divide the cases of tests marked ``one_in`` between the stages, before one is selected.

    The longest tests come first, so that the last one to end is a short one.
    """
    items.sort(key=lambda item: item.path.name not in LONGEST)
    tables: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("one_in") is not None:
            tables[item.nodeid.partition("[")[0]].append(item)
    for name, cases in tables.items():
        shares = cases[0].get_closest_marker("one_in").args
        for case, stage in zip(cases, stages(name, len(cases), *shares), strict=True):
            if stage > 1:
                case.add_marker("second" if stage == 2 else "third")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spare the garbage collector the modules and tests, which stay until the end: while they are
    collected it took a third of the time.
    """
    with collector_paused():
        found = yield
    gc.collect()
    gc.freeze()
    # what tests leave is small, and looking through it took a twentieth of their time
    gc.set_threshold(10_000)
    return found


@pytest.fixture(scope="session", autouse=True)
def kernel_cache(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Kernels of tests are kept apart from the user's, for later runs if pytest has a cache."""
    cache = getattr(request.config, "cache", None)
    folder = tmp_path_factory.mktemp("kernels") if cache is None else cache.mkdir("kernels")
    try:
        private.make_folder(folder)
    except OSError:
        # root in a container may test the checkout of another user
        folder = tmp_path_factory.mktemp("kernels")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHTHETA_CACHE", os.environ.get("GRAPHTHETA_CACHE", str(folder)))
        yield


@pytest.fixture(scope="session", autouse=True)
def communities() -> None:
    """The first test that asks for communities does not wait for libraries that draw."""
    import_networkit()


@pytest.fixture(autouse=True)
def chosen_back_end(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Edge programs run on the reference, unless the test is marked ``fused``: compiling a kernel
    takes half a second.

    Jobs choose for themselves, unless the test is marked ``reference``. A parameter of a test with
    the name of this function would take its place.
    """
    if request.node.get_closest_marker("reference"):
        monkeypatch.setenv(VARIABLE, "1")
        before = fused.force_backend("reference")
        yield
        fused.force_backend(before)
    else:
        with backend_scope(
            "reference" if request.node.get_closest_marker("fused") is None else "fused"
        ):
            yield


@pytest.fixture(scope="module")
def settled() -> None:
    """Spare the collector what earlier tests have left: each plan runs it, to measure memory."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers for test data, the same in every run."""
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Mapping[str, np.ndarray]]:
    """Loads a file of reference values by name; from GRAPHTHETA_GOLDEN, else from beside the
    repository.
    """
    folder = Path(os.environ.get("GRAPHTHETA_GOLDEN", ROOT.parent / "shared" / "golden"))
    if not folder.is_dir():
        pytest.skip("no reference values here; set GRAPHTHETA_GOLDEN to their folder")

    def load(name: str) -> Mapping[str, np.ndarray]:
        with np.load(folder / f"{name}.npz") as file:
            return dict(file)

    return load
