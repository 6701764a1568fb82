"""Replaces listings in pages: the block of text below a line ``<!-- generated: NAME -->``."""

from __future__ import annotations

import re


def put(page: str, name: str, text: str) -> str:
    """The page with another text in the listing of a name.

    Args:
        page: Text of the page; it has one listing of that name.
        name: Of the listing.
        text: What it shows.
    """
    block = f"<!-- generated: {name} -->\n```text\n{text}\n```"
    page, n = re.subn(
        rf"<!-- generated: {name} -->\n```text\n.*?```", lambda _: block, page, flags=re.DOTALL
    )
    assert n == 1, f"{n} listings named {name}"
    return page
