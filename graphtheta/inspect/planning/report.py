"""Plans as text: a table, the row it recommends, and the refusal of a job that cannot fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from graphtheta.base.console import amount, figure, table
from graphtheta.base.memory import available_bytes
from graphtheta.inspect.planning.machine import Machine
from graphtheta.inspect.planning.plan import Row
from graphtheta.run.memory.bound import MemoryBound

# numbers of workers that are tried if nothing fits
MORE_WORKERS = (2, 4, 8, 16, 32)
HEADER = (
    "strategy",
    "mode",
    "workers",
    "partitioner",
    "masters",
    "memory",
    "sent",
    "messages",
    "updates",
    "epoch s",
    "compute",
    "views",
    "transfer",
    "fits",
)


@dataclass(frozen=True)
class Limit:
    """The memory that a worker may use.

    Attributes:
        bytes: Of each worker; None for its share of what this machine has free.
        per_machine: Workers of a machine; 0 for all.
    """

    bytes: int | None
    per_machine: int

    def of(self, row: Row) -> int:
        """The limit of a worker."""
        return (
            available_bytes() // (self.per_machine or row.workers)
            if self.bytes is None
            else self.bytes
        )

    def fits(self, row: Row) -> bool:
        """Whether the worker that needs most stays within it."""
        return row.memory <= self.of(row)


def report(rows: Sequence[Row], limit: Limit, machine: Machine) -> str:
    """All rows as a table, with notes and the row that is recommended.

    Args:
        rows: The plan.
        limit: Memory of a worker.
        machine: What the times hold for.
    """
    lines = [table(HEADER, [_cells(row, limit) for row in rows])]
    fitting = [row for row in rows if limit.fits(row)]
    best = min(fitting, key=lambda row: row.seconds) if fitting else None
    sampled = [row for row in rows if row.counted < row.views]
    lines.append(
        "memory is that of the worker that needs most; bytes sent are those of halo moves, of sums"
        " of gradients, and of making views with their features\nseconds of an epoch without"
        f" evaluation, on machines like this one with {machine.cores} core(s), whose speed was"
        f" fitted within {machine.error:.0%}"
    )
    if sampled:
        lines[-1] += (
            f"\n~ scaled from {sampled[0].counted} sampled views, --exact counts all; all other"
            " bytes, messages and updates are exact"
        )
    lines += [
        f"{row.name}: caches hold {row.hits / (row.hits + row.misses):.1%} of the"
        f" {figure(row.hits + row.misses)} rows that views of the first epoch read from others"
        for row in rows
        if row.hits + row.misses
    ]
    if best is not None:
        parts = ", ".join(
            f"{f.name} {amount(getattr(best.bound, f.name))}"
            for f in fields(MemoryBound)
            if getattr(best.bound, f.name)
        )
        lines.append(
            f"shortest epoch of those that fit: {best.name}\n"
            f"its memory: process {amount(best.memory - best.bound.total)}, {parts}"
        )
    return "\n\n".join(lines)


def refusal(rows: Sequence[Row], more: Sequence[Row], limit: Limit) -> str:
    """Why no row fits, and what would.

    Args:
        rows: The plan, of which no row fits.
        more: The same on more workers.
        limit: Memory of a worker.
    """
    least = min(rows, key=lambda row: row.memory)
    said = (
        f"no way of running this job fits: {least.name} needs {amount(least.memory)} a worker,"
        f" limit {amount(limit.of(least))}"
    )
    fitting = [row for row in more if limit.fits(row)]
    if fitting:
        fewest = min(fitting, key=lambda row: (row.workers, row.memory))
        return f"{said}; {fewest.name} would fit with {amount(fewest.memory)}"
    floor = least.memory - least.bound.total
    tried = f", nor on up to {max(row.workers for row in more)} workers" if more else ""
    return (
        f"{said}{tried}; the process and the whole graph alone take {amount(floor)} of it: use"
        " narrower features or layers, --recompute, smaller batches with --strategy mini, or"
        " machines with more memory"
    )


def _cells(row: Row, limit: Limit) -> tuple[str, ...]:
    about = "~" if row.counted < row.views else ""
    seconds = (row.seconds, row.compute, row.build, row.transfer)
    return (
        row.strategy,
        row.mode,
        str(row.workers),
        row.partitioner,
        row.masters,
        amount(row.memory),
        about + amount(row.sent),
        about + figure(row.messages),
        figure(row.steps),
        *(f"{s:.3g}" for s in seconds),
        "yes" if limit.fits(row) else "no",
    )
