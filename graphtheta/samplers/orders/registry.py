"""Orders of targets by name."""

from __future__ import annotations

from inspect import isclass
from typing import Any

from graphtheta.base.registry import Registry
from graphtheta.engine.strategy.order import IdOrder, Order, RandomOrder
from graphtheta.samplers.orders.balanced import BalancedOrder
from graphtheta.samplers.orders.proximity import ProximityOrder


def is_order(x: Any) -> bool:
    """Whether x is a class of orders."""
    return (
        isclass(x)
        and isinstance(getattr(x, "name", None), str)
        and callable(getattr(x, "positions", None))
    )


ORDERS: Registry[type[Order]] = Registry(
    "order", is_order, (), (RandomOrder, ProximityOrder, BalancedOrder, IdOrder)
)


def make_order(text: str, offered: dict[str, Any]) -> Order:
    """The order that ``NAME:option=value,...`` describes, with a name in ``ORDERS`` or
    FILE.py:NAME.

    Args:
        text: The description.
        offered: Arguments that text cannot set, such as ``batch_size``.

    Raises:
        ConfigError: Unknown name, unknown option, or a value of another type.
    """
    kind, named, options = ORDERS.described(text, "order", offered)
    return kind(**named, **options)
