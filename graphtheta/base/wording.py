"""Messages about keys: what is wrong with a value, what is allowed, suggestions for typos."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from graphtheta.base.other_names import INSTEAD, MEANT

# types of pydantic errors, as what was expected
EXPECTED = {
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "string_type": "text",
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
}


# characters of a value that a message quotes
SHORT = 60
# types whose values a message quotes if they are short: their texts are those that a user writes
WRITTEN = (bool, int, float, complex, str, bytes, list, tuple, dict, set, PathLike, type(None))
LONGEST_INTEGER = 128


def shown(value: Any) -> str:
    """A value as it is written, if that is short and on one line; else what it is."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, int) and value.bit_length() > LONGEST_INTEGER:
        return f"a number of {value.bit_length()} bits"
    text = repr(value) if isinstance(value, WRITTEN) else ""
    if 0 < len(text) <= SHORT and "\n" not in text:
        return text
    shape = getattr(value, "shape", None)
    of_shape = f" and shape {list(shape)}" if isinstance(shape, tuple) else ""
    return f"a value of type {type(value).__name__}{of_shape}"


def did_you_mean(word: Any, names: Iterable[str]) -> str:
    """``" (did you mean 'x'?)"`` if one of the known words is close, or is what other libraries
    mean by it; what to do instead if this library does without it; else nothing.

    Capitals do not count, and flags are compared as the keys that they set.
    """
    plainly = {_plain(one): one for one in names}
    plain = _plain(word)
    meant = [name for name in MEANT.get(plain, ()) if name in plainly]
    if plain in plainly:
        meant = [plain]
    elif not meant and plain in INSTEAD:
        return f" ({INSTEAD[plain]})"
    close = meant or get_close_matches(plain, plainly, 1)
    return f" (did you mean '{plainly[close[0]]}'?)" if close else ""


class HintsAtNames:
    """A class whose objects ask for the attribute that is meant by an unknown name."""

    __slots__ = ()

    # unseen by type checkers, which would take any name for an attribute
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or hasattr(type(self), name):
                # a property that raises is asked again, for its own error
                return object.__getattribute__(self, name)
            names = [one for one in dir(self) if not one.startswith("_")]
            raise AttributeError(
                f"{type(self).__name__} has no attribute '{name}'{did_you_mean(name, names)}"
            )


def _plain(word: Any) -> str:
    return str(word).lstrip("-").replace("-", "_").casefold()


def literals(hint: Any) -> tuple[Any, ...]:
    """The allowed values of a type; empty if there are too many to list."""
    return get_args(hint) if get_origin(hint) is Literal else ()


def explain(
    error: Any,
    choices: Callable[[str], Iterable[Any]],
    registered: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """One problem found by pydantic, as: key, value, what is allowed.

    Args:
        error: An item of ``ValidationError.errors()``.
        choices: The allowed values of a key.
        registered: Keys whose value is a name in a registry or FILE.py:NAME, and what is
            registered.
    """
    key = str(error["loc"][0])
    value = error["input"]
    if error["type"] == "literal_error":
        allowed = tuple(choices(key))
        form = ", FILE.py:NAME" if key in registered else ""
        return (
            f"{key}: unknown {registered.get(key, 'value')}"
            f" {shown(value)}{did_you_mean(value, allowed)}; allowed:"
            f" {', '.join(map(str, allowed))}{form}"
        )
    said = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "value_error" and not said.startswith("expected "):
        return f"{key}: {said}"
    expected = EXPECTED.get(error["type"], "").format(**error.get("ctx", {}))
    return f"{key}: got {shown(value)}, expected {expected or said.removeprefix('expected ')}"
