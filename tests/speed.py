"""The speed of a machine for tests that would measure this one, which takes a minute."""

from __future__ import annotations

from graphtheta.inspect.planning.machine import Machine
from graphtheta.inspect.planning.work import PARTS

# messages and threads take no time
IDEAL = Machine(
    seconds=(1e-9,) * len(PARTS),
    crowded=1.0,
    wake=0.0,
    together=(1.0, 1.0),
    message=0.0,
    collective=0.0,
    latency=0.0,
    byte=0.0,
    wire=0.0,
    cores=2,
    error=0.0,
)
