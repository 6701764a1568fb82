"""The memory bound of a job is above its peak, whatever it scores, and not far above."""

from __future__ import annotations

import sys

import pytest
from memory_program import JOBS
from ranks import TESTS, run

import graphtheta as gt
from graphtheta.errors import MemoryLimitError
from graphtheta.run.memory import bound

PROGRAM = f"{TESTS}/memory_program.py"
# of a process, beside arrays: buffers of libraries, pages that Python keeps
BESIDE = 32 << 20


@pytest.mark.second
@pytest.mark.parametrize("name", JOBS)
def test_the_bound_is_above_the_peak(name):
    done = run([sys.executable, PROGRAM, name])
    peak, most = map(int, done.stdout.split()[-2:])
    assert peak - BESIDE <= most < 8 * peak, f"peak {peak >> 20} MiB, bound {most >> 20} MiB"


@pytest.mark.parametrize(
    "keys", [{"negatives": 300}, {"eval_negatives": 300}, {"rank_all": True}], ids=str
)
def test_a_job_is_refused_for_the_pairs_that_it_scores(keys, monkeypatch):
    make, n, m, _ = JOBS["links"]
    graph = make(n, m)
    job = {"model": "sage", "task": "link", "backend": "reference", "hidden": 4}
    monkeypatch.setattr(bound, "available_bytes", lambda: 100 << 20)
    gt.Trainer(graph=graph, **job)
    with pytest.raises(MemoryLimitError, match="fewer negatives"):
        gt.Trainer(graph=graph, **job, **keys)
