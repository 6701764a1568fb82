"""Precision, recall, F1 and support of each class or label; confusion matrix and curves."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from graphtheta.base.console import figure, table
from graphtheta.base.html import html_table
from graphtheta.ops.functions.metrics.counts import class_report
from graphtheta.ops.functions.metrics.curves import precision_recall
from graphtheta.tasks.evaluation.evaluate import Decisions

Share = Annotated[float, Field(ge=0, le=1)]


class SplitColumns(BaseModel):
    """The report of a split, a number for each class. Support is the number of rows of a class."""

    model_config = ConfigDict(extra="forbid")

    precision: list[Share]
    recall: list[Share]
    f1: list[Share]
    support: list[Annotated[int, Field(ge=0)]]


COLUMNS = tuple(SplitColumns.model_fields)
# threshold, precision and recall
Point = tuple[Share, Share, Share]


class ClassReport(BaseModel):
    """A report of each class, by split.

    Attributes:
        names: Of the classes or labels.
        thresholds: Probabilities above which each label, or the positive one of two classes, is
            predicted; empty if all are 0.5.
        splits: A report for each split; none if the task has no classes.
        positive: Name of the positive class; empty if there are not two classes, or if an earlier
            version wrote the report.
        confusion: By split, the number of rows of each true class, a row of the matrix, that are
            predicted as each class, [C, C]. Empty for labels, more than ``MOST_IN_MATRIX`` classes,
            or if an earlier version wrote the report.
        curves: By split, for each class or label its points (threshold, precision, recall), of
            rising thresholds; empty for more than ``MOST_CURVES``. Curves are those of
            probabilities, whatever the thresholds of decisions are.
    """

    model_config = ConfigDict(extra="forbid")

    names: list[str]
    thresholds: list[Share]
    splits: dict[str, SplitColumns]
    positive: str = ""
    confusion: dict[str, list[list[Annotated[int, Field(ge=0)]]]] = Field(default_factory=dict)
    curves: dict[str, list[list[Point]]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_lengths(self) -> ClassReport:
        if any(len(x) != len(self.names) for columns in self.splits.values() for _, x in columns):
            raise ValueError(f"expected one number for each of {len(self.names)} classes")
        n = len(self.names)
        square = [[len(row) for row in matrix] == [n] * n for matrix in self.confusion.values()]
        if not all(square) or any(len(of) != n for of in self.curves.values()):
            raise ValueError(f"expected a row of a matrix, and a curve, for each of {n} classes")
        return self

    @classmethod
    def of(cls, decisions: Decisions, names: tuple[str, ...], positive: str = "") -> ClassReport:
        """The report of counted decisions; classes without names are numbered."""
        splits = {}
        for split, counts in decisions.counts.items():
            splits[split] = SplitColumns(
                **{name: x.tolist() for name, x in class_report(counts).items()}
            )
        n = max((len(counts) for counts in decisions.counts.values()), default=0)
        thresholds = [] if decisions.thresholds is None else decisions.thresholds.tolist()
        labels = [*names] or [str(i) for i in range(n)]
        return cls(
            names=labels,
            thresholds=thresholds,
            splits=splits,
            positive=positive,
            confusion={split: matrix.tolist() for split, matrix in decisions.matrices.items()},
            curves={split: [*map(precision_recall, of)] for split, of in decisions.curves.items()},
        )

    def __repr__(self) -> str:
        splits = "".join(f", {name}" for name in self.splits)
        positive = f"; positive class {self.positive}" if self.positive else ""
        return f"ClassReport({len(self.names):,} classes{splits}{positive})"

    def __str__(self) -> str:
        return "\n\n".join(f"{split}\n{self.text(split)}" for split in self.splits) or repr(self)

    def _repr_html_(self) -> str:
        return "".join(
            html_table(split, ("class", *COLUMNS), self.rows(split)) for split in self.splits
        )

    def rows(self, split: str) -> list[tuple[str, ...]]:
        """Cells of a table: each class, and its numbers of a split."""
        columns = self.splits[split]
        return [
            (name, *map(figure, numbers))
            for name, *numbers in zip(self.names, *(x for _, x in columns), strict=True)
        ]

    def text(self, split: str) -> str:
        """A table of a split, and the confusion matrix if there is one."""
        of_classes = table(("class", *COLUMNS), self.rows(split))
        if split not in self.confusion:
            return of_classes
        rows = [
            (name, *map(figure, numbers))
            for name, numbers in zip(self.names, self.confusion[split], strict=True)
        ]
        return f"{of_classes}\n\n{table(('true, predicted', *self.names), rows)}"
