"""What the control groups of this process leave it: a container, or a job of Slurm, has less than the machine.

Both versions of Linux' control groups; elsewhere there are no limits.
"""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

MEMBERSHIP, ROOT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def cpu_quota() -> float | None:
    """CPUs that may be used, or None without a limit."""
    quotas = []
    for folder in _groups("cpu"):
        found = _words(folder / "cpu.max") or _words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us")
        quota, period = (*map(_number, found), None, None)[:2]
        if quota and period:
            quotas.append(quota / period)
    return min(quotas, default=None)


def memory_limit() -> int | None:
    """Bytes of memory that may be used, or None without a limit."""
    return min((limit for limit, _ in _memory()), default=None)


def memory_left() -> int | None:
    """Bytes of memory that may still be taken, or None without a limit; files that are only cached count as free."""
    return min((max(0, limit - used) for limit, used in _memory()), default=None)


def _memory() -> Iterator[tuple[int, int]]:
    """Limit and use of every group that has a limit."""
    for folder in _groups("memory"):
        limit, used = (_first(folder / new) or _first(folder / old)
                       for new, old in (("memory.max", "memory.limit_in_bytes"), ("memory.current", "memory.usage_in_bytes")))
        if limit is not None:
            words = _words(folder / "memory.stat")
            held = dict(zip(words[::2], words[1::2], strict=False))
            # the first version tells it of the group alone, and with those below it
            cached = held.get("total_inactive_file", held.get("inactive_file", "0"))
            yield limit, (used or 0) - int(cached)


def _groups(controller: str) -> Iterator[Path]:
    """Folders of the groups this process is in, innermost first; those outside a container cannot be seen from within."""
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
