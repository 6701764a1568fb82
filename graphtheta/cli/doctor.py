"""The command ``doctor``: checks what a run needs, and prints a line with a remedy for each."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import graphtheta
from graphtheta.base.atomic import BEGINNINGS, check_replaceable, file_errors
from graphtheta.base.cgroup import cpu_quota
from graphtheta.base.console import amount, say
from graphtheta.base.memory import available_bytes, total_bytes
from graphtheta.base.mpiexec import SECONDS, find_mpiexec, run
from graphtheta.cli.processes import SHARED
from graphtheta.engine.runtime.affinity import available_cores
from graphtheta.engine.runtime.start import launched, start, threads
from graphtheta.errors import CommError, ConfigError
from graphtheta.ops.compile.cache import lasting_folder
from graphtheta.run.job.flag import Parser

OK = "OK"
WARN = "WARN"
FAIL = "FAIL"
# what a check returns: its state, what was found, and the remedy
Finding = tuple[str, str, str]
MINIMUM = {
    "numpy": (1, 26),
    "scipy": (1, 11),
    "numba": (0, 59),
    "greenlet": (3, 0),
    "msgpack": (1, 0),
    "pydantic": (2, 7),
}
EXTRAS = {
    "networkit": ("cluster", "cluster batches by Louvain and Leiden"),
    "pymetis": ("metis", "cluster batches by METIS"),
    "matplotlib": ("plot", "pictures of curves and reports"),
}
# of shared memory: bytes that two ranks need, and that suffice for the ranks of a small machine
LEAST_SHARED, ENOUGH_SHARED = 16 << 20, 64 << 20
# names the processor whose kernels OpenBLAS uses
CORE_TYPE = "OPENBLAS_CORETYPE"
GET_MPI = (
    "pip install 'graphtheta[mpich]', or load your cluster's MPI module and"
    " pip install 'graphtheta[mpi]'"
)
# prints what mpi4py uses; an extension for one of several ABIs has it in its name
LIBRARY = """
import json, os, psutil
from mpi4py import MPI
maps = psutil.Process().memory_maps() if hasattr(psutil.Process, "memory_maps") else []
vendor, version = MPI.get_vendor()
name = f"{vendor} {'.'.join(map(str, version))}"
if vendor == "unknown":
    name = MPI.Get_library_version().splitlines()[0]
parts = os.path.basename(MPI.__file__).split(".")
print(json.dumps({
    "name": name,
    "standard": ".".join(map(str, MPI.Get_version())),
    "abi": parts[1] if parts[1] in ("mpich", "openmpi", "mpiabi") else "",
    "path": next((one.path for one in maps if os.path.basename(one.path).startswith("libmpi")), ""),
}))
"""
# what the versions of launchers look like, and the MPI they belong to
LAUNCHERS = {
    r"\((?:Open MPI|OpenRTE|PRRTE)\) (\S+)": "Open MPI",
    r"Intel\(R\) MPI Library.* Version (\S+)": "Intel MPI",
    r"HYDRA build details:\s+Version: +(\S+)": "MPICH",
}
# machines of a job that are named
NAMED = 16
SMOKE = """
import numpy as np
from graphtheta.engine.runtime.start import run_main, start
def program():
    comm = start()
    total = comm.all_sum(np.array([comm.rank + 1.0]))
    if comm.rank == 0:
        right = comm.size == 2 and total[0] == 3
        print("two ranks add up" if right else f"size {comm.size}, sum {total[0]}")
    return 0
