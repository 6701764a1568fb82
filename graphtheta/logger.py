"""Logging: silent unless a program asks. Ranks above 0 speak from WARNING up."""
from __future__ import annotations

import logging

logger = logging.getLogger("graphtheta")
logger.addHandler(logging.NullHandler())


def start_logging(level: str, rank: int = 0, size: int = 1) -> None:
    """Send the log to standard error, one line as: time, rank/size, level, module, text.

    Args:
        level: debug, info, warning or error.
        rank, size: Of this process; ranks above 0 tell warnings and errors only.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(f"%(asctime)s {rank}/{size} %(levelname)s %(module)s: %(message)s", "%H:%M:%S"))
    for old in logger.handlers[1:]:
        logger.removeHandler(old)
    logger.addHandler(handler)
    logger.setLevel(level.upper() if rank == 0 else max(logging.WARNING, getattr(logging, level.upper())))
