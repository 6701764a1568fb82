"""How far metrics may differ between numbers of workers.

Measures of the order of scores move where scores are equal in exact arithmetic, such as those of
(h, r, t) and (t, r, h) with distmult, and rounding sets them apart; see "Rounding" in
docs/metrics.md.
"""

from __future__ import annotations

OF_ORDER = ("auc", "average_precision")
# the share of such pairs in the small graphs of the tests
TIED = 2e-3


def tolerance(name: str, otherwise: float = 1e-9) -> float:
    """The absolute tolerance of a metric by its name in a row, such as "val_auc"."""
    return TIED if name.endswith(OF_ORDER) else otherwise
