"""Programs under mpiexec."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from graphtheta.base.mpiexec import of_rank

TESTS = str(Path(__file__).parent)
# the mpiexec of a wheel lies beside the interpreter and must win over another one on the path
MPIEXEC = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
needs_mpi = pytest.mark.skipif(
    MPIEXEC is None or importlib.util.find_spec("mpi4py") is None,
    reason="needs mpiexec and mpi4py: pip install graphtheta[mpich]",
)
OPEN_MPI = MPIEXEC is not None and Path(MPIEXEC).with_name("prterun").exists()
# what its launcher says of a program that fails and of connections that end with it, and what its
# library says of messages of other lengths
OF_OPEN_MPI = re.compile(
    r"^-{74}\n(?:.*\n)*?-{74}\n(?:\n?\0)?|"
    r"^(?:\[\S+:\d+\] PMIX ERROR:|\[warn\] Epoll|MPI Error in NBC|NBC_Progress: an error) .*\n\n?",
    re.MULTILINE,
)


def hear() -> None:
    """Of a new process: hear Ctrl-C and SIGHUP, also if the tests run in the background or under
    nohup.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program; its errors are without the lines that Open MPI adds to them."""
    clean = {
        key: value
        for key, value in os.environ.items()
        if not of_rank(key) and not key.startswith(("SLURM_", "GRAPHTHETA_"))
    }
    environment = {**clean, "PYTHONPATH": TESTS, **environment}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=240, env=environment, check=False
    )
    if OPEN_MPI:
        done.stderr = OF_OPEN_MPI.sub("", done.stderr)
    return done
