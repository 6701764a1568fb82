"""Lowerings of operations that only move numbers and keep their order: gradients pass through them
where they are used.
"""

from __future__ import annotations

from ...functions.dense import to_dense_p
from ...functions.rows import expand_last_p
from ...functions.shape import repeat_rows_p
from .lowering import Structural, register

for _operation in (expand_last_p, to_dense_p, repeat_rows_p):
    register(_operation, Structural(repeats=False))
