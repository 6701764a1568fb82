"""What a file is, by its first bytes: a table that can be read, or another format and how to
convert it.
"""

from __future__ import annotations

import codecs
import re
import zipfile
from pathlib import Path

from graphtheta.errors import FormatError
from graphtheta.importing.tables.files import reading

# bytes at the beginning of a file that tell what it is
HEAD = 1 << 12
PARQUET = b"PAR1"
ARROW = b"ARROW1"
# a message of the stream format of Arrow begins so
ARROW_STREAM = b"\xff\xff\xff\xff"
# what pyarrow unpacks
COMPRESSION = {
    "gzip": rb"\x1f\x8b",
    "zstd": rb"\x28\xb5\x2f\xfd",
    "lz4": rb"\x04\x22\x4d\x18",
    "bz2": rb"BZh[1-9](1AY&SY|\x17rE8P\x90)",
}

CONVERT = "convert it: python -c \"import pandas; pandas.{}.to_parquet('{{stem}}.parquet')\""
ICONV = "convert it: iconv -f {} -t UTF-8 {{path}} > {{stem}}-utf8.csv"
COLUMNS = "read it with {} and give gt.import_graph a dict of its columns"
EXCEL = CONVERT.format("read_excel('{path}')")
# byte at which it begins, what is there, what the file is, and what to do about it
FOREIGN = (
    (0, codecs.BOM_UTF32_LE, "text in UTF-32", ICONV.format("UTF-32")),
    (0, codecs.BOM_UTF32_BE, "text in UTF-32", ICONV.format("UTF-32")),
    (0, codecs.BOM_UTF16_LE, "text in UTF-16", ICONV.format("UTF-16")),
    (0, codecs.BOM_UTF16_BE, "text in UTF-16", ICONV.format("UTF-16")),
    (
        0,
        b"SQLite format 3\0",
        "an SQLite database",
        'give gt.Query(sqlite3.connect("{path}"), "select ...")',
    ),
    (8, b"DUCK", "a DuckDB database", 'give gt.Query(duckdb.connect("{path}"), "select ...")'),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file", COLUMNS.format('h5py.File("{path}")')),
    (0, b"\x93NUMPY", "an array of NumPy", COLUMNS.format('numpy.load("{path}")')),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Excel workbook of before 2007", EXCEL),
    (
        0,
        b"FEA1",
        "a Feather file of version 1",
        'give gt.import_graph pyarrow.feather.read_table("{path}")',
    ),
    (0, b"ORC", "an ORC file", 'give gt.import_graph pyarrow.orc.read_table("{path}")'),
    (0, b"Obj\x01", "an Avro file", COLUMNS.format('fastavro.reader(open("{path}", "rb"))')),
    (0, b"\xfd7zXZ\0", "packed by xz", "unpack it: xz -dk {path}"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "unpack it: 7z x {path}"),
    (0, b"Rar!", "a RAR archive", "unpack it: unrar x {path}"),
    (257, b"ustar", "a tar archive", "unpack it: tar -xf {path}"),
    (0, b"%PDF", "a PDF document", "export the table as CSV"),
)
# text at the beginning of a file; white space and capitals do not count
FOREIGN_TEXT = (
    (rb"<!doctype html|<html", "a web page and no table", "the download failed, so repeat it"),
    (
        rb"<\?xml|<graphml|<gexf",
        "XML",
        (
            'read a graph with networkx.read_graphml("{path}") or read_gexf and give it to'
            " gt.import_graph"
        ),
    ),
    (rb"graph\s*\[", "a graph in GML", 'give gt.import_graph networkx.read_gml("{path}")'),
    (rb"\*vertices", "a graph of Pajek", 'give gt.import_graph networkx.read_pajek("{path}")'),
    (
        rb'\{\s*"[^\n]*\}\s*\n\s*\{',
        "lines of JSON",
        CONVERT.format("read_json('{path}', lines=True)"),
    ),
    (rb'\{\s*"|\[\s*(\{\s*"|\[)', "JSON", CONVERT.format("read_json('{path}')")),
)


def begin_of(path: Path) -> bytes:
    """The first bytes of a file.

    Raises:
        FormatError: It is missing or cannot be read.
    """
    with reading(path), path.open("rb") as stream:
        return stream.read(HEAD)


def compression(path: Path) -> str | None:
    """The compression of a file, by its first bytes; None if pyarrow need not unpack it."""
    begin = begin_of(path)
    return next((name for name, magic in COMPRESSION.items() if re.match(magic, begin)), None)


def refuse_foreign(path: Path, begin: bytes) -> None:
    """Refuse what is no text in UTF-8.

    Args:
        path: The file.
        begin: Its first bytes, after decompression.

    Raises:
        FormatError: It is another format; says which, and how to convert it.
    """
    what, remedy = foreign(path, begin)
    if what:
        raise FormatError(
            f"{path}: the file is {what}; "
            + remedy.format(path=path, stem=path.name.partition(".")[0])
        )


def foreign(path: Path, begin: bytes) -> tuple[str, str]:
    """What a file is, and what to do about it; empty for text in UTF-8 or a similar encoding."""
    if begin.startswith((PARQUET, ARROW)):
        return "a packed table of Parquet or Arrow", "unpack it first"
    for at, magic, what, remedy in FOREIGN:
        if begin.startswith(magic, at):
            return what, remedy
    if begin.startswith(b"PK\x03\x04"):
        return archive(path)
    if re.match(rb"\x80[\x02-\x05]", begin):
        return (
            "a pickle",
            "load it with the library that wrote it, and give the object to gt.import_graph",
        )
    for pattern, what, remedy in FOREIGN_TEXT:
        if re.match(rb"\s*(" + pattern + rb")", begin, re.IGNORECASE):
            return what, remedy
    if b"\0" in begin:
        # every other byte of plain letters in UTF-16
        order = next(
            (
                order
                for order, zeros in (("LE", begin[1::2]), ("BE", begin[::2]))
                if 2 * zeros.count(0) > len(zeros)
            ),
            "",
        )
        if order and begin.count(0) < 0.6 * len(begin):
            return "text in UTF-16", ICONV.format(f"UTF-16{order}")
        return "no text and of no format that is known", "export the table as CSV or Parquet"
    return "", ""


def archive(path: Path) -> tuple[str, str]:
    """What an archive of zip is, and what to do about it."""
    try:
        with zipfile.ZipFile(path) as packed:
            names = packed.namelist()
    except (OSError, zipfile.BadZipFile):
        return "a damaged zip archive", "copy or download it again"
    if any(name.startswith("xl/") for name in names):
        return "an Excel workbook", EXCEL
    if any(name.endswith("data.pkl") for name in names):
        return (
            "a file of PyTorch",
            'give gt.import_graph the graph that torch.load("{path}") returns',
        )
    if any(name.endswith(".npy") for name in names):
        return "an npz file", "call it {stem}.npz, and give it alone: it is a whole graph"
    return (
        f"a zip archive of {len(names)} files ({', '.join(names[:3])})",
        "unpack it: unzip {path}",
    )
