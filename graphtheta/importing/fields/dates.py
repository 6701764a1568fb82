"""Dates and times as features: days since 1970, and where they are in the week and in the year."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from graphtheta.importing.tables.arrow import WHOLE, integers, null, one

# the numbers of a date
PARTS = ("days", "weekday sine", "weekday cosine", "month sine", "month cosine")
PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
# a float64 of days holds microseconds, so that the last one of a day does not become the next day
MICROSECONDS = 86_400_000_000
# 1 January 1970 was a Thursday, and Monday is 0
FIRST_WEEKDAY = 3


def is_date(kind: Any) -> bool:
    """Whether a type is one of dates or times."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def time_type(kind: Any) -> Any:
    """The type to read dates or times in."""
    return kind if pa.types.is_timestamp(kind) else pa.timestamp("s")


def days(column: Any) -> np.ndarray:
    """Days since 1970, with fractions; those of times with a zone are days of UTC.

    Args:
        column: Times.

    Returns:
        [n] float64, NaN where there is none.
    """
    whole = one(column)
    since = integers(whole.cast(WHOLE).fill_null(0))
    per_day = PER_DAY[whole.type.unit]
    parts = min(per_day, MICROSECONDS)
    out = since // per_day + (since % per_day) // (per_day // parts) / parts
    return np.where(null(whole), np.nan, out)


def encoded(since: np.ndarray) -> np.ndarray:
    """The numbers of dates, in the order of ``PARTS``.

    Args:
        since: Days since 1970, [n] float64, NaN where there is none.

    Returns:
        [n, 5] float64; NaN where there is none.
    """
    lacking = np.isnan(since)
    day = np.floor(np.where(lacking, 0, since)).astype(np.int64)
    month = day.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) % 12
    out = np.stack(
        [since, *circle(day + FIRST_WEEKDAY, 7), *circle(month, 12)],
        axis=1,
    )
    out[lacking] = np.nan
    return out


def circle(at: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Sine and cosine of places on a circle of n."""
    angle = 2 * np.pi * (at % n) / n
    return np.sin(angle), np.cos(angle)
