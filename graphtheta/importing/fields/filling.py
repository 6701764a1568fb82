"""What stands for missing values: rules by column, and the values that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from graphtheta.engine.comm.communicator import Comm
from graphtheta.errors import DataError
from graphtheta.importing.fields.statistics import Frequencies, Moments

# a missing value is an error; or it becomes the mean or the most frequent value of the training
# rows, or 0; or it is marked by a feature or a name of its own
RULES = ("error", "mean", "mode", "zero", "own")
# the name of its own of a column of names, for missing names and for those that are unknown later
OWN = "(other)"


class Filling:
    """The values that stand for missing numbers.

    Args:
        columns: The column of each number of a row, [k].
        rules: The rule of each column.
        training: Gives the training rows of a table, [n] bool.

    Attributes:
        fills: Whether each number has a rule, [k] bool.
        values: What stands for missing ones, [k] float64, after ``agree``; NaN where the features
            of the column become 0.
        over: The rows that the values were taken over, "training" or "all"; empty if there are no
            such values.
    """

    def __init__(
        self,
        columns: Sequence[str],
        rules: dict[str, str],
        training: Callable[[pa.Table], np.ndarray],
    ):
        self._columns = columns
        self._rules = [rules[column] for column in columns]
        self._training = training
        self._moments = Moments()
        self._counts = [Frequencies(column) for column in columns]
        self._taken = False
        self.fills = np.array([rule != "error" for rule in self._rules])
        self.values = np.full(len(columns), np.nan)
        self.over = ""

    def observe(self, table: pa.Table, x: np.ndarray) -> None:
        """Take notice of the numbers of rows that are used.

        Args:
            table: The rows.
            x: Their numbers, [n, k] float64, NaN where there is none.
        """
        if self._taken or not {"mean", "mode"} & set(self._rules):
            return
        train = self._training(table)
        if "mean" in self._rules:
            self._moments.add(x, train)
        for k, rule in enumerate(self._rules):
            if rule == "mode":
                self._counts[k].add(pa.array(x[:, k], from_pandas=True), train)

    def agree(self, comm: Comm) -> None:
        """Compute the values of all workers together.

        Raises:
            DataError: A column has no value from which one follows.

        Collective: all ranks of comm.
        """
        if self._taken:
            return
        if "mean" in self._rules:
            count, mean, _, in_train = self._moments.agree(comm, len(self._columns))
            for k, rule in enumerate(self._rules):
                if rule == "mean":
                    self._set(k, float(mean[k]) if count[k] else None, in_train)
        for k, rule in enumerate(self._rules):
            if rule == "mode":
                self._set(k, *self._counts[k].agree(comm))

    def _set(self, k: int, value: float | None, in_train: bool) -> None:
        if value is None:
            raise no_value(self._columns[k], self._rules[k], in_train)
        self.values[k] = value
        self.over = rows_of(in_train)

    def filled(self, x: np.ndarray) -> np.ndarray:
        """Numbers with those that stand for missing ones."""
        return np.where(np.isnan(x), self.values, x)

    def learnt(self) -> dict[str, Any]:
        """What another import takes."""
        return {"fill": [None if np.isnan(value) else value for value in self.values.tolist()]}

    def take(self, learnt: dict[str, Any]) -> None:
        """Take the values of another import, and compute none."""
        self._taken = True
        self.values = np.array(
            [np.nan if value is None else value for value in learnt["fill"]], np.float64
        )


def rows_of(in_train: bool) -> str:
    """The word for the rows that statistics are taken over."""
    return "training" if in_train else "all"


def no_value(column: str, rule: str, in_train: bool) -> DataError:
    """The error about a column from whose values none follows."""
    return DataError(
        f"column '{column}' has no value in any {'training ' * in_train}row, so that it has no"
        f" {rule}; give --missing {column}=zero, or leave the column out"
    )
