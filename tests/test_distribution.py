"""What pip receives: a source distribution with the files of the repository, and the package."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from configparser import ConfigParser
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest

import graphtheta

ROOT = Path(__file__).resolve().parent.parent
NAME = f"graphtheta-{graphtheta.__version__}"

pytestmark = pytest.mark.second


def words(*command: str) -> str:
    """Output of a command at the top of the repository."""
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution, and the wheel that is built from it."""
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("distributions")
    # two workers that build at once would use one folder in the repository
    with (tmp_path_factory.getbasetemp().parent / "distributions.lock").open("w") as lock:
        flock(lock, LOCK_EX)
        words(sys.executable, "-m", "build", "--outdir", str(folder), ".")
    return folder


def tracked() -> set[str]:
    """Files of the repository, also new ones."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return {name for name in listed.stdout.decode().split("\0") if (ROOT / name).is_file()}


def test_source_has_the_files_of_the_repository(distributions: Path) -> None:
    """All that tests and documents read, and no caches or files of runs."""
    with tarfile.open(distributions / f"{NAME}.tar.gz") as archive:
        files = {item.name.removeprefix(f"{NAME}/") for item in archive if item.isfile()}
    made = {name for name in files if name.startswith("graphtheta.egg-info/")} | {"PKG-INFO"}
    assert files - made == tracked() - {".gitignore"}


def test_wheel_has_the_package_alone(distributions: Path) -> None:
    with zipfile.ZipFile(distributions / f"{NAME}-py3-none-any.whl") as archive:
        files = {name for name in archive.namelist() if ".dist-info/" not in name}
    folders = ("graphtheta", "ops", "engine", "models")
    sources = {
        name if name.startswith("graphtheta/") else f"graphtheta/{name}"
        for name in tracked()
        if name.partition("/")[0] in folders
    }
    assert files == sources


def test_metadata(distributions: Path) -> None:
    pytest.importorskip("twine")
    files = sorted(map(str, distributions.iterdir()))
    assert words(sys.executable, "-m", "twine", "check", "--strict", *files).count("PASSED") == 2
    file = ConfigParser()
    file.read(ROOT / "setup.cfg")
    least = file["options"]["python_requires"].removeprefix(">=")
    assert f"Programming Language :: Python :: {least}\n" in file["metadata"]["classifiers"]
