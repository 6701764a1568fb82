"""Room of parts, and checks of options."""

from __future__ import annotations

from typing import Any

from graphtheta.errors import ConfigError


def capacity(n: int, size: int, slack: float) -> int:
    """The most of n items that one of size workers may have: (1 + slack) n / size, at least n /
    size rounded up, at most n.
    """
    # the product may be infinite
    return max(-(-n // size), int(min((1 + slack) * n / size, n)))


def check_option(of: Any, option: str, allowed: bool, expected: str) -> None:
    """Refuse a value of an option.

    Args:
        of: The partitioner or placement.
        option: Name of the field.
        allowed: Whether its value is allowed.
        expected: What is, in words.

    Raises:
        ConfigError: It is not.
    """
    if not allowed:
        raise ConfigError(f"{of.name}: {option} is {getattr(of, option)}; expected {expected}")
