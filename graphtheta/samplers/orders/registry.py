"""Orders of targets by name."""

from __future__ import annotations

from graphtheta.base.registry import Registry, named_class
from graphtheta.engine.strategy.order import IdOrder, Order, RandomOrder
from graphtheta.samplers.orders.balanced import BalancedOrder
from graphtheta.samplers.orders.proximity import ProximityOrder

# the constructor of an order receives ``batch_size`` if it names it
ORDERS: Registry[type[Order]] = Registry(
    "order",
    named_class(method="positions"),
    (),
    (RandomOrder, ProximityOrder, BalancedOrder, IdOrder),
)
