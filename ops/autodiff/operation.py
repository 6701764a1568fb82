"""Operations: a named array function with its traits and one gradient rule per argument.

``Primitive`` adds what a call does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import Parameter as Arg
from inspect import signature
from typing import Any

from graphtheta.errors import MissingRuleError

from ..compile.scalar import Scalar
from .traits import Traits

# forms that an operation remembers; a program may change a keyword in every step
MOST_FORMS = 256


class Operation:
    """A named array function with one gradient rule per positional argument.

    Attributes:
        rowwise: Each output row depends on the same row of the inputs only, so it may be used
            inside ``gather``.
        sparse: Takes scipy CSR arrays as they are; for other primitives they are made dense first.
        short: Takes ``BFLOAT16`` as it is; for other primitives it is expanded first.
        threaded: Takes one row value and is worth running on blocks of rows in several threads.
        scalar: The scalar form if it is elementwise, as a function of the static keywords;
            it may return None for a result in a type that kernels do not compute in.
        traits: What the planner and the code generators know about it.
        args: Names of the positional arguments; the last one includes all that follow if
            ``variadic``.
        taken: The same as a set.
    """

    def __init__(
        self,
        name: str,
        forward: Callable[..., Any],
        *,
        rowwise: bool,
        sparse: bool,
        short: bool,
        threaded: bool,
        scalar: Callable[..., Scalar | None] | None,
        traits: Traits,
    ):
        self.name = name
        self.forward = forward
        self.rowwise = rowwise
        self.sparse = sparse
        self.short = short
        self.threaded = threaded
        self.scalar = scalar
        self.traits = traits
        kinds = signature(forward).parameters.values()
        self.args = tuple(
            p.name for p in kinds if p.kind in (Arg.POSITIONAL_OR_KEYWORD, Arg.VAR_POSITIONAL)
        )
        self.taken = frozenset(self.args)
        self.variadic = any(p.kind is Arg.VAR_POSITIONAL for p in kinds)
        self.rules: dict[str, Callable[..., Any] | None] = {}
        self._forms: dict[str, Scalar | None] = {}
        self.__doc__ = forward.__doc__

    def __repr__(self) -> str:
        return f"<primitive {self.name}>"

    def __call__(self, *args: Any, **static: Any) -> Any:
        raise NotImplementedError

    def form(self, static: dict[str, Any]) -> Scalar | None:
        """The scalar form for these static keywords; None if it is not elementwise."""
        if self.scalar is None:
            return None
        # the text tells 2 from 2.0, and 0.0 from -0.0
        given = repr(static)
        if given not in self._forms:
            if len(self._forms) >= MOST_FORMS:
                self._forms.clear()
            self._forms[given] = self.scalar(**static)
        return self._forms[given]

    @property
    def free(self) -> bool:
        """Whether it costs nothing in a loop over edges."""
        return self.traits.free or self.traits.structural

    def rule(self, position: int) -> Callable[..., Any] | None:
        """The gradient rule of a positional argument.

        Raises:
            MissingRuleError: There is none; names operation and argument.
        """
        name = self.args[min(position, len(self.args) - 1) if self.variadic else position]
        if name not in self.rules:
            raise MissingRuleError(
                f"{self.name} has no gradient rule for its argument '{name}'; "
                f"add one with defvjp({self.name}, {name}=...), or None if it has no gradient"
            )
        rule = self.rules[name]
        if rule is not None and self.variadic and name == self.args[-1]:
            return partial(rule, position)
        return rule
