"""What a key may be, in the words of messages: what is wrong with a value, and which known word is near."""
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_origin

# what pydantic found, in the words of the user
EXPECTED = {
    "int_parsing": "a whole number", "int_type": "a whole number", "int_from_float": "a whole number",
    "float_parsing": "a number", "float_type": "a number", "finite_number": "a finite number",
    "bool_parsing": "true or false", "bool_type": "true or false", "string_type": "text",
    "greater_than_equal": "at least {ge}", "greater_than": "more than {gt}", "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
}


def did_you_mean(word: Any, known: Iterable[str]) -> str:
    """``" (did you mean 'x'?)"`` if one of the known words is close, else nothing."""
    close = get_close_matches(str(word), list(known), 1)
    return f" (did you mean '{close[0]}'?)" if close else ""


def literals(hint: Any) -> tuple[Any, ...]:
    """The allowed values of a type; empty if there are too many to list."""
    return get_args(hint) if get_origin(hint) is Literal else ()


def explain(error: Any, choices: Callable[[str], Iterable[Any]], from_files: Collection[str] = ()) -> str:
    """One problem found by pydantic, as: key, value, what is allowed.

    Args:
        error: An item of ``ValidationError.errors()``.
        choices: The allowed values of a key.
        from_files: Keys whose value may be a name in a file too.
    """
    if not error["loc"]:
        return str(error["msg"]).removeprefix("Value error, ")
    key, value = str(error["loc"][0]), error["input"]
    if error["type"] == "literal_error":
        allowed, own = tuple(choices(key)), ", FILE.py:NAME" if key in from_files else ""
        return f"{key}: unknown value {value!r}{did_you_mean(value, allowed)}; allowed: {', '.join(map(str, allowed))}{own}"
    expected = EXPECTED.get(error["type"], "").format(**error.get("ctx", {})) or str(error["msg"]).removeprefix("Value error, expected ")
    return f"{key}: got {value!r}, expected {expected}"
