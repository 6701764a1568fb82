"""The beginning of a table as text: its separator, the names of columns, and where rows begin."""

from __future__ import annotations

import codecs
import io
from collections import Counter
from collections.abc import Mapping
from csv import Error as CsvError
from csv import reader
from itertools import pairwise
from os import fsencode
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from graphtheta.errors import FormatError
from graphtheta.importing.tables.files import reading
from graphtheta.importing.tables.formats import HEAD as BEGIN
from graphtheta.importing.tables.formats import compression, refuse_foreign

SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
BOM = codecs.BOM_UTF8
# a line that begins so is a comment
COMMENTS = (b"#", b"%", b"//")
# bytes that are read for the header and the types
HEAD = 1 << 20
# stands behind the last line where it is to be known whether that one ends a row
END = "\x01"


class Head(NamedTuple):
    """The beginning of a file.

    Attributes:
        names: Names of its columns.
        separator: Character between columns.
        start: Byte where the rows begin, after decompression.
        lines: Lines before that.
        header: The line of the names of the columns; empty if there is none.
        text: Whole rows.
        breaks: Whether quoted values in them have line breaks.
    """

    names: list[str]
    separator: str
    start: int
    lines: int
    header: bytes
    text: bytes
    breaks: bool


def read_head(path: Path, separator: str | None, header: bool, renamed: Mapping[str, str]) -> Head:
    """The beginning of a file.

    Args:
        path: The file.
        separator: Character between columns; None finds it.
        header: Whether the first line names the columns; else, their names are 0, 1, 2, ...
        renamed: New names of columns, by those that the file has.

    Raises:
        FormatError: The file is empty, has a line that is too long, a quote that is not closed, or
            two columns of one name, or is no table of text.
    """
    text, more = _beginning(path)
    start, comments = _after_comments(text)
    end = _end_of_line(text, start)
    # the first line, or the one below it, does not end in what was read
    if more and (not text.endswith(b"\n") or (header and end == len(text))):
        line = comments + (2 if text.endswith(b"\n") else 1)
        raise FormatError(
            f"{path}, line {line}: the line has more than {HEAD >> 20} MiB; check that lines"
            " end in a line feed, or give the table as Parquet or Feather"
        )
    separator = separator or separator_of(path, decoded(text[start:end]))
    breaks = b'"' in text and any(line.count(b'"') % 2 for line in text[start:].split(b"\n"))
    if breaks:
        rows, whole = rows_of(path, text[start:], separator)
        if not rows:
            raise FormatError(f"{path}: after line {comments}: a quote is not closed; correct it")
        breaks = any(b"\n" in row for _, row in rows)
        text = text[: start + whole]
        end = start + len(rows[0][1]) + 1
    first = text[start:end]
    if not decoded(first).strip():
        raise FormatError(f"{path}: the file is empty; expected {'column names and ' * header}rows")
    names = _values(path, decoded(first).strip("\r\n"), separator, comments + 1)
    if not header:
        names = [str(i) for i in range(len(names))]
    names = [renamed.get(name, name) for name in names]
    again = next((name for name, count in Counter(names).items() if count > 1), None)
    if again is not None:
        raise FormatError(
            f"{path}: two columns have the name '{again}'; rename one, or read the file"
            " without a header"
        )
    begin = min(end, len(text)) if header else start
    return Head(
        names=names,
        separator=separator,
        start=begin,
        lines=comments + (first.count(b"\n") if header else 0),
        header=first.rstrip(b"\r\n") if header else b"",
        text=text[begin:],
        breaks=breaks,
    )


def _beginning(path: Path) -> tuple[bytes, bool]:
    """The first lines of a file, decompressed, and whether there is more; the last line is whole
    unless it is the only one.

    Raises:
        FormatError: It is no text, or its lines end in a carriage return alone.
    """
    packed = compression(path)
    with reading(path), pa.input_stream(pa.OSFile(fsencode(path)), packed) as stream:
        text = stream.read(HEAD)
    refuse_foreign(path, text[:BEGIN])
    if b"\n" not in text and b"\r" in text.rstrip():
        raise FormatError(
            f"{path}, line 1: lines end in a carriage return alone, as on old Macs; convert"
            " them: tr '\\r' '\\n' < OLD > NEW"
        )
    more = len(text) == HEAD
    return (text[: text.rfind(b"\n") + 1] or text) if more else text, more


def _after_comments(text: bytes) -> tuple[int, int]:
    """Where the lines of comments end, and how many there are."""
    start = len(BOM) if text.startswith(BOM) else 0
    lines = 0
    while text.startswith(COMMENTS, start):
        start = _end_of_line(text, start)
        lines += 1
    return start, lines


def _end_of_line(text: bytes, start: int) -> int:
    """Where the line that begins at ``start`` ends, behind its line feed."""
    return text.find(b"\n", start) + 1 or len(text)


def _values(path: Path, row: str, separator: str, line: int) -> list[str]:
    """The values of a row, without spaces around them.

    Raises:
        FormatError: It is no row; the message says that it is ``line`` of the file.
    """
    rows = reader(io.StringIO(row, newline=""), delimiter=separator, skipinitialspace=True)
    try:
        return [value.strip() for value in next(rows)]
    except CsvError as error:
        raise FormatError(
            f"{path}, line {line}: no names of columns ({error}); correct it"
        ) from None


def decoded(text: bytes) -> str:
    """Text in UTF-8, or in the encoding of Windows for which it is mistaken most often."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text.decode("cp1252", "replace")


def rows_of(path: Path, text: bytes, separator: str) -> tuple[list[tuple[int, bytes]], int]:
    """Rows, in which quoted values may have line breaks.

    Args:
        path: The file, for messages.
        text: Whole lines; the last row may lack its end.
        separator: Character between columns.

    Returns:
        Line, from 1, and bytes of each row that is complete, without the end of its last line; and
        where these rows end.

    Raises:
        FormatError: The text is no table.
    """
    lines = text.split(b"\n")
    if not lines[-1]:
        lines.pop()
    parsed = reader((*(line.decode("latin-1") + "\n" for line in lines), END), delimiter=separator)
    ends = [0]
    final = list[str]()
    try:
        for row in parsed:
            ends.append(parsed.line_num)
            final = row
    except CsvError as error:
        raise FormatError(
            f"{path}: after {len(ends) - 1} rows of {len(lines)} lines: {error}; correct the file"
        ) from None
    # the row of the end mark, and the one that it completes if a quote is open
    rows = [(a + 1, b"\n".join(lines[a:b])) for a, b in pairwise(ends[:-1])]
    if final == [END]:
        return rows, len(text)
    return rows, sum(len(line) + 1 for line in lines[: ends[-2]])


def separator_of(path: Path, line: str) -> str:
    """The separator that the name of a file suggests, or another one that its first line has
    instead.
    """
    suffixes = map(str.lower, path.suffixes[-2:])
    usual = next((SEPARATORS[suffix] for suffix in suffixes if suffix in SEPARATORS), None)
    marks = (usual, *"\t;|") if usual else "\t;|, "
    separator = next((mark for mark in marks if mark in line), usual or ",")
    if (separator == " " or separator not in line) and "  " in line.strip():
        raise FormatError(
            f"{path}: columns are separated by several spaces; make it one: "
            "sed 's/^ *//; s/  */ /g' < OLD > NEW, and give --separator ' '"
        )
    return separator
