"""Programs in processes of their own, with MPI or without."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

# a program that takes longer is stopped
SECONDS = 60
# beginnings of the variables that a launcher sets for its ranks; others, such as OMPI_MCA_btl,
# MPI4PY_LIBMPI, HYDRA_LAUNCHER and I_MPI_FABRICS, are settings of the user, and so are MCA_SETTINGS
OF_RANKS = (
    "PMI",
    "HYDI_",
    "HYDRA_BSTRAP_",
    "I_MPI_HYDRA_UUID",
    "I_MPI_INFO_",
    "I_MPI_PIN_INFO",
    "I_MPI_PIN_MAPPING",
    "MPI_LOCAL",
    "PRTE_",
    "OMPI_COMM_WORLD_",
    "OMPI_UNIVERSE_",
    "OMPI_FIRST_RANKS",
    "OMPI_APP_CTX_",
    "OMPI_NUM_APP_CTX",
    "OMPI_ARGV",
    "OMPI_COMMAND",
    "OMPI_FILE_LOCATION",
    "OMPI_MCA_ess",
    "OMPI_MCA_orte_",
    "OMPI_MCA_pmix",
)
MCA_SETTINGS = ("PMIX_MCA_", "PRTE_MCA_")


def find_mpiexec() -> Path | None:
    """The mpiexec beside this Python, else the first one the shell finds."""
    path = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
    return Path(path) if path else None


def of_rank(name: str) -> bool:
    """Whether a launcher sets this environment variable for its ranks."""
    return name.startswith(OF_RANKS) and not name.startswith(MCA_SETTINGS)


def run(words: list[str], seconds: float = SECONDS) -> subprocess.CompletedProcess[str]:
    """Run a program, for some seconds at most, without the variables of a rank, so that it can
    start MPI itself.
    """
    clean = {name: value for name, value in os.environ.items() if not of_rank(name)}
    return subprocess.run(
        words,
        capture_output=True,
        text=True,
        timeout=seconds,
        env=clean,
        stdin=subprocess.DEVNULL,
        check=False,
    )
