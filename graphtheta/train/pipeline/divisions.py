"""Divisions of the processors of a worker among the stages of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from typing import TypeAlias

from graphtheta.base.binding import can_bind
from graphtheta.engine.train.stages import FREE, STAGES, StageThreads, read_stages
from graphtheta.errors import ConfigError

# the stages of each team of threads, and its number of processors
Division: TypeAlias = tuple[tuple[tuple[str, ...], int], ...]
AUTO = "auto"


def free(processors: int) -> Division:
    """No division: all threads take all stages."""
    return ((STAGES, processors),)


def every_division(processors: int) -> Iterator[Division]:
    """All divisions among two teams or more, each with a processor or more."""
    for teams in _partitions(STAGES):
        for cuts in combinations(range(1, processors), len(teams) - 1):
            sizes = [b - a for a, b in pairwise((0, *cuts, processors))]
            if len(teams) > 1:
                yield tuple(zip(teams, sizes, strict=True))


def divisions_of(text: str, processors: Sequence[int], worker: int) -> list[Division]:
    """The divisions that a job allows.

    Args:
        text: The key ``stage_threads``, other than ``FREE``.
        processors: Those of this worker.
        worker: Its number.

    Raises:
        ConfigError: Threads cannot be bound on this platform, or there are too few processors.
    """
    if not can_bind():
        raise ConfigError(
            f"stage_threads={text} binds threads to processors, which this operating system does"
            " not offer; drop --stage-threads"
        )
    given = None if text == AUTO else tuple(read_stages(text).items())
    needed = 2 if given is None else sum(n for _, n in given)
    if needed > len(processors):
        fewer = "sampling+features=1,compute=1"
        smaller = f"give fewer, such as {fewer}, " if len(processors) > 1 else ""
        raise ConfigError(
            f"stage_threads={text} needs {needed} processors for each worker, but worker"
            f" {worker} has {len(processors)} of its own; {smaller}start fewer workers on its"
            " machine, or drop --stage-threads"
        )
    return list(every_division(len(processors))) if given is None else [given]


def bound(division: Division, processors: Sequence[int]) -> list[StageThreads]:
    """The threads of a division; none without one."""
    if len(division) == 1:
        return []
    teams = []
    begin = 0
    for stages, n in division:
        teams.append(StageThreads(stages, tuple(processors[begin : begin + n])))
        begin += n
    return teams


def as_text(division: Division) -> str:
    """As the key ``stage_threads`` has it."""
    if len(division) == 1:
        return FREE
    return ",".join(f"{'+'.join(stages)}={n}" for stages, n in division)


def _partitions(items: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], ...]]:
    """All ways to put items into groups, which keep their order."""
    if not items:
        yield ()
        return
    first, *others = items
    for size in range(len(others) + 1):
        for beside in combinations(others, size):
            rest = tuple(x for x in others if x not in beside)
            for groups in _partitions(rest):
                yield ((first, *beside), *groups)
