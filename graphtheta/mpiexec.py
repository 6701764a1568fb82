"""Programs in processes of their own, with MPI or without."""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

# a program that takes longer is stopped
SECONDS = 60


def find_mpiexec() -> Path | None:
    """The mpiexec beside this Python, else the first one the shell finds."""
    found = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
    return Path(found) if found else None


def run(words: list[str], seconds: float = SECONDS) -> subprocess.CompletedProcess[str]:
    """Run a program, for some seconds at most, without the variables of an MPI launcher, so that it can start MPI itself."""
    outer = ("PMI", "MPI", "OMPI", "HYDRA")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(outer)}
    return subprocess.run(words, capture_output=True, text=True, timeout=seconds, env=clean, stdin=subprocess.DEVNULL, check=False)
