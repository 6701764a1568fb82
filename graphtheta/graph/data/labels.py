"""What labels are. Arrays, tables, objects of other libraries, typed graphs and whole graphs all
ask ``label_form``.

========================= ============ =============================================================
values                    one a row    several a row
========================= ============ =============================================================
integers, bools           classes      0/1 labels if all are 0 or 1, else targets of regression
floats                    targets      0/1 labels if all are 0, 1 or NaN, else targets of regression
texts                     class names  none
lists of integers, texts               the classes of a row
lists of bools, floats                 as several values a row
========================= ============ =============================================================

One value a row is [n], [n, 1] or a column. Several are [n, C], a fixed-size list or several
columns. A row without a label has -1 among classes, NaN in all columns of others, no text, or no
list.
"""

from __future__ import annotations

from enum import Enum


class LabelForm(Enum):
    """How the values of labels are read."""

    CLASSES = "a number of a class"
    NAMES = "a name of a class"
    SETS = "a list of classes"
    TARGETS = "a number for each label or target"


def label_form(kind: str, width: int = 1, lists: bool = False) -> LabelForm | None:
    """How labels are read, by their type alone.

    Args:
        kind: Letter of the NumPy kind of the values: i, u, b, f or U.
        width: Values of a row.
        lists: Whether rows are lists that may have different lengths.

    Returns:
        The form; None if such values cannot be labels.
    """
    if lists:
        return LabelForm.SETS if kind in "iuU" else LabelForm.TARGETS if kind in "bf" else None
    if kind in "iub":
        return LabelForm.CLASSES if width == 1 else LabelForm.TARGETS
    if kind == "U":
        return LabelForm.NAMES if width == 1 else None
    return LabelForm.TARGETS if kind == "f" else None
