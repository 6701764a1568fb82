"""What a key may be, in the words of messages: which known word is near."""
from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


def did_you_mean(word: Any, known: Iterable[str]) -> str:
    """``" (did you mean 'x'?)"`` if one of the known words is close, else nothing."""
    close = get_close_matches(str(word), list(known), 1)
    return f" (did you mean '{close[0]}'?)" if close else ""
