"""Makes every mistake of the tables on real workers, in turns; run by mpiexec. Says of each what
the workers were told.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import graphtheta as gt
from graphtheta.errors import GraphThetaError

HERE = Path(__file__).resolve().parent


def module(name: str) -> Any:
    """A file of tests beside this one."""
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    made = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def main() -> None:
    comm = gt.start()
    mistakes = module("test_bad_input")
    files = module("test_bad_file")
    for name, (attempt, *_) in {**mistakes.CASES, **files.CASES}.items():
        told = ""
        with tempfile.TemporaryDirectory() as folder:
            try:
                mistakes.run_on(attempt, comm) if name in mistakes.CASES else attempt(Path(folder))
            except GraphThetaError as error:
                told = str(error).replace(folder, "").removeprefix("rank 0: ")
        every = comm.all_gather(told)
        if comm.rank == 0:
            sys.stdout.write(json.dumps([name, *every]) + "\n")
            sys.stdout.flush()


main()
