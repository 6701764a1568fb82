"""Programs under mpiexec."""

from __future__ import annotations

import importlib.util
import os
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


def hear() -> None:
    """Of a new process: hear Ctrl-C and SIGHUP, also if the tests run in the background or under
    nohup.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {
        key: value
        for key, value in os.environ.items()
        if not of_rank(key) and not key.startswith(("SLURM_", "GRAPHTHETA_"))
    }
    environment = {**clean, "PYTHONPATH": TESTS, **environment}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=240, env=environment, check=False
    )
