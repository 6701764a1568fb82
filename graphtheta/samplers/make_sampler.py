"""Samplers by the text that describes them."""

from __future__ import annotations

from typing import Any

from graphtheta.engine.sampling.node_set import NodeSetSampler
from graphtheta.engine.sampling.sampler import Sampler
from graphtheta.samplers.registry import SAMPLERS


def make_sampler(text: str, offered: dict[str, Any]) -> tuple[Sampler | NodeSetSampler, set[str]]:
    """A sampler, and which of the arguments it is offered its constructor takes.

    Args:
        text: ``NAME:field=value,...``, with a name in ``gt.SAMPLERS`` or FILE.py:NAME.
        offered: Arguments that text cannot set, such as ``fanouts`` and ``seed``.

    Raises:
        ConfigError: Unknown name, unknown option, or a value of another type.
    """
    kind, named, options = SAMPLERS.described(text, "sampler", offered)
    return kind(**named, **options), set(named)
