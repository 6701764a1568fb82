"""Limits of control groups, of both versions, in containers and in jobs of Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphtheta.base import cgroup, memory

NO_LIMIT = str(2**63 - 4096)


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Lays out control groups: membership, and the content of files."""

    def lay(membership: str, files: dict[str, str]) -> None:
        for name, text in files.items():
            path = tmp_path / "cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        (tmp_path / "self").write_text(membership)
        monkeypatch.setattr(cgroup, "MEMBERSHIP", tmp_path / "self")
        monkeypatch.setattr(cgroup, "ROOT", tmp_path / "cgroup")
        memory.total_bytes.cache_clear()

    yield lay
    memory.total_bytes.cache_clear()


def test_a_container_sees_its_own_group(groups):
    groups(
        "0::/\n",
        {
            "memory.max": "1000000",
            "memory.current": "700000",
            "memory.stat": "anon 1\ninactive_file 200000",
            "cpu.max": "150000 100000",
        },
    )
    assert (cgroup.memory_limit(), cgroup.memory_left(), cgroup.cpu_quota()) == (
        1000000,
        500000,
        1.5,
    )


def test_the_narrowest_group_above_counts(groups):
    groups(
        "0::/slurm/job_7/step_0\n",
        {
            "slurm/job_7/step_0/memory.max": "max",
            "slurm/job_7/step_0/cpu.max": "max 100000",
            "slurm/job_7/memory.max": "5000",
            "slurm/job_7/memory.current": "1000",
            "slurm/job_7/cpu.max": "400000 100000",
            "slurm/memory.max": "6000",
            "slurm/memory.current": "5500",
            "slurm/cpu.max": "800000 100000",
            "other/memory.max": "10",
        },
    )
    assert (cgroup.memory_limit(), cgroup.memory_left(), cgroup.cpu_quota()) == (5000, 500, 4.0)


def test_the_first_version(groups):
    groups(
        "4:memory:/docker/a\n2:cpu,cpuacct:/docker/a\n0::/\n",
        {
            "memory/memory.limit_in_bytes": "4000",
            "memory/memory.usage_in_bytes": "3000",
            "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 500",
            "cpu/cpu.cfs_quota_us": "50000",
            "cpu/cpu.cfs_period_us": "100000",
        },
    )
    assert (cgroup.memory_limit(), cgroup.memory_left(), cgroup.cpu_quota()) == (4000, 1500, 0.5)


@pytest.mark.parametrize(
    ("membership", "files"),
    [
        ("", {}),
        ("0::/\n", {}),
        ("0::/\n", {"memory.max": "max", "cpu.max": "max 100000"}),
        ("2:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}),
        ("0::/\n", {"memory.max": "", "cpu.max": ""}),
    ],
)
def test_no_limit(groups, membership, files):
    groups(membership, files)
    assert cgroup.memory_limit() is cgroup.memory_left() is cgroup.cpu_quota() is None


def test_limits_are_those_that_jobs_are_held_against(groups):
    whole = memory.total_bytes()
    free = memory.available_bytes()
    groups("0::/\n", {"memory.max": "4096", "memory.current": "5000"})
    assert (memory.total_bytes(), memory.available_bytes()) == (4096, 0)
    groups(
        "4:memory:/\n",
        {"memory/memory.limit_in_bytes": NO_LIMIT, "memory/memory.usage_in_bytes": "0"},
    )
    assert memory.total_bytes() == whole and memory.available_bytes() > free / 2
