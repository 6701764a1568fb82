"""CPU and memory limits of this process from Linux control groups (containers, Slurm jobs).

Reads both versions of control groups; on other systems there are no limits.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

MEMBERSHIP, ROOT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def cpu_quota() -> float | None:
    """Number of CPUs this process may use, or None without a limit."""
    quotas = []
    for folder in _groups("cpu"):
        words = _words(folder / "cpu.max") or _words(folder / "cpu.cfs_quota_us") + _words(
            folder / "cpu.cfs_period_us"
        )
        quota, period = (*map(_number, words), None, None)[:2]
        if quota and period:
            quotas.append(quota / period)
    return min(quotas, default=None)


def memory_limit() -> int | None:
    """Bytes of memory this process may use, or None without a limit."""
    return min((limit for limit, _ in _memory()), default=None)


def memory_left() -> int | None:
    """Bytes of memory that are still free, or None without a limit; cached files count as free."""
    return min((max(0, limit - used) for limit, used in _memory()), default=None)


def _memory() -> Iterator[tuple[int, int]]:
    """Limit and use of every group that has a limit."""
    for folder in _groups("memory"):
        limit, used = (
            _first(folder / new) or _first(folder / old)
            for new, old in (
                ("memory.max", "memory.limit_in_bytes"),
                ("memory.current", "memory.usage_in_bytes"),
            )
        )
        if limit is not None:
            words = _words(folder / "memory.stat")
            stat = dict(zip(words[::2], words[1::2], strict=False))
            # version 1 also reports the group alone; total_ includes the groups below it
            cached = stat.get("total_inactive_file", stat.get("inactive_file", "0"))
            yield limit, (used or 0) - int(cached)


def _groups(controller: str) -> Iterator[Path]:
    """Folders of this process's groups, innermost first; those outside a container are hidden."""
    for line in _lines(MEMBERSHIP):
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        group = PurePosixPath(path.lstrip("/"))
        for part in (group, *group.parents):
            yield (ROOT / controller if controllers else ROOT) / part


def _first(path: Path) -> int | None:
    """The number in a file."""
    return _number((*_words(path), "")[0])


def _number(word: str) -> int | None:
    """A number; None for "max", -1 or nothing, which are no limits."""
    return int(word) if word.isdigit() else None


def _words(path: Path) -> list[str]:
    return [word for line in _lines(path) for word in line.split()]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
