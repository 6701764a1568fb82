"""Samplers by name."""
from __future__ import annotations

from inspect import isclass
from typing import Any

from graphtheta.registry import Registry

from .neighbour import NeighbourSampler
from .sampler import Sampler


def is_sampler(x: Any) -> bool:
    """Whether x is a class of samplers."""
    return isclass(x) and isinstance(getattr(x, "name", None), str) and callable(getattr(x, "choose", None))


# The constructor of a sampler receives those of these arguments that it names: ``fanouts`` (one
# number per hop, the hop furthest from the targets first; -1 for all), ``replace``, ``seed`` and
# ``shared``
SAMPLERS: Registry[type[Sampler]] = Registry("sampler", is_sampler, (), (NeighbourSampler,))
