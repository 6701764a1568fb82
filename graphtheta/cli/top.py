"""The flags of ``predict`` that ask for the nodes of the highest scores, and the files that list
queries.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Collection
from functools import partial
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from graphtheta.engine.comm.communicator import Comm
from graphtheta.errors import ConfigError, DataError, FormatError
from graphtheta.inference.forward.top import SIDES, Asked
from graphtheta.inference.outputs.formats import OutputRows
from graphtheta.run.job.flag import Parser
from graphtheta.run.job.help import number_from
from graphtheta.tasks.kinds.kind import GraphInfo
from graphtheta.tasks.kinds.triple import TripleKind

# titles of files of triples, and what is asked for
SIDE_OF: dict[tuple[str, ...], str] = {("head", "relation"): "tail", ("relation", "tail"): "head"}
WHOLE = re.compile(r"-?[0-9]{1,19}")


class Listed(NamedTuple):
    """The rows of a file.

    Attributes:
        path: The file.
        columns: Texts by field.
        lines: The number of each row in the file, from 1.
    """

    path: str
    columns: dict[str, list[str]]
    lines: list[int]

    def where(self, field: str, i: int) -> str:
        """Names a field of a row, in messages."""
        return f"{self.path}, line {self.lines[i]}, field '{field}'"

    def ids(self, field: str, info: GraphInfo) -> np.ndarray:
        """A column of original ids, [n], as the graph has them.

        Raises:
            DataError: One is not a whole number, but those of the graph are.
        """
        texts = self.columns[field]
        if info.ids(np.zeros(0, np.int64)).dtype.kind == "U":
            return np.array(texts, str)
        numbers = [int(text) if WHOLE.fullmatch(text) else 1 << 63 for text in texts]
        wrong = next(
            (i for i, number in enumerate(numbers) if not -(1 << 63) <= number < 1 << 63), None
        )
        if wrong is not None:
            raise DataError(
                f"{self.where(field, wrong)}: {texts[wrong]!r} is not a whole number of 64 bits, as"
                " the ids of the graph are"
            )
        return np.array(numbers, np.int64)


def add_flags(parser: Parser) -> None:
    """Add the flags."""
    parser.add_argument(
        "--top",
        metavar="K",
        type=number_from(int, 1),
        help=(
            "write the K nodes of the highest scores for each source of held-out links or "
            "query of held-out triples, without known ones"
        ),
    )
    parser.add_argument(
        "--of",
        metavar="FILE",
        help=(
            "with --top, ask for these instead: a source a line, or for triples CSV with the "
            "titles head,relation or relation,tail"
        ),
    )
    parser.add_argument(
        "--side",
        choices=tuple(SIDES),
        help=(
            "with --top, find the ends that links lead to (tail, as without this flag) "
            "or their sources (head); a file of triples says it by its titles"
        ),
    )
    parser.add_argument(
        "--among",
        metavar="FILE",
        help="with --top, choose from the nodes of this file only, one a line",
    )
    parser.add_argument(
        "--keep-known",
        action="store_true",
        help="with --top, do not leave out known links and triples",
    )


def top_rows(model: Any, options: SimpleNamespace, whole: bool) -> OutputRows | None:
    """The best nodes of the queries of the flags: of all workers on rank 0 and None elsewhere, or
    those of each worker.

    Raises:
        ConfigError: A file asks for a node or a relation that the graph does not have.
        DataError, FormatError: A file cannot be read, or a row is not as expected.
        Each on all ranks together.

    Collective: all ranks.
    """
    kind = model.setup.kind
    info = model.setup.info
    comm = model.comm
    side = options.side or "tail"
    where = dict[str, Callable[[int], str]]()
    asked = Asked(k=options.top, side=side, keep_known=options.keep_known)
    if options.of:
        listed = on_rank_0(comm, options.of, SIDE_OF if isinstance(kind, TripleKind) else ())
        titles = tuple(listed.columns)
        relation = listed.columns.get("relation")
        side = SIDE_OF.get(titles, side)
        if options.side not in (None, side):
            raise ConfigError(
                f"--side {options.side}: {options.of} has the titles {','.join(titles)}, which ask"
                f" for a {side}; drop --side"
            )
        field = next(name for name in listed.columns if name != "relation")
        asked = asked._replace(nodes=listed.ids(field, info), side=side, relation=relation)
        where |= {
            "nodes": partial(listed.where, field),
            "relation": partial(listed.where, "relation"),
        }
    if options.among:
        among = on_rank_0(comm, options.among, ())
        asked = asked._replace(candidates=among.ids("id", info))
        where["candidates"] = partial(among.where, "id")
    best = model.answers(asked._replace(where=lambda name, i: where[name](i)), whole)
    return None if best is None else best.rows(kind, info)


def on_rank_0(
    comm: Comm, path: str, titles: Collection[tuple[str, ...]], distinct: bool = True
) -> Listed:
    """The rows of a file that rank 0 reads, on all ranks; see ``read``.

    Collective: all ranks of comm.
    """
    with comm.agreed():
        rows = tuple(read(path, titles, distinct)) if comm.rank == 0 else None
    return Listed(*comm.broadcast(rows))


def read(path: str, titles: Collection[tuple[str, ...]], distinct: bool = True) -> Listed:
    """The rows of a file.

    Args:
        path: The file.
        titles: The titles of a CSV file, one of these; none for an id a line.
        distinct: Leave out rows that are there before.

    Raises:
        DataError: A row has another number of fields, or an empty one.
        FormatError: The file cannot be read, or has other titles.
    """
    try:
        text = StringIO(Path(path).read_text(encoding="utf-8-sig"))
        rows = csv.reader(text) if titles else ([line.rstrip("\n")] for line in text)
        numbered = list(enumerate(rows, 1))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FormatError(
            f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}; give a text file"
            " in UTF-8"
        ) from None
    choices = " or ".join(map(",".join, titles))
    if not numbered:
        raise FormatError(
            f"{path}: the file is empty; expected"
            f" {f'the titles {choices}' if titles else 'an id a line'}"
        )
    names = tuple(numbered.pop(0)[1]) if titles else ("id",)
    if titles and names not in titles:
        raise FormatError(f"{path}, line 1: the titles are {','.join(names)}; expected {choices}")
    for line, row in numbered:
        if len(row) != len(names):
            raise DataError(f"{path}, line {line}: {len(row)} fields, expected {','.join(names)}")
        if "" in row:
            raise DataError(
                f"{path}, line {line}, field '{names[row.index('')]}': there is no value"
            )
    if distinct:
        first = {tuple(row): line for line, row in reversed(numbered)}
        numbered = sorted((line, list(row)) for row, line in first.items())
    return Listed(
        path,
        {name: [row[i] for _, row in numbered] for i, name in enumerate(names)},
        [line for line, _ in numbered],
    )
