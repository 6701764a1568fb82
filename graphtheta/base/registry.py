"""Registries of components that a job chooses by name: built-in ones, and those that users add."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from inspect import isclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from graphtheta.base.described import accepted, name_and_options, options_of
from graphtheta.base.userfile import load_module
from graphtheta.base.wording import did_you_mean, shown
from graphtheta.errors import ConfigError


class Named(Protocol):
    """An object with a name."""

    @property
    def name(self) -> str:
        """Name in a job."""


T = TypeVar("T", bound=Named)


def named_class(base: type = object, method: str = "") -> Callable[[Any], bool]:
    """A function that says whether something is a class with a name, derived from ``base``, which
    has a method if one is given.
    """
    return lambda x: (
        isclass(x)
        and issubclass(x, base)
        and isinstance(getattr(x, "name", None), str)
        and (not method or callable(getattr(x, method, None)))
    )


class Registry(dict[str, T]):
    """Components by name, in the order in which they were added.

    Args:
        what: Kind of the components in messages, such as "metric".
        is_one: Whether an object is such a component.
        reserved: Names that no component may have.
        built_in: The components of the package.
    """

    def __init__(
        self,
        what: str,
        is_one: Callable[[Any], bool],
        reserved: Iterable[str],
        built_in: Iterable[T],
    ):
        super().__init__((component.name, component) for component in built_in)
        self.what = what
        self._is_one = is_one
        self._taken = {*reserved, *self}

    def add(self, component: T) -> T:
        """Add or replace a user's component, on every rank; usable as a decorator.

        Returns:
            The component.

        Raises:
            ConfigError: It is of another kind, or its name is no identifier, or is reserved or
                built in.
        """
        if not self._is_one(component):
            article = "an" if self.what[0] in "aeiou" else "a"
            raise ConfigError(
                f"{shown(component)} is not {article} {self.what}; docs/extending.md shows how to"
                " write one"
            )
        if not str(component.name).isidentifier():
            raise ConfigError(
                f"{component.name!r} is not a valid {self.what} name; use letters, digits and"
                " underscores"
            )
        if component.name in self._taken:
            raise ConfigError(
                f"the {self.what} {component.name!r} is built in; choose another name"
            )
        self[component.name] = component
        return component

    def include(self, *components: T) -> None:
        """Add components of the package, whose names are then built in."""
        self.update((component.name, component) for component in components)
        self._taken.update(component.name for component in components)

    def reserve(self, *names: str) -> None:
        """Names that no component of a user may have."""
        self._taken.update(names)

    def find(self, name: str) -> T:
        """The component of a name; for ``FILE.py:NAME`` the file is imported and its NAME added.

        Raises:
            ConfigError: There is none.
        """
        if not isinstance(name, str):
            raise ConfigError(
                f"{self.what}: got {shown(name)}; give a name, one of {', '.join(self)}"
            )
        if name in self:
            return self[name]
        if ":" not in name:
            raise ConfigError(
                f"{self.what} {name!r} is not known{did_you_mean(name, self)}; choose from"
                f" {', '.join(self)}, or give your own as FILE.py:NAME"
            )
        file, _, inside = name.rpartition(":")
        if not inside.isidentifier() or not file.endswith(".py"):
            raise ConfigError(
                f"{self.what} {name!r} is not of the form FILE.py:NAME, such as"
                f" mine.py:{self.what.title().replace(' ', '')}"
            )
        module = load_module(Path(file), self.what)
        if not self._is_one(getattr(module, inside, None)):
            names = [name for name, value in vars(module).items() if self._is_one(value)]
            raise ConfigError(
                f"{file} has no {self.what} {inside}; it has {', '.join(names) or 'none at all'}"
            )
        return self.add(getattr(module, inside))

    def described(
        self, text: str, key: str, offered: Mapping[str, Any] | None = None
    ) -> tuple[Any, Mapping[str, Any], dict[str, Any]]:
        """The class that ``NAME:option=value,...`` describes, and arguments of its constructor.

        Args:
            text: The description, with a name as for ``find``.
            key: The key of the job that it is the value of, for messages.
            offered: Arguments that the text cannot set, of which the constructor receives those
                that it names and can need no others; None for none of either kind.

        Returns:
            The class, the offered arguments that it names, and those that the text sets.

        Raises:
            ConfigError: Unknown name, unknown option, or a value of another type.
        """
        name, written = name_and_options(text)
        kind: Any = self.find(name)
        named = {} if offered is None else accepted(f"the {self.what} {kind.name}", kind, offered)
        return kind, named, options_of(kind, text, key, written, elsewhere=tuple(offered or ()))

    def make(self, text: str, key: str, offered: Mapping[str, Any] | None = None) -> Any:
        """An object of the class that a text describes; for the arguments see ``described``.

        Raises:
            ConfigError: As of ``described``, or a value is not allowed.
        """
        kind, named, options = self.described(text, key, offered)
        return kind(**named, **options)
