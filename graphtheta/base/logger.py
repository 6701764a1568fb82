"""Logging to standard error; ``start_logging`` sets level and format."""

from __future__ import annotations

import logging

from graphtheta.base.console import printable

logger = logging.getLogger("graphtheta")


class Printable(logging.Formatter):
    """Formats records without characters that a terminal would obey."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def start_logging(level: str, rank: int = 0, size: int = 1) -> None:
    """Send the log to standard error, one line as: time, rank/size, level, module, text.

    Args:
        level: debug, info, warning or error.
        rank, size: Of this process; ranks above 0 report warnings and errors only.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(
        Printable(f"%(asctime)s {rank}/{size} %(levelname)s %(module)s: %(message)s", "%H:%M:%S")
    )
    for old in list(logger.handlers):
        logger.removeHandler(old)
    logger.addHandler(handler)
    logger.setLevel(
        level.upper() if rank == 0 else max(logging.WARNING, getattr(logging, level.upper()))
    )
