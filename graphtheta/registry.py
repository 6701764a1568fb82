"""Things that a job chooses by name: those of the package, and those that users add."""
from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from graphtheta.errors import ConfigError
from graphtheta.userfile import load_module
from graphtheta.wording import did_you_mean


class Named(Protocol):
    """Anything with a name."""

    @property
    def name(self) -> str:
        """What a job calls it."""


T = TypeVar("T", bound=Named)


class Registry(dict[str, T]):
    """Things by name, in the order in which they were added.

    Args:
        what: What they are called in messages, such as "metric".
        is_one: Whether an object is such a thing.
        reserved: Names that nothing may have.
        things: Those of the package.
    """

    def __init__(self, what: str, is_one: Callable[[Any], bool], reserved: Iterable[str], things: Iterable[T]):
        super().__init__((thing.name, thing) for thing in things)
        self.what, self._is_one = what, is_one
        self._taken = {*reserved, *self}

    def add(self, thing: T) -> T:
        """Add a thing of the user's, on every rank; one of the user's with the same name is replaced. Usable as a decorator.

        Returns:
            The thing.

        Raises:
            ConfigError: It is something else, or its name is no identifier or belongs to the package.
        """
        if not self._is_one(thing):
            raise ConfigError(f"{thing!r} is not a {self.what}")
        if not str(thing.name).isidentifier():
            raise ConfigError(f"{thing.name!r} is not a valid {self.what} name; use letters, digits and underscores")
        if thing.name in self._taken:
            raise ConfigError(f"the {self.what} {thing.name!r} is built in; choose another name")
        self[thing.name] = thing
        return thing

    def find(self, name: str) -> T:
        """The thing of a name; ``FILE.py:NAME`` is NAME in a file, which is imported and added.

        Raises:
            ConfigError: There is none.
        """
        if name in self:
            return self[name]
        if ":" not in name:
            raise ConfigError(f"{self.what} {name!r} is not known{did_you_mean(name, self)}; choose from {', '.join(self)}, "
                              "or give your own as FILE.py:NAME")
        file, _, inside = name.rpartition(":")
        if not inside.isidentifier() or not file.endswith(".py"):
            raise ConfigError(f"{self.what} {name!r} is not of the form FILE.py:NAME, such as mine.py:{self.what.title().replace(' ', '')}")
        module = load_module(Path(file), self.what)
        if not self._is_one(getattr(module, inside, None)):
            own = [n for n, thing in vars(module).items() if self._is_one(thing)]
            raise ConfigError(f"{file} has no {self.what} {inside}; it has {', '.join(own) or 'none at all'}")
        return self.add(getattr(module, inside))