raise SystemExit(run_main(program))
"""


def parser_of_doctor() -> Parser:
    """The flags of the command."""
    about = (
        "Check this machine: versions, MPI, Numba, BLAS, threads, memory, and a run on two ranks."
    )
    parser = Parser("doctor", about, "graphtheta doctor")
    parser.add_argument(
        "--measure",
        metavar="FILE",
        help="only measure the speed of this machine, for plan and simulate, and write it",
    )
    return parser


def doctor(argv: list[str]) -> int:
    """Check this machine.

    Args:
        argv: Flags.

    Returns:
        Exit code: 0, or 1 if something needed is missing or broken.
    """
    options, _ = parser_of_doctor().read(argv)
    rank, size = launched()
    if options.measure:
        return 0 if rank else measure(Path(options.measure))
    if rank:
        # rank 0 reports for all; a launcher may end it if another one fails
        this_job()
        return 0
    checks: dict[str, Callable[[], Finding]] = {
        "python": python,
        "packages": packages,
        "extras": extras,
        "numba": numba,
        "blas": blas,
        "cores": cores,
        "memory": memory,
        "shared": shared_memory,
        "mpi": mpi,
        "mpiexec": launcher,
        # a launcher inside of a job may wait for its processors for ever
        **({"this job": this_job} if size > 1 else {"two ranks": two_ranks}),
    }
    worst = 0
    for name, check in checks.items():
        try:
            state, text, remedy = check()
        except Exception as error:
            state = FAIL
            text = f"{type(error).__name__}: {error}"
            remedy = "the check itself failed; please report this line"
        say(
            f"{state.ljust(5)}{name.ljust(11)}{text}"
            + (f"\n{' ' * 16}-> {remedy}" if remedy else "")
        )
        worst = max(worst, int(state == FAIL))
    return worst


def measure(path: Path) -> int:
    """Measure the speed of this machine.

    Raises:
        FormatError: The file cannot be written.
    """
    from graphtheta.inspect.planning.machine import machine, write

    with file_errors(path, "the speed of this machine", "give another file with --measure"):
        check_replaceable(path, BEGINNINGS["machine"])
        speed = machine(again=True)
        write(speed, path)
    say(
        f"speed of this machine, fitted within {speed.error:.0%}, in {path}; plan and simulate use"
        " it from now on"
    )
    return 0


def python() -> Finding:
    """Version of Python and of this package."""
    text = (
        f"Python {platform.python_version()} on {platform.system()} {platform.machine()},"
        f" graphtheta {graphtheta.__version__}"
    )
    return (
        (OK, text, "")
        if sys.version_info >= (3, 10)
        else (FAIL, text, "install Python 3.10 or later")
    )


def packages() -> Finding:
    """Versions of the required packages."""
    versions = {name: version_of(name) for name in MINIMUM}
    text = ", ".join(f"{name} {version or 'missing'}" for name, version in versions.items())
    old = [name for name, least in MINIMUM.items() if numbers(versions[name]) < least]
    return (FAIL, text, f"pip install --upgrade {' '.join(old)}") if old else (OK, text, "")


def extras() -> Finding:
    """Optional packages, which some features need."""
    missing = [name for name in EXTRAS if find_spec(name) is None]
    text = (
        ", ".join(f"{name} {version_of(name)}" for name in EXTRAS if name not in missing) or "none"
    )
    remedy = "; ".join(
        f"for {EXTRAS[name][1]}: pip install 'graphtheta[{EXTRAS[name][0]}]'" for name in missing
    )
    return (WARN if missing else OK), text, remedy


def numba() -> Finding:
    """Whether Numba compiles, and whether compiled kernels can be cached."""
    code = (
        "import numba; print(numba.njit(lambda x: x + x)(21), numba.__version__,"
        " numba.config.NUMBA_NUM_THREADS)"
    )
    done = run([sys.executable, "-c", code])
    if done.returncode or not done.stdout.startswith("42 "):
        return FAIL, last_line(done.stderr) or done.stdout.strip(), "reinstall numba and llvmlite"
    _, version, threads = done.stdout.split()
    try:
        folder = lasting_folder()
    except ConfigError as error:
        return (
            (FAIL if os.environ.get("GRAPHTHETA_CACHE") else WARN),
            f"numba {version} compiles; {error}",
            "",
        )
    return (
        OK,
        f"numba {version} compiles, up to {threads} threads; kernels are cached in {folder}",
        "",
    )


def blas() -> Finding:
    """Which BLAS numpy calls, the processor its kernels are for, and its threads."""
    import numpy as np
    from threadpoolctl import threadpool_info

    np.ones((2, 2)) @ np.ones((2, 2))
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    if not pools:
        return (
            WARN,
            "no BLAS library with a configurable number of threads",
            "reinstall numpy from a wheel, which brings OpenBLAS",
        )
    text = ", ".join(
        sorted(
            {
                f"{pool['internal_api']} {pool['version']} ({pool['num_threads']} threads)"
                for pool in pools
            }
        )
    )
    kernels = {pool.get("architecture") for pool in pools} - {None}
    text += (
        f", kernels for {' and '.join(sorted(kernels))}" * bool(kernels)
        + "; a run sets the number of threads"
    )
    better = own_kernels() - kernels if CORE_TYPE in os.environ else set()
    if better:
        return (
            WARN,
            f"{text}; {CORE_TYPE}={os.environ[CORE_TYPE]}",
            (
                f"unset {CORE_TYPE}; OpenBLAS then uses its kernels for {better.pop()}, which can"
                " be twice as fast"
            ),
        )
    return OK, text, ""


def own_kernels() -> set[str]:
    """Which kernels OpenBLAS chooses for this processor if no environment variable names others."""
    # it chooses when it is loaded
    code = (
        f"import os; os.environ.pop({CORE_TYPE!r}, None); import numpy, threadpoolctl;"
        " print(*{p['architecture'] for p in threadpoolctl.threadpool_info() if 'architecture' in"
        " p})"
    )
    return set(run([sys.executable, "-c", code]).stdout.split())


def cores() -> Finding:
    """Cores this process may use."""
    mine = len(available_cores())
    all_cores = os.cpu_count() or 1
    quota = cpu_quota()
    text = f"{mine} of {all_cores} cores available" + (f", CPU quota {quota:g}" if quota else "")
    omp = os.environ.get("OMP_NUM_THREADS", "")
    if omp.isdigit() and int(omp) > mine:
        return (
            WARN,
            f"{text}, OMP_NUM_THREADS={omp}",
            "unset OMP_NUM_THREADS; a run then chooses its number of threads",
        )
    return OK, text, ""


def memory() -> Finding:
    """Memory that is free now."""
    free = available_bytes()
    text = f"{amount(free)} free of {amount(total_bytes())}"
    return (
        (OK, text, "")
        if free > 1 << 30
        else (WARN, text, "less than 1 GiB is free; end other programs")
    )


def shared_memory() -> Finding:
    """Room in the folder through which ranks of a machine exchange messages."""
    if not SHARED.is_dir():
        return WARN, f"there is no {SHARED}; ranks of a machine may be slow, or not start", ""
    room = shutil.disk_usage(SHARED)
    state = FAIL if room.free < LEAST_SHARED else WARN if room.free < ENOUGH_SHARED else OK
    # ranks that write beyond its end are killed by a bus error
    remedy = (
        f"remove files of MPI that killed jobs have left in {SHARED}, or make it larger:"
        " --shm-size=1g for Docker, an emptyDir of medium Memory for Kubernetes"
    )
    return (
        state,
        f"{amount(room.free)} free of {amount(room.total)} in {SHARED}",
        remedy * (state != OK),
    )


@dataclass(frozen=True)
class MpiLibrary:
    """The MPI library that mpi4py uses.

    Attributes:
        name: Its name and version, such as "MPICH 5.0.2".
        standard: The version of the MPI standard.
        abi: The ABI by which a wheel of mpi4py calls it, such as "mpich"; empty if mpi4py was
            built for this library.
        path: Its file; empty if the system does not tell.
    """

    name: str
    standard: str
    abi: str
    path: str

    def __str__(self) -> str:
        called = f"by the ABI {self.abi}" if self.abi else "that it was built for"
        return f"{self.name} (MPI {self.standard}, {called})" + f" in {self.path}" * bool(self.path)


def mpi_library() -> MpiLibrary:
    """The MPI library that mpi4py uses.

    Raises:
        CommError: mpi4py finds none, or cannot start it.
    """
    # in a process of its own: importing it starts MPI
    done = run([sys.executable, "-c", LIBRARY])
    if done.returncode:
        raise CommError(last_line(done.stderr))
    return MpiLibrary(**json.loads(done.stdout.splitlines()[-1]))


def owner_of(mpiexec: Path) -> str:
    """The MPI that a launcher belongs to, with its version; empty if it does not say."""
    said = run([str(mpiexec), "--version"]).stdout
    for pattern, name in LAUNCHERS.items():
        version = re.search(pattern, said)
        if version:
            return f"{name} {version[1]}"
    return ""


def mpi() -> Finding:
    """mpi4py and the MPI library it finds."""
    if find_spec("mpi4py") is None:
        return WARN, "mpi4py is not installed: one rank only", GET_MPI
    try:
        library = mpi_library()
    except CommError as error:
        return FAIL, f"mpi4py finds no MPI library: {error}", GET_MPI
    return OK, f"mpi4py {version_of('mpi4py')} with {library}", ""


def launcher() -> Finding:
    """The mpiexec that belongs to this environment."""
    path = find_mpiexec()
    if path is None:
        return WARN, "mpiexec is not installed", GET_MPI
    owner = owner_of(path)
    text = f"{path}" + f" of {owner}" * bool(owner)
    first = shutil.which("mpiexec")
    if first is None or Path(first).resolve() != path.resolve():
        return (
            WARN,
            f"{text}, but the shell finds {first or 'none'}",
            f"call it by its path, or activate the environment in {sys.prefix}",
        )
    return OK, text, ""


def two_ranks() -> Finding:
    """A program on two ranks."""
    path = find_mpiexec()
    if path is None or find_spec("mpi4py") is None:
        return WARN, "skipped: MPI is not installed", GET_MPI
    try:
        done = run([str(path), "-n", "2", sys.executable, "-c", SMOKE])
    except subprocess.TimeoutExpired:
        return FAIL, f"no answer within {SECONDS} s", remedy_of_ranks(path)
    if done.returncode or "two ranks add up" not in done.stdout:
        # a launcher adds lines of its own
        errors = [line for line in done.stderr.splitlines() if "Error" in line or "error" in line]
        said = [*errors, last_line(done.stderr), done.stdout.strip()]
        said = [line for line in said if line] or [f"exit code {done.returncode}"]
        return FAIL, said[0], remedy_of_ranks(path)
    return OK, done.stdout.strip(), ""


def remedy_of_ranks(mpiexec: Path) -> str:
    """What to do if ranks of this launcher do not reach each other."""
    try:
        name = mpi_library().name
    except CommError:
        return GET_MPI
    owner = owner_of(mpiexec)
    if owner and owner.startswith("Open MPI") != name.startswith("Open MPI"):
        return (
            f"mpiexec is of {owner}, but mpi4py uses {name}: use the mpiexec of {name}, or let"
            f" MPI4PY_LIBMPI name the libmpi.so of {owner}"
        )
    return f"mpiexec and mpi4py may belong to different MPI libraries: {GET_MPI}"


def this_job() -> Finding:
    """The ranks with which this command was started. All ranks take part."""
    try:
        comm = start()
    except (CommError, ConfigError) as error:
        return FAIL, str(error), ""
    mine = (platform.node(), threads().count, available_cores(), os.cpu_count() or 1)
    counts: dict[str, list[int]] = {}
    cores: dict[str, set[int]] = {}
    in_all: dict[str, int] = {}
    for machine, count, its, all_cores in comm.all_gather(mine):
        counts.setdefault(machine, []).append(count)
        cores.setdefault(machine, set()).update(its)
        in_all[machine] = all_cores
    lines = [
        f"{len(counts[machine])} on {machine} with {span(counts[machine])} thread(s) each, on"
        f" {len(cores[machine])} of {in_all[machine]} cores"
        for machine in counts
    ]
    if len(lines) > NAMED:
        lines[NAMED:] = [f"{len(lines) - NAMED} more machines"]
    text = f"{comm.size} ranks: {'; '.join(lines)}"
    if any(len(counts[machine]) > len(cores[machine]) for machine in counts):
        return WARN, text, "ranks share cores; start fewer of them on a machine"
    return OK, text, ""


def span(numbers: list[int]) -> str:
    """Numbers in words: "4", or "1 to 4"."""
    least = min(numbers)
    most = max(numbers)
    return str(least) if least == most else f"{least} to {most}"


def version_of(package: str) -> str:
    """Installed version, empty if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def numbers(version: str) -> tuple[int, ...]:
    """First two numbers of a version; (0,) if there are none."""
    parts = [part for part in version.split(".")[:2] if part.isdigit()]
    return tuple(map(int, parts)) or (0,)


def last_line(text: str) -> str:
    """The last line with a word; in a traceback it is the error. Open MPI ends its messages with a
    rule.
    """
    lines = [line for line in text.splitlines() if any(map(str.isalnum, line))]
    return lines[-1] if lines else ""
