"""The command ``import --edges``: tables of edges and nodes as a store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphtheta.base.described import each_once
from graphtheta.engine.runtime.start import Program, start
from graphtheta.errors import ConfigError
from graphtheta.run.job.flag import Parser
from graphtheta.run.job.help import number_from

# flags with names of columns: metavar and help
EDGE_COLUMNS = {
    "src": ("COLUMN", "ids of sources [src]"),
    "dst": ("COLUMN", "ids of destinations [dst]"),
    "edge-attr": (
        "COLUMNS",
        "attributes: numbers, true and false, dates and times; or one column of lists of numbers",
    ),
    "edge-weight": ("COLUMN", "weights"),
    "edge-label": ("COLUMNS", "targets of edge tasks: numbers"),
    "edge-split": (
        "COLUMNS",
        "a column of the words train, val, test; or columns of true and false",
    ),
    "edge-columns": (
        "COLUMNS",
        "values that models read by name: integers, numbers, times; texts become codes",
    ),
}
NODE_COLUMNS = {
    "id": ("COLUMN", "ids, integers or texts [id]; empty: row i is node i"),
    "features": (
        "COLUMNS",
        "numbers, true and false, dates and times; or one column of lists of numbers",
    ),
    "one-hot": (
        "COLUMNS",
        "names, each of which becomes a feature that is 1 for rows with this name and else 0",
    ),
    "sparse-features": (
        "INDICES,VALUES",
        "two columns of lists: numbers of features from 0, and their values",
    ),
    "label": (
        "COLUMNS",
        "classes (integers or texts), numbers, or lists of classes; or several columns of numbers",
    ),
    "split": ("COLUMNS", "a column of the words train, val, test; or columns of true and false"),
    "node-columns": (
        "COLUMNS",
        "values that models read by name: integers, numbers, times; texts become codes",
    ),
}
ROWS = {
    "scale": (
        ("none", "standard"),
        (
            "standard: features get mean 0 and deviation 1 over the training nodes, or over all"
            " without a split [none]"
        ),
    ),
    "duplicates": (("keep", "drop"), "edges with the same ends: keep all, or the first [keep]"),
    "self-loops": (("keep", "drop"), "edges from a node to itself [keep]"),
    "reverse": (
        ("keep", "add"),
        "keep edges as they are, or add the reverse of those that have none [keep]",
    ),
    "on-bad-row": (
        ("fail", "skip"),
        (
            "rows that are malformed, lack an id, name an unknown node or have a wrong type: stop,"
            " or leave them out and count them [fail]"
        ),
    ),
}
LISTS = (
    "edge_attr",
    "edge_label",
    "edge_split",
    "edge_columns",
    "features",
    "one_hot",
    "sparse_features",
    "label",
    "split",
    "node_columns",
)


def import_tables(argv: Sequence[str]) -> Program:
    """Import tables as a store.

    Args:
        argv: Flags.
    """
    options, _ = parser().read(list(argv))
    keywords = {key: value for key, value in vars(options).items() if value is not None}
    edges = keywords.pop("edges")
    nodes = keywords.pop("nodes", None)
    to = keywords.pop("to", None)
    if not to:
        raise ConfigError(
            "graphtheta import: --to is missing; give the folder to write, as in --to follows.store"
        )
    if "separator" in keywords:
        keywords["separator"] = {"tab": "\t", "space": " "}.get(
            keywords["separator"], keywords["separator"]
        )
    keywords |= {key: names(keywords[key]) for key in LISTS if key in keywords}
    if "id" in keywords:
        keywords["id"] = keywords["id"] or None
    if "types" in keywords:
        keywords["types"] = types_of(keywords["types"])
    if "rename" in keywords:
        keywords["rename"] = new_names(keywords["rename"])

    def program() -> None:
        from graphtheta.importing.ingest.importer import import_graph

        import_graph(
            one_or_more(edges),
            None if nodes is None else one_or_more(nodes),
            to=to,
            comm=start(),
            progress=True,
            **keywords,
        )

    return program


def parser() -> Parser:
    """The flags."""
    import_parser = Parser(
        "import",
        "Write tables of edges and nodes as a store. Every worker reads its share.",
        "graphtheta import --edges follows.csv --src from --dst to --nodes users.parquet --id name"
        " --features age,posts --label team --to follows.store",
        "--edges FILES ",
    )
    import_parser.add_argument(
        "--edges",
        metavar="FILES",
        required=True,
        help=(
            "CSV or TSV (plain or packed), Parquet, Arrow or Feather: a file, a folder, a pattern,"
            " or several with commas; or a whole graph: .npz, .mtx, or the raw folder of an OGB"
            " dataset"
        ),
    )
    import_parser.add_argument(
        "--nodes",
        metavar="FILES",
        help="the node table; without it, nodes are the ids that edges have",
    )
    import_parser.add_argument(
        "--to",
        metavar="FOLDER",
        help="the store to make; missing or empty, and seen by all workers",
    )
    import_parser.add_argument(
        "--like",
        metavar="STORE",
        help=(
            "a store of other tables, or the run that was trained on it: columns, names of texts"
            " and classes, scales and what stands for missing values are those of its import"
        ),
    )
    import_parser.add_argument(
        "--name", metavar="NAME", help="name of the graph [that of the file]"
    )
    for title, flags in (
        ("Columns of the edge table", EDGE_COLUMNS),
        ("Columns of the node table", NODE_COLUMNS),
    ):
        group = import_parser.add_argument_group(title)
        for flag, (metavar, text) in flags.items():
            group.add_argument(f"--{flag}", metavar=metavar, help=text)
    import_parser.add_argument(
        "--n-nodes",
        type=number_from(int, 1),
        metavar="N",
        help="ids are the numbers 0 to N-1, and there is no node table",
    )
    import_parser.add_argument(
        "--n-features",
        type=number_from(int, 1),
        metavar="D",
        help="number of sparse features [the largest number + 1]",
    )
    group = import_parser.add_argument_group("Types")
    group.add_argument(
        "--id-type",
        choices=("auto", "int", "text"),
        help=(
            "type of ids; auto: integers, or text if any at the beginning "
            "of a file is not an integer or has leading zeros [auto]"
        ),
    )
    group.add_argument(
        "--types",
        metavar="COLUMN:TYPE,...",
        help="types of columns: int, float, text, bool, time, time_s [found in the first rows]",
    )
    group.add_argument(
        "--rename",
        metavar="OLD=NEW,...",
        help="read columns under other names, which all flags then mean",
    )
    group.add_argument(
        "--separator",
        metavar="X",
        help="character between columns of text files, or tab, space [found in the first line]",
    )
    group.add_argument(
        "--no-header",
        dest="header",
        action="store_false",
        default=None,
        help="the first line is a row; columns are named 0, 1, 2, ...",
    )
    group = import_parser.add_argument_group("Rows and values")
    for flag, (choices, text) in ROWS.items():
        group.add_argument(f"--{flag}", choices=choices, help=text)
    group.add_argument(
        "--missing",
        metavar="RULE,...",
        help=(
            "what stands for missing values of features: mean or mode (the most frequent value) of"
            " the training rows, zero, own (a feature or a name that says so), or error; for single"
            " columns as in mean,city=own [error]"
        ),
    )
    group.add_argument(
        "--missing-indicator",
        action="store_true",
        default=None,
        help="a feature of 0 and 1 for each of these columns, which says where a value is missing",
    )
    return import_parser


def names(text: str) -> list[str]:
    """Names between commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def one_or_more(text: str) -> Any:
    """One path, or the paths between commas."""
    paths = names(text)
    return paths[0] if len(paths) == 1 else paths


def types_of(text: str) -> dict[str, str]:
    """Types by column.

    Raises:
        ConfigError: Not of the form COLUMN:TYPE,COLUMN:TYPE, or two types of a column.
    """
    pairs = [item.rpartition(":") for item in names(text)]
    if not all(column and kind for column, _, kind in pairs):
        raise ConfigError(
            f"--types {text}: expected COLUMN:TYPE,COLUMN:TYPE, as in --types when:time,code:text"
        )
    return each_once(
        [(column, kind) for column, _, kind in pairs],
        f"--types {text}: two types of column '{{}}'; drop one of them",
    )


def new_names(text: str) -> dict[str, str]:
    """New names of columns by the old ones.

    Raises:
        ConfigError: Not of the form OLD=NEW,OLD=NEW, or two names of a column.
    """
    pairs = [item.partition("=") for item in names(text)]
    if not all(old.strip() and new.strip() for old, _, new in pairs):
        raise ConfigError(
            f"--rename {text}: expected OLD=NEW,OLD=NEW, as in --rename alter=age,ort=city"
        )
    return each_once(
        [(old.strip(), new.strip()) for old, _, new in pairs],
        f"--rename {text}: two new names of column '{{}}'; drop one of them",
    )
