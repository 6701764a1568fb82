"""Tables that notebooks show for an object, in HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from graphtheta.base.console import printable


def html_table(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, in which all texts are escaped.

    Args:
        title: Its caption.
        header: Titles of the columns; none for no line of titles.
        rows: Cells, as many per row as titles.
    """
    head = f"<thead>{_row('th', header)}</thead>" if header else ""
    body = "".join(_row("td", cells) for cells in rows)
    return f"<table><caption>{_text(title)}</caption>{head}<tbody>{body}</tbody></table>"


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{_text(cell)}</{tag}>' for cell in cells)}</tr>"


def _text(text: str) -> str:
    return escape(printable(text))
