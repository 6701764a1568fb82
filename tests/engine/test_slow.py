"""Messages over a chosen link arrive no sooner than they should, and unchanged."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from graphtheta.engine.comm.delayed import read_link
from graphtheta.errors import ConfigError

# those of the program
LATENCY, BANDWIDTH = 0.1, 1e6
PROGRAM = Path(__file__).with_name("slow_program.py")
# mpiexec from a wheel lies beside the interpreter
MPIEXEC = shutil.which(
    "mpiexec", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
)


def test_messages_take_their_time(tmp_path):
    pytest.importorskip("mpi4py")
    if MPIEXEC is None:
        pytest.skip("there is no mpiexec")
    out = tmp_path / "found.json"
    command = [MPIEXEC, "-n", "2", sys.executable, str(PROGRAM), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(out.read_text())
    assert found["move"] >= LATENCY + 30_000 / BANDWIDTH
    assert found["moves"] >= 3 * (LATENCY + 10_000 / BANDWIDTH)
    assert found["all_sum"] >= LATENCY
    # while one task waits for its message the next ones begin, at least on the rank that was there
    # first
    assert [f"{i} begins" for i in range(5)] in [log[:5] for log in found["logs"]]


def test_links_are_read():
    assert read_link("50us,10Gbit/s") == pytest.approx((5e-5, 1.25e9, False, 1))
    assert read_link(" 1.5 ms , 100 Mbit/s ") == pytest.approx((1.5e-3, 1.25e7, False, 1))
    assert read_link("50us,10Gbit/s,blocking")[2]
    assert read_link("50us,10Gbit/s, 2 ranks a machine")[2:] == (False, 2)
    for wrong in (
        "",
        "50us",
        "fast",
        "50us,0Gbit/s",
        "1.2.3us,1Gbit/s",
        f"50us,{10**400}bit/s",
        "10Gbit/s,50us",
        "50us,1Gbit/s,0 ranks a machine",
    ):
        with pytest.raises(ConfigError, match="expected latency and bandwidth"):
            read_link(wrong)
