"""Histories: rows of values by number, with the step they were stored at, in bounded memory.

A row takes a line. When all lines are taken, the lines stored longest ago are replaced (oldest
cache line first, the OCF of DistGNN-MB), lines of equal age in the order of lines.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

# step of a line that holds no row
NEVER = np.iinfo(np.int64).min


class History:
    """The last stored values of some rows.

    Args:
        n_rows: Rows that may be stored are 0 to n_rows - 1.
        lines: Most rows that are stored at a time; at least 1.
    """

    def __init__(self, n_rows: int, lines: int):
        lines = min(lines, n_rows)
        self._line = np.full(n_rows, -1, np.int32)
        self._row = np.full(lines, -1, np.int64)
        self._step = np.full(lines, NEVER)
        # allocated by the first store, which knows their shape
        self._values: np.ndarray | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of lines and of their index."""
        return sum(
            x.nbytes for x in (self._line, self._row, self._step, self._values) if x is not None
        )

    def find(self, rows: np.ndarray, oldest: int = NEVER + 1) -> np.ndarray:
        """Lines of some rows, [n] int32; -1 for those that are not stored, or were stored before a
        step.

        Args:
            rows: Row numbers, [n].
            oldest: That step.
        """
        lines = self._line[rows]
        stored = lines >= 0
        stored[stored] = self._step[lines[stored]] >= oldest
        return np.where(stored, lines, -1)

    def steps(self, lines: np.ndarray) -> np.ndarray:
        """The steps at which some lines were stored, [n] int64."""
        return self._step[lines]

    def read(self, lines: np.ndarray) -> np.ndarray:
        """Values of lines that ``find`` returned, [n, ...]; none of them is -1."""
        assert self._values is not None
        return self._values[lines]

    def store(self, rows: np.ndarray, values: np.ndarray, step: int) -> None:
        """Store rows; those stored before are replaced.

        Args:
            rows: Row numbers, no row twice, [n]. If they are more than the lines, the last ones
                stay.
            values: [n, ...]; copied.
            step: The step, not below that of an earlier call.
        """
        if self._values is None:
            self._values = np.zeros((len(self._row), *values.shape[1:]), values.dtype)
        lines = self._line[rows]
        new = np.flatnonzero(lines < 0)
        stored = np.flatnonzero(lines >= 0)
        self._step[lines[stored]] = step
        room = len(self._row) - len(stored)
        new = new[max(len(new) - room, 0) :]
        lines[new] = taken = self._oldest(len(new), lines[stored])
        evicted = self._row[taken]
        self._line[evicted[evicted >= 0]] = -1
        self._row[taken] = rows[new]
        self._step[taken] = step
        self._line[rows[new]] = taken
        written = np.concatenate((stored, new))
        self._values[lines[written]] = values[written]

    def drop(self, rows: np.ndarray) -> None:
        """Remove rows that are stored, [n], none twice."""
        lines = self._line[rows]
        self._row[lines] = -1
        self._step[lines] = NEVER
        self._line[rows] = -1

    def _oldest(self, n: int, spared: np.ndarray) -> np.ndarray:
        """The n lines that were stored longest ago, without some; there are so many others."""
        if not n:
            return np.zeros(0, np.int32)
        used = self._step[self._step > NEVER]
        before = (int(used.min()) if len(used) else 0) - 1
        # empty lines count as those of the step before the first
        since = np.maximum(self._step, before) - before
        # lines of the same call have the same step as others that are stored in it
        since[spared] = since.max() + 1
        # steps are few: counting them takes a hundredth of the time of np.partition
        limit = np.searchsorted(np.cumsum(np.bincount(since)), n)
        older = np.flatnonzero(since < limit)
        equal = np.flatnonzero(since == limit)
        return np.concatenate((older, equal[: n - len(older)])).astype(np.int32)

    def state(self) -> dict[str, np.ndarray]:
        """Copies of lines that hold a row: "line", "row", "step" and "values"; the last only if
        anything was ever stored.
        """
        lines = np.flatnonzero(self._row >= 0)
        arrays = {"line": lines, "row": self._row[lines], "step": self._step[lines]}
        return arrays if self._values is None else {**arrays, "values": self._values[lines]}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore a result of ``state`` of a history of the same size."""
        self._line[:] = -1
        self._row[:] = -1
        self._step[:] = NEVER
        self._values = None
        if "values" in state:
            lines, values = state["line"], state["values"]
            self._values = np.zeros((len(self._row), *values.shape[1:]), values.dtype)
            self._row[lines] = state["row"]
            self._step[lines] = state["step"]
            self._values[lines] = values
            self._line[state["row"]] = lines
