"""The flag of ``predict`` that asks for given links and triples, and their file."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphtheta.cli.top import on_rank_0
from graphtheta.inference.forward.given import Given
from graphtheta.inference.outputs.formats import OutputRows
from graphtheta.run.job.flag import Parser
from graphtheta.tasks.kinds.triple import TripleKind

# titles of files of links and of triples
LINKS = ("src", "dst")
TRIPLES = ("head", "relation", "tail")


def add_links(parser: Parser) -> None:
    """Add the flag."""
    parser.add_argument(
        "--links",
        metavar="FILE",
        help=(
            "write predictions for the links of this CSV file, with the titles src,dst, or for"
            " triples head,relation,tail, whether the graph has them or not"
        ),
    )


def link_rows(model: Any, path: str, whole: bool) -> OutputRows | None:
    """Predictions for the rows of a file, in their order, by the ids that the file has: of all
    workers on rank 0 and None elsewhere, or of each worker for the sources that it owns.

    Raises:
        ConfigError: The file asks for a node or a relation that the graph does not have, or the
            task has no links.
        DataError, FormatError: The file cannot be read, or a row is not as expected.
        Each on all ranks together.

    Collective: all ranks.
    """
    info = model.setup.info
    titles = TRIPLES if isinstance(model.setup.kind, TripleKind) else LINKS
    listed = on_rank_0(model.comm, path, (titles,), distinct=False)
    src, *relation, dst = listed.columns
    ids = [listed.ids(field, info) for field in (src, dst)]
    names = {"src": src, "dst": dst, "relation": relation[0] if relation else ""}
    asked = listed.columns[relation[0]] if relation else None
    given = Given(
        src=ids[0],
        dst=ids[1],
        relation=asked,
        where=lambda field, i: listed.where(names[field], i),
    )
    scores = model.link_scores(given, whole)
    if scores is None:
        return None
    at, values = scores
    texts = asked is not None or ids[0].dtype.kind == "U"
    columns = [np.array(x, str) for x in listed.columns.values()] if texts else ids
    return OutputRows(
        name="probability" if model.setup.kind.of_probabilities else "prediction",
        ids=np.stack(columns, axis=1)[at],
        values=values,
    )
