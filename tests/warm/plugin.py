"""Hooks of pytest: programs that tests start are forks of a process that has imported GraphTheta,
but those of tests marked ``cold``.
"""

from __future__ import annotations

import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
PYTHON = sys.executable
# ranks have the servers in turns, which differ in the seed of their hashes
SERVERS = 2
_servers: list[subprocess.Popen[bytes]] = []
_interpreter = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Start the servers, once for all workers of pytest-xdist."""
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        config.stash[_interpreter] = worker["interpreter"]
    elif sys.platform == "linux" and not config.option.collectonly:
        config.stash[_interpreter] = _start(Path(tempfile.mkdtemp(prefix="warm")))
    else:
        config.stash[_interpreter] = PYTHON


def _start(folder: Path) -> str:
    """Start the servers; returns what stands in for the interpreter."""
    for i in range(SERVERS):
        # a client may connect before the server has imported what it needs
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder / str(i)))
            listener.listen(64)
            words = [PYTHON, str(HERE / "server.py"), str(listener.fileno())]
            _servers.append(
                subprocess.Popen(
                    words,
                    stdin=subprocess.PIPE,
                    pass_fds=[listener.fileno()],
                    start_new_session=True,
                )
            )
    beside = Path(PYTHON).with_name("mpiexec")
    if beside.exists():
        _stand_in(folder / "mpiexec", str(beside))
    return _stand_in(folder / "python", PYTHON, "-IS", str(HERE / "client.py"), str(folder), PYTHON)


def _stand_in(path: Path, *words: str) -> str:
    path.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
    path.chmod(0o700)
    return str(path)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist what stands in for the interpreter."""
    node.workerinput["interpreter"] = node.config.stash[_interpreter]


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the servers."""
    for server in _servers:
        server.communicate()
    if _servers:
        shutil.rmtree(Path(config.stash[_interpreter]).parent)
        _servers.clear()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Name the interpreter for what a test starts."""
    sys.executable = PYTHON if item.get_closest_marker("cold") else item.config.stash[_interpreter]
