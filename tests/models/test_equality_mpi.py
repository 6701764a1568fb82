"""A share of the equality matrix on real workers, started by mpiexec."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from equality import COMPILED, EDGE_MODELS, LINK_MODELS, MODELS, STRATEGIES, alone, pairs

PROGRAM = Path(__file__).with_name("equality_program.py")
# mpiexec from a wheel lies beside the interpreter
MPIEXEC = shutil.which(
    "mpiexec", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
)


@pytest.mark.second
@pytest.mark.parametrize("size, back_end", [(2, "reference"), (3, "reference"), (2, "fused")])
def test_same_numbers_under_mpiexec(size, back_end, tmp_path):
    pytest.importorskip("mpi4py")
    if MPIEXEC is None:
        pytest.skip("there is no mpiexec")
    out = tmp_path / "numbers.npz"
    environment = {**os.environ, "PYTHONPATH": str(PROGRAM.parent.parent), "OMP_NUM_THREADS": "1"}
    command = [MPIEXEC, "-n", str(size), sys.executable, str(PROGRAM), str(out), back_end]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    # those of the kernels are other pairs, of few models
    which = {"share": size} if back_end == "reference" else {"only": COMPILED}
    checked = 0
    with np.load(out) as found:
        for name in found.files:
            task, _, strategy, model = name.split("|")
            numbers, edges = alone(task, **which)
            if model == "edges":
                np.testing.assert_array_equal(
                    found[name],
                    np.concatenate([level.ravel() for level in edges[strategy]]),
                    err_msg=name,
                )
                continue
            losses, grads = numbers[strategy, model]
            n = len(losses)
            for mine, theirs in ((found[name][:n], losses), (found[name][n:], grads)):
                error = np.abs(mine - theirs).max() / np.abs(theirs).max()
                assert error < 1e-9, f"{name} on {size} workers differs by {error:.1e}"
            checked += 1
    shared = sum(len(pairs(models, size)) for models in (MODELS, LINK_MODELS, EDGE_MODELS))
    assert checked == (shared if back_end == "reference" else len(COMPILED) * len(STRATEGIES))
