"""Tables as text: CSV, TSV and other separators; plain or compressed.

pyarrow parses. This module cuts files into blocks of whole lines, so that workers start in the
middle of a file, and finds the lines of rows that pyarrow refuses. A quoted value may contain the
separator. If one contains a line break, where rows begin is known only by reading from the first:
files are then read as a whole, as compressed ones are. Spaces around values are no part of them.

Lines of comments before the rows are passed over. Later ones, and the header again where files were
joined, are bad rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import nullcontext
from functools import cached_property, partial
from os import fsencode
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from graphtheta.base.wording import did_you_mean
from graphtheta.errors import DataError, FormatError
from graphtheta.importing.tables.arrow import (
    MOST_WRONG,
    NO,
    NO_VALUE,
    WHOLE,
    YES,
    flags,
    in_any_case,
    in_words,
    parsed,
)
from graphtheta.importing.tables.faults import Faults
from graphtheta.importing.tables.files import reading
from graphtheta.importing.tables.formats import compression
from graphtheta.importing.tables.source import BLOCK, Piece, TableRows
from graphtheta.importing.tables.text_head import (
    COMMENTS,
    HEAD,
    Head,
    decoded,
    read_head,
    rows_of,
)

# an integer that is written in another way than its digits
DISGUISED = r"^(\+|-0|0.)"
# an integer that is written as a float
POINTED = r"^-?\d+\.0+$"
# bytes that are looked at together, so that they stay in the cache
CACHED = 1 << 16
# lines of a block up to which most of them may have another number of columns than the first line
# of the file
FEW_LINES = 10
# blocks that a value with line breaks may fill
MOST_BLOCKS = 16
# what pyarrow says of a value, without its advice
WRONG = re.compile(
    r"CSV column #(\d+): .*?CSV conversion error to (\w+(?:\[[^\]]*\])?): "
    r"(?:invalid value '(.*)'|(.*))",
    re.DOTALL,
)


class LineBreaks(FormatError):
    """A quoted value has a line break, in a file whose lines were taken for rows.

    Args:
        path: The file.
    """

    def __init__(self, path: Path):
        super().__init__(f"{path}: quoted values have line breaks; replace them")


class TextSource:
    """Files of text with the same columns.

    Args:
        name: For messages.
        files: The files, in the order of their rows.
        separator: Character between columns; None finds it.
        header: Whether the first line names the columns; without a header their names are 0, 1, 2,
            ...

    Attributes:
        plain: Columns whose integers must be written in digits alone, because 007 and 7 may be
            different ids.
        pointed: Columns whose integers are written as floats, such as 7.0.
    """

    typed = rank0 = False

    def __init__(
        self, name: str, files: list[Path], separator: str | None = None, header: bool = True
    ):
        self.name = name
        self._files = files
        self._renamed: Mapping[str, str] = {}
        self._separator = separator
        self._header = header
        self._heads: dict[Path, Head] = {}
        self.plain: set[str] = set()
        self.pointed: set[str] = set()
        # whether quoted values may have line breaks
        self._breaks = False

    def rename_columns(self, new: Mapping[str, str]) -> None:
        """Give columns other names, before anything is read.

        Args:
            new: New names, by those that the files have.
        """
        self._renamed = new
        self._heads = {}
        self.__dict__.pop("_types", None)

    def with_line_breaks(self) -> None:
        """Read files as a whole from now on, in which quoted values may have line breaks."""
        self._breaks = True

    def head(self, path: Path) -> Head:
        """The beginning of a file; lines of comments and the header are not part of the rows."""
        if path not in self._heads:
            head = read_head(path, self._separator, self._header, self._renamed)
            self._breaks |= head.breaks
            self._heads[path] = head
        return self._heads[path]

    @cached_property
    def _types(self) -> dict[str, Any]:
        path = next((path for path in self._files if self.head(path).text.strip()), None)
        if path is None:
            return dict.fromkeys(self.head(self._files[0]).names, pa.null())
        head = self.head(path)
        with reading(path):
            # types of columns do not depend on what letters mean
            text = decoded(head.text).encode()
            types = _kinds(_first_rows(text, head, head.names))
            # texts such as nan and NA are no values unless there is nothing else
            if empty := [name for name, kind in types.items() if pa.types.is_null(kind)]:
                types |= _kinds(_first_rows(text, head, empty, null_values=[""]))
            # pyarrow takes integers beyond 64 bits for floats, which round them
            if floats := [name for name, kind in types.items() if pa.types.is_floating(kind)]:
                texts = dict.fromkeys(floats, pa.large_string())
                table = _first_rows(text, head, floats, column_types=texts)
                types |= {name: WHOLE for name in floats if are_digits(table.column(name))}
        return types

    def types(self) -> dict[str, Any]:
        """Names and types of the columns, as the first MiB suggests."""
        return dict(self._types)

    def pieces(self) -> list[Piece]:
        """Ranges of bytes of plain files, and whole compressed files."""
        parts = []
        heads = {path: self.head(path) for path in self._files if not compression(path)}
        for path in self._files:
            with reading(path):
                size = path.stat().st_size
            if self._breaks or path not in heads:
                parts.append((path, (0, size), True))
            else:
                parts += [
                    (path, (begin, min(begin + BLOCK, size)), False)
                    for begin in range(heads[path].start, size, BLOCK)
                ]
        whole = any(part[2] for part in parts)
        return [
            Piece(
                number=i, file=str(path), part=(path, *span), weight=span[1] - span[0], whole=whole
            )
            for i, (path, span, _) in enumerate(parts)
        ]

    def read(
        self, piece: Piece, columns: dict[str, Any], mine: Callable[[int], bool], faults: Faults
    ) -> Iterator[TableRows]:
        """Read a piece; see ``Source``."""
        path, begin, end = piece.part
        head = self.head(path)
        if missing := columns.keys() - set(head.names):
            name = min(missing)
            raise FormatError(
                f"{path}: the column '{name}' is missing; the file has {', '.join(head.names)}"
                f"{did_you_mean(name, head.names)}"
            )
        with reading(path):
            for k, nbytes, text, before in (
                whole_lines(path, head, self._breaks)
                if piece.whole
                else range_of_lines(path, head, begin, end)
            ):
                if mine(k):
                    block = TextBlock(
                        path=path,
                        head=head,
                        columns=columns,
                        text=text,
                        before=before,
                        plain=self.plain & columns.keys(),
                        pointed=self.pointed & columns.keys(),
                        breaks=self._breaks,
                    )
                    at = (piece.number, k)
                    table = block.parse(at, faults)
                    if table.num_rows:
                        yield TableRows(at, f"{path}, line", table, block.lines, nbytes)


def _first_rows(text: bytes, head: Head, columns: list[str], **options: Any) -> pa.Table:
    """Columns of some rows, of types that these suggest; ``options`` are those of pyarrow."""
    return csv.read_csv(
        pa.BufferReader(text),
        csv.ReadOptions(column_names=head.names, block_size=4 * HEAD),
        csv.ParseOptions(
            delimiter=head.separator,
            invalid_row_handler=lambda row: "skip",
            newlines_in_values=head.breaks,
        ),
        csv.ConvertOptions(include_columns=columns, **options),
    )


def _kinds(table: pa.Table) -> dict[str, Any]:
    return dict(zip(table.column_names, table.schema.types, strict=True))


def are_digits(texts: Any) -> bool:
    """Whether texts of numbers, or of missing ones, are integers of any size."""
    texts = pc.utf8_trim_whitespace(texts)
    digits = pc.match_substring_regex(texts, r"^-?\d+$")
    return bool(pc.all(pc.or_(digits, pc.is_in(texts, pa.array(NO_VALUE, texts.type)))).as_py())


class TextBlock:
    """Some lines of a file.

    Args:
        path: The file.
        head: Its beginning.
        columns: The columns to read, and their types.
        text: Whole lines.
        before: Gives the number of lines before them in the file.
        plain, pointed: As of ``TextSource``, of the columns.
        breaks: Whether quoted values may have line breaks.
    """

    def __init__(
        self,
        path: Path,
        head: Head,
        columns: dict[str, Any],
        text: bytes,
        before: Callable[[], int],
        plain: Collection[str] = (),
        pointed: Collection[str] = (),
        *,
        breaks: bool = False,
    ):
        self._path = path
        self._head = head
        self._columns = columns
        self._text = text
        self._before = before
        self._plain, self._pointed = (
            [name for name in names if columns[name] == pa.int64()] for names in (plain, pointed)
        )
        self._breaks = breaks
        self._spaces = spaces_around(text, head.separator)
        # numbers of the rows that were parsed; None for all
        self._parsed: np.ndarray | None = None

    def parse(self, at: tuple[int, int], faults: Faults) -> pa.Table:
        """The rows; those that cannot be parsed are added to ``faults``.

        Raises:
            LineBreaks: A quoted value has a line break, and it was not expected.
            FormatError: Lines have other columns than the header.
            DataError: So many values are wrong that the column must be.
        """
        if not self._text.strip():
            return self._empty()
        # the last value may go on in the next block
        if (
            not self._breaks
            and self._text.count(b'"') % 2
            and rows_of(self._path, self._text, self._head.separator)[1] < len(self._text)
        ):
            raise LineBreaks(self._path)
        # columns of other types refuse the names of columns by themselves
        texts = all(pa.types.is_large_string(kind) for kind in self._columns.values())
        if self._may_have(*COMMENTS) or (
            texts and self._head.header and self._head.header in self._text
        ):
            return self._without_disguise(self._careful(at, faults), at, faults)
        try:
            table = self._table(self._text)
        except pa.ArrowInvalid:
            return self._without_disguise(self._careful(at, faults), at, faults)
        lines = self._text.count(b"\n") + (not self._text.endswith(b"\n"))
        self._check_breaks(
            table.num_rows,
            lines if table.num_rows == lines and not self._breaks else len(self._rows),
        )
        return self._without_disguise(table, at, faults)

    def _may_have(self, *begins: bytes) -> bool:
        """Whether a line begins with one of these."""
        # a single byte is found much faster than two
        return self._text.startswith(begins) or any(
            begin[:1] in self._text and b"\n" + begin in self._text for begin in begins
        )

    def _aside(self, line: bytes) -> str:
        """Why a line is no row; empty if it is one."""
        if line.startswith(COMMENTS):
            return (
                f"the line begins with '{line[:1].decode()}', as comments do; quote its first value"
                " if it is none"
            )
        return (
            "the header again"
            if self._head.header and line.rstrip(b"\r") == self._head.header
            else ""
        )

    def _without_disguise(self, table: pa.Table, at: tuple[int, int], faults: Faults) -> pa.Table:
        """The rows whose ids are written as integers; others, as 007, are added to ``faults``."""
        if not self._plain or not table.num_rows or not may_have_disguises(self._text):
            return table
        rows = [row for _, row in self._rows]
        parsed = np.arange(len(rows)) if self._parsed is None else self._parsed
        as_text = self._alike(dict.fromkeys(self._plain, pa.large_string()))
        texts = as_text._table(b"\n".join(rows[i] for i in parsed) + b"\n", threads=False)
        numbers = self.lines()
        bad = np.zeros(table.num_rows, bool)
        for name in self._plain:
            values = texts.column(name).combine_chunks()
            if name in self._pointed:
                values = without_point(values)
            wrong = flags(pc.match_substring_regex(values, DISGUISED))
            faults.add(
                at,
                np.flatnonzero(wrong & ~bad),
                lambda: (f"{self._path}, line", numbers),
                disguised(name, values),
            )
            bad |= wrong
        if not bad.any():
            return table
        self._parsed = parsed[~bad]
        return table.filter(pa.array(~bad))

    def _empty(self) -> pa.Table:
        return pa.table({name: pa.array([], kind) for name, kind in self._columns.items()})

    def _alike(self, columns: dict[str, Any]) -> TextBlock:
        """The same lines with other columns."""
        return TextBlock(
            path=self._path,
            head=self._head,
            columns=columns,
            text=self._text,
            before=self._before,
            breaks=self._breaks,
        )

    def _check_breaks(self, rows: int, lines: int) -> None:
        if rows == lines:
            return
        if not self._breaks:
            raise LineBreaks(self._path)
        raise FormatError(
            f"{self._path}: after line {self._before()}: {lines} rows are read as {rows}; a quote"
            " within a value is not doubled, correct it"
        )

    def lines(self) -> np.ndarray:
        """The line of each row in the file."""
        numbers = self._numbers()
        return self._before() + (numbers if self._parsed is None else numbers[self._parsed])

    def _numbers(self) -> np.ndarray:
        """Lines of the text in which rows begin, from 1."""
        return np.array([line for line, _ in self._rows], np.int64)

    @cached_property
    def _rows(self) -> list[tuple[int, bytes]]:
        """Line and text of each row; pyarrow passes over empty lines."""
        rows = list(enumerate(self._text.split(b"\n"), 1))
        end = len(self._text)
        if self._breaks:
            rows, end = rows_of(self._path, self._text, self._head.separator)
        if end < len(self._text):
            line = self._before() + self._text[:end].count(b"\n") + 1
            raise FormatError(f"{self._path}, line {line}: a quote is not closed; correct it")
        return [(line, row) for line, row in rows if row not in (b"", b"\r")]

    def _table(
        self, text: bytes, invalid: Callable[[Any], str] | None = None, threads: bool = True
    ) -> pa.Table:
        # pyarrow takes spaces around bools and times for parts of them
        trimmed_first = {
            name
            for name, kind in self._columns.items()
            if name in self._pointed
            or (self._spaces and (pa.types.is_boolean(kind) or pa.types.is_timestamp(kind)))
        }
        kinds = {
            name: pa.large_string() if name in trimmed_first else kind
            for name, kind in self._columns.items()
        }
        table = csv.read_csv(
            pa.BufferReader(text),
            # threads parse parts of the text, which are to have whole rows
            csv.ReadOptions(
                column_names=self._head.names,
                use_threads=threads,
                block_size=None if threads else max(1, len(text)),
            ),
            csv.ParseOptions(
                delimiter=self._head.separator,
                invalid_row_handler=invalid,
                newlines_in_values=self._breaks,
            ),
            csv.ConvertOptions(
                column_types=kinds,
                include_columns=list(kinds),
                strings_can_be_null=False,
                true_values=in_any_case(YES),
                false_values=in_any_case(NO),
            ),
        )
        for i, (name, kind) in enumerate(kinds.items() if self._spaces or self._pointed else ()):
            if pa.types.is_large_string(kind):
                column = trimmed(table.column(name), self._spaces)
                if name in self._pointed:
                    column = without_point(column)
                if name in trimmed_first:
                    column = self._values(name, column)
                table = table.set_column(i, name, column)
        return table

    def _values(self, name: str, column: Any) -> Any:
        """Texts without spaces in the type of their column."""
        kind = self._columns[name]
        values, bad = parsed(column, kind)
        if len(bad):
            raise pa.ArrowInvalid(
                f"CSV column #{self._head.names.index(name)}: CSV conversion error to {kind}:"
                f" invalid value '{column[bad[0]]}'"
            )
        return values

    def _careful(self, at: tuple[int, int], faults: Faults) -> pa.Table:
        """The rows that can be parsed: pyarrow finds those of another width, halving those with
        wrong values.
        """
        texts = [row for _, row in self._rows]
        wrong = {i: why for i, line in enumerate(texts) if (why := self._aside(line))}
        rows = [i for i in range(len(texts)) if i not in wrong]
        widths = dict[int, str]()

        def invalid(row: Any) -> str:
            n = int(row.actual_columns)
            widths[rows[int(row.number) - 1]] = (
                f"{n} column{'s' * (n != 1)}, expected {row.expected_columns}"
            )
            return "skip"

        as_bytes = self._alike(dict.fromkeys(self._columns, pa.binary()))
        n_rows = 0
        try:
            if rows:
                # pyarrow decodes the rows that it tells of, whatever they are
                text = b"\n".join(texts[i] for i in rows) + b"\n"
                n_rows = as_bytes._table(decoded(text).encode(), invalid, threads=False).num_rows
        except pa.ArrowInvalid as error:
            raise FormatError(
                f"{self._path}: after line {self._before()}: {error}; correct the file"
            ) from None
        self._check_breaks(n_rows, len(rows) - len(widths))
        if len(rows) > FEW_LINES and 2 * len(widths) > len(rows):
            raise FormatError(
                f"{self._path}: after line {self._before()}: {len(widths):,} of"
                f" {len(rows):,} lines have another number of columns than the first line,"
                f" {len(self._head.names)} ({', '.join(self._head.names[:5])}); remove lines before"
                " the table, or state the separator with --separator"
            )
        rows = [i for i in rows if i not in widths]
        tables = list[pa.Table]()
        values = dict[int, str]()
        self._halve(texts, rows, values, tables)
        wrong |= widths | values
        self._parsed = np.array([i for i in rows if i not in values], np.int64)
        numbers = self._numbers()
        faults.add(
            at,
            np.array(sorted(wrong), np.int64),
            lambda: (f"{self._path}, line", self._before() + numbers),
            lambda row: wrong[row],
        )
        return pa.concat_tables([self._empty(), *tables])

    def _halve(
        self, texts: list[bytes], rows: list[int], wrong: dict[int, str], tables: list[pa.Table]
    ) -> None:
        """Parse rows; where that fails, parse the halves."""
        if not rows:
            return
        try:
            tables.append(self._table(b"\n".join(texts[i] for i in rows) + b"\n", threads=False))
            return
        except pa.ArrowInvalid as error:
            if len(rows) == 1:
                wrong[rows[0]] = self._why(str(error))
                if len(wrong) > MOST_WRONG:
                    raise DataError(
                        f"{self._path}, line {self._before() + int(self._numbers()[rows[0]])}:"
                        f" {wrong[rows[0]]}, and more than {MOST_WRONG:,} values before; choose"
                        " another column, or state its type with --types"
                    ) from None
                return
        middle = len(rows) // 2
        self._halve(texts, rows[:middle], wrong, tables)
        self._halve(texts, rows[middle:], wrong, tables)

    def _why(self, message: str) -> str:
        parts = WRONG.search(message)
        if not parts:
            return message
        column, kind, value, other = parts.groups()
        name = self._head.names[int(column)]
        what = other if value is None else f"'{value}' is not {in_words(kind)}"
        return f"column '{name}': {what}"


def spaces_around(text: bytes, separator: str) -> str:
    """The characters that are no part of values if they are around them; none if none may be."""
    spaces = "" if separator == " " else " \t".replace(separator, "")
    # of quoted values, too
    edges = (separator.encode(), b"\n", b"\r\n", b'"')
    around = any(
        text.startswith(space)
        or text.endswith(space)
        or any(space + edge in text or edge + space in text for edge in edges)
        for space in map(str.encode, spaces)
        if space in text
    )
    return spaces if around else ""


def trimmed(column: Any, spaces: str) -> Any:
    """Texts without spaces around them, and without quotes that come after such spaces, where
    pyarrow takes them for text.
    """
    if not spaces:
        return column
    out = pc.utf8_trim(column, spaces)
    quoted = pc.and_(
        pc.not_equal(column, pc.utf8_ltrim(column, spaces)),
        pc.match_substring_regex(out, '(?s)^".*"$'),
    )
    inside = pc.replace_substring(pc.utf8_slice_codeunits(out, 1, -1), '""', '"')
    return pc.if_else(quoted, inside, out)


def disguised(name: str, values: Any) -> Callable[[int], str]:
    """What is wrong with an id that is written in another way than its digits."""
    return lambda row: (
        f"column '{name}': '{values[row].as_py()}' has zeros, a sign or 0x in front, and ids before"
        " it are integers; state whether it is a name or a number with --id-type text or"
        " --id-type int"
    )


def may_have_disguises(text: bytes) -> bool:
    """Whether integers may have zeros or signs in front, or be hexadecimal."""
    if any(mark in text and b"0" + mark in text for mark in (b"x", b"X")):
        return True
    if b"+" in text or (b"-" in text and b"-0" in text) or re.match(rb"0\d", text):
        return True
    data = np.frombuffer(text, np.uint8)
    for begin in range(0, len(data), CACHED):
        part = data[begin : begin + CACHED + 2]
        # digits are 0 to 9 from here on, and all else is more
        digits = part - np.uint8(ord("0"))
        leading = digits[1:-1] == 0
        leading &= digits[2:] <= 9
        leading &= digits[:-2] > 9
        leading &= part[:-2] != ord(".")
        if leading.any():
            return True
    return False


def without_point(column: Any) -> Any:
    """Texts such as 7.0 as 7."""
    return pc.replace_substring_regex(column, r"^(-?\d+)\.0+$", r"\1")


def range_of_lines(
    path: Path, head: Head, begin: int, end: int
) -> Iterator[tuple[int, int, bytes, Callable[[], int]]]:
    """The lines that begin in a range of bytes of a plain file, as one block."""
    with path.open("rb") as stream:
        if begin > head.start:
            stream.seek(begin - 1)
            stream.readline()
            begin = stream.tell()
        if begin >= end:
            return
        stream.seek(begin)
        text = stream.read(end - begin)
        if not text.endswith(b"\n"):
            text += stream.readline()
    yield 0, len(text), text, lambda: count_lines(path, begin)


def whole_lines(
    path: Path, head: Head, breaks: bool
) -> Iterator[tuple[int, int, bytes, Callable[[], int]]]:
    """All lines of a file, in blocks of whole rows; bytes are counted as they are in the file.

    Raises:
        FormatError: A quote is not closed.
    """
    lines = head.lines
    k = 0
    rest = b""
    packed = compression(path)
    with (
        pa.OSFile(fsencode(path)) as file,
        pa.CompressedInputStream(file, packed) if packed else nullcontext(file) as stream,
    ):
        stream.read(head.start)
        told = 0
        while True:
            part = stream.read(BLOCK)
            text = rest + part
            cut = len(text)
            if len(part) == BLOCK:
                cut = text.rfind(b"\n") + 1
                cut = rows_of(path, text[:cut], head.separator)[1] if breaks else cut
            text, rest = text[:cut], text[cut:]
            if text:
                yield k, file.tell() - told, text, partial(int, lines)
                told = file.tell()
                lines += text.count(b"\n")
                k += 1
            if len(rest) > MOST_BLOCKS * BLOCK:
                raise FormatError(f"{path}: after line {lines}: a quote is not closed; correct it")
            if len(part) < BLOCK:
                return


def count_lines(path: Path, end: int) -> int:
    """Number of lines before a byte of a plain file."""
    n = 0
    with path.open("rb") as stream:
        while stream.tell() < end:
            n += stream.read(min(BLOCK, end - stream.tell())).count(b"\n")
    return n
