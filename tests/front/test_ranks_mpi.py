"""Ranks among all nodes, and medians and largest messages, on real workers: the numbers of one."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from ranks import MPIEXEC, needs_mpi, run

PROGRAM = Path(__file__).with_name("ranks_program.py")


@pytest.mark.second
@needs_mpi
def test_workers_have_the_numbers_of_one(tmp_path: Path) -> None:
    found = []
    for size in (1, 3):
        out = tmp_path / f"{size}.npz"
        done = run(
            [MPIEXEC, "-n", str(size), sys.executable, str(PROGRAM), str(out)], OMP_NUM_THREADS="1"
        )
        assert done.returncode == 0, done.stderr[-3000:]
        with np.load(out) as z:
            found.append({name: z[name] for name in z.files})
    assert len(found[0]) == 4
    for other in found[1:]:
        for name, numbers in found[0].items():
            np.testing.assert_allclose(other[name], numbers, rtol=1e-9, atol=1e-12, err_msg=name)
