"""Samplers by the text that describes them."""

from __future__ import annotations

from typing import Any

from graphtheta.base.described import name_and_options, options_of
from graphtheta.engine.sampling.node_set import NodeSetSampler
from graphtheta.engine.sampling.sampler import Sampler
from graphtheta.models.user import accepted
from graphtheta.samplers.registry import SAMPLERS


def make_sampler(text: str, offered: dict[str, Any]) -> tuple[Sampler | NodeSetSampler, set[str]]:
    """A sampler, and which of the arguments it is offered its constructor takes.

    Args:
        text: ``NAME:field=value,...``, with a name in ``gt.SAMPLERS`` or FILE.py:NAME.
        offered: Arguments that text cannot set, such as ``fanouts`` and ``seed``.

    Raises:
        ConfigError: Unknown name, unknown option, or a value of another type.
    """
    name, written = name_and_options(text)
    made = SAMPLERS.find(name)
    taken = accepted(f"the sampler {made.name}", made, offered)
    return made(
        **taken,
        **options_of(
            made=made, text=text, key="sampler", written=written, elsewhere=tuple(offered)
        ),
    ), set(taken)
