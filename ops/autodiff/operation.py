"""What a primitive is, apart from how it is called: a named array function, its traits, and a gradient rule per argument."""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import Parameter as Arg
from inspect import signature
from typing import Any

from graphtheta.errors import MissingRuleError


class Operation:
    """A named array function with one gradient rule per positional argument.

    Attributes:
        rowwise: Each output row depends on the same row of the inputs only, so it may be used inside ``gather``.
        sparse: Takes scipy CSR arrays as they are; for other primitives they are made dense first.
        spread: Takes one row value and is worth spreading over threads by blocks of rows.
        args: Names of the positional arguments; the last one stands for all that follow if ``variadic``.
    """

    def __init__(self, name: str, forward: Callable[..., Any], rowwise: bool, sparse: bool = False, spread: bool = False):
        self.name = name
        self.forward = forward
        self.rowwise = rowwise
        self.sparse = sparse
        self.spread = spread
        kinds = signature(forward).parameters.values()
        self.args = tuple(p.name for p in kinds if p.kind in (Arg.POSITIONAL_OR_KEYWORD, Arg.VAR_POSITIONAL))
        self.variadic = any(p.kind is Arg.VAR_POSITIONAL for p in kinds)
        self.rules: dict[str, Callable[..., Any] | None] = {}
        self.__doc__ = forward.__doc__

    def __repr__(self) -> str:
        return f"<primitive {self.name}>"

    def __call__(self, *args: Any, **static: Any) -> Any:
        raise NotImplementedError

    def rule(self, position: int) -> Callable[..., Any] | None:
        """The gradient rule of a positional argument.

        Raises:
            MissingRuleError: There is none; names operation and argument.
        """
        name = self.args[min(position, len(self.args) - 1) if self.variadic else position]
        if name not in self.rules:
            raise MissingRuleError(f"{self.name} has no gradient rule for its argument '{name}'; "
                                   f"add one with defvjp({self.name}, {name}=...), or None if it has no gradient")
        found = self.rules[name]
        if found is not None and self.variadic and name == self.args[-1]:
            return partial(found, position)
        return found
