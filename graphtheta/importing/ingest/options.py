"""What an import is asked to do, and the tables and fields that follow from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_type_hints

import pyarrow as pa
import pyarrow.compute as pc

from graphtheta.base.arguments import matches, misfit
from graphtheta.base.wording import did_you_mean
from graphtheta.errors import ConfigError, DataError
from graphtheta.importing.fields.base import Field, Ids
from graphtheta.importing.fields.labels import Labelled, label_field
from graphtheta.importing.fields.named import (
    named_field,
    number_field,
    require,
    split_field,
    stated,
)
from graphtheta.importing.fields.one_hot import Beside, OneHot
from graphtheta.importing.fields.scaled import Scaled
from graphtheta.importing.fields.sparse import SparseRows
from graphtheta.importing.tables.arrow import (
    FLOAT,
    TEXT,
    WHOLE,
    flags,
    is_list,
    is_text,
    lengths,
    one,
)
from graphtheta.importing.tables.faults import Faults
from graphtheta.importing.tables.source import Source
from graphtheta.importing.tables.text import (
    DISGUISED,
    POINTED,
    LineBreaks,
    TextSource,
    without_point,
)

CHOICES = {
    "id_type": ("auto", "int", "text"),
    "duplicates": ("keep", "drop"),
    "self_loops": ("keep", "drop"),
    "reverse": ("keep", "add"),
    "on_bad_row": ("fail", "skip"),
    "scale": ("none", "standard"),
}
# options that name columns
OF_EDGES = ("src", "dst", "edge_attr", "edge_weight", "edge_label", "edge_split", "edge_columns")
OF_NODES = ("id", "features", "one_hot", "sparse_features", "label", "split", "node_columns")
# where values belong that float32 would round
REMEDY = "give codes, ids and times as --{}-columns, and rescale measured quantities"


@dataclass(frozen=True)
class Options:
    """Names of columns, and what to do with rows; see ``import_graph``."""

    src: str = "src"
    dst: str = "dst"
    edge_attr: Sequence[str] = ()
    edge_weight: str | None = None
    edge_label: Sequence[str] = ()
    edge_split: Sequence[str] = ()
    edge_columns: Sequence[str] = ()
    id: str | None = "id"
    features: Sequence[str] = ()
    one_hot: Sequence[str] = ()
    sparse_features: Sequence[str] = ()
    n_features: int | None = None
    scale: str = "none"
    label: Sequence[str] = ()
    split: Sequence[str] = ()
    node_columns: Sequence[str] = ()
    n_nodes: int | None = None
    id_type: str = "auto"
    types: Mapping[str, str] = field(default_factory=dict)
    duplicates: str = "keep"
    self_loops: str = "keep"
    reverse: str = "keep"
    on_bad_row: str = "fail"
    name: str | None = None

    def __post_init__(self) -> None:
        for key, hint in get_type_hints(Options).items():
            value = getattr(self, key)
            # one name is a list of one
            several = hint == Sequence[str]
            if not matches(value, hint | str | None if several else hint):
                raise misfit("import_graph", key, value, hint)
            if several:
                object.__setattr__(
                    self, key, (value,) if isinstance(value, str) else tuple(value or ())
                )
        for key, allowed in CHOICES.items():
            value = getattr(self, key)
            if value not in allowed:
                raise ConfigError(
                    f"{key}: unknown value {value!r}{did_you_mean(value, allowed)}; allowed:"
                    f" {', '.join(allowed)}"
                )
        if self.n_features is not None and (self.n_features < 1 or not self.sparse_features):
            raise ConfigError(
                f"n_features: got {self.n_features}; give at least 1, with sparse_features"
                " (--sparse-features)"
            )
        if (self.features or self.one_hot) and self.sparse_features:
            raise ConfigError(
                "sparse_features are all features of a graph; give them, or features and one_hot"
            )
        if twice := sorted(set(self.features) & set(self.one_hot)):
            raise ConfigError(
                f"the column '{twice[0]}' is named by features (numbers) and one_hot (names); give"
                " it once"
            )
        if self.n_nodes is not None and self.n_nodes < 1:
            raise ConfigError(f"n_nodes: got {self.n_nodes}, expected at least 1")

    @property
    def used(self) -> set[str]:
        """Names of all columns that are asked for, of edges and of nodes."""
        return {name for key in (*OF_EDGES, *OF_NODES) for name in self.names(key)}

    def names(self, key: str) -> Sequence[str]:
        """The columns that an option names."""
        value = getattr(self, key)
        return [value] if isinstance(value, str) else value or ()

    @property
    def skip(self) -> bool:
        """Whether bad rows are left out."""
        return self.on_bad_row == "skip"


def edge_fields(options: Options, source: Source, kind: Any) -> list[Field]:
    """The fields of an edge table.

    Args:
        options: Names of its columns.
        source: The table.
        kind: Type of the ids.

    Raises:
        ConfigError, DataError: A column is missing, or has a type that does not fit.
    """
    types = checked_types(options, source, OF_EDGES, may_be_empty=True)
    widths = list_widths(source, {column: types[column] for column in options.used & types.keys()})
    fields: list[Field] = [Ids((options.src, options.dst), kind)]
    numbers: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("attr", "edge_attr", {}),
        ("weight", "edge_weight", {"vector": True}),
        ("y", "edge_label", {"vector": len(options.edge_label) == 1, "missing": True}),
    )
    for name, key, form in numbers:
        if columns := options.names(key):
            fields.append(
                number_field(
                    name=name,
                    columns=columns,
                    types=types,
                    widths=widths,
                    remedy=REMEDY.format("edge"),
                    **form,
                )
            )
    if options.edge_split:
        fields.append(split_field(options.edge_split, types, widths))
    return fields + [
        named_field("edge", column, types, widths.get(column, 0)) for column in options.edge_columns
    ]


def node_fields(options: Options, source: Source, kind: Any) -> list[Field]:
    """The fields of a node table; the arguments are those of ``edge_fields``."""
    types = checked_types(options, source, OF_NODES)
    widths = list_widths(source, {column: types[column] for column in options.used & types.keys()})
    fields: list[Field] = [] if options.id is None else [Ids((options.id,), kind)]
    split = split_field(options.split, types, widths) if options.split else None
    features: list[Field] = [OneHot(column) for column in options.one_hot]
    if options.features:
        form: dict[str, Any] = (
            {"remedy": REMEDY.format("node")}
            if options.scale == "none"
            else {"make": Scaled, "split": split}
        )
        features.insert(
            0,
            number_field(name="x", columns=options.features, types=types, widths=widths, **form),
        )
    if features:
        fields.append(Beside(features) if len(features) > 1 else features[0])
    if options.sparse_features:
        fields.append(SparseRows(options.sparse_features, types, options.n_features))
    if split is not None:
        fields.append(split)
    if options.label:
        label = label_field(options.label, types, widths.get(options.label[0], 0))
        fields += [label, *([Labelled(label, split)] if split is not None else [])]
    return fields + [
        named_field("node", column, types, widths.get(column, 0)) for column in options.node_columns
    ]


def id_kind(options: Options, edges: Source, nodes: Source | None) -> Any:
    """The type of the ids: integers if all id columns have integers, else text.

    Raises:
        DataError: The ids are neither.
    """
    numbered = options.n_nodes is not None or (nodes is not None and options.id is None)
    if options.id_type == "text" and not numbered:
        return TEXT
    named = [(edges, options.src), (edges, options.dst)]
    if nodes is not None and options.id:
        named.append((nodes, options.id))
    columns = [
        (source, column, checked_types(options, source, ())[column])
        for source, column in named
        if column in source.types()
    ]
    # columns without rows have no type
    columns = [item for item in columns if not pa.types.is_null(item[2])]
    texts = [
        (source, column, kind) for source, column, kind in columns if isinstance(source, TextSource)
    ]
    if options.id_type == "auto" and not numbered:
        typed = [item for item in columns if item[0].typed]
        for source, column, kind in typed:
            if not (is_text(kind) or may_be_whole(kind)):
                raise DataError(
                    f"{source.name}: the ids in column '{column}' have type {kind}; ids are"
                    " integers or texts"
                )
        if not all(may_be_whole(kind) for _, _, kind in typed) or not all(
            are_whole(*item) for item in texts
        ):
            return TEXT
        for source, column, _ in texts:
            source.plain.add(column)
    for source, column, kind in texts:
        if pa.types.is_floating(kind):
            source.pointed.add(column)
    return WHOLE


def may_be_whole(kind: Any) -> bool:
    """Whether a type is one of numbers, which are ids if they are whole."""
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def are_whole(source: TextSource, column: str, kind: Any) -> bool:
    """Whether ids at the beginning of a text file are integers: without signs or zeros in front,
    which make them names; or all as 7.0.
    """
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return False
    try:
        piece = next(iter(source.pieces()), None)
        rows = (
            None
            if piece is None
            else next(source.read(piece, {column: TEXT}, lambda block: block == 0, Faults()), None)
        )
    except LineBreaks:
        source.with_line_breaks()
        return are_whole(source, column, kind)
    if rows is None:
        return True
    ids = one(rows.table.column(column))
    if pa.types.is_floating(kind):
        if not flags(pc.match_substring_regex(ids, POINTED)).all():
            return False
        ids = without_point(ids)
    return not flags(pc.match_substring_regex(ids, DISGUISED)).any()


def checked_types(
    options: Options, source: Source, named: Sequence[str], may_be_empty: bool = False
) -> dict[str, Any]:
    """Types of the columns of a table, in which all that are named exist; numbers for those of a
    table without rows, if it may be empty.
    """
    plain = source.types()
    types = stated(
        plain,
        {column: word for column, word in options.types.items() if column in plain},
        source.name,
    )
    # a text file without rows has no types but those that are stated
    if may_be_empty and (source.typed or all(map(pa.types.is_null, plain.values()))):
        types = {
            column: FLOAT if pa.types.is_null(kind) else kind for column, kind in types.items()
        }
    for key in named:
        require(options.names(key), types, source.name, f"--{key.replace('_', '-')}")
    return types


def list_widths(source: Source, types: dict[str, Any]) -> dict[str, int]:
    """Lengths of the lists of some columns: those of their type, or of the first list that is not
    empty; 0 if there is none.
    """
    lists = {
        column: pa.large_list(kind.value_type) for column, kind in types.items() if is_list(kind)
    }
    widths = {
        column: types[column].list_size
        for column in lists
        if pa.types.is_fixed_size_list(types[column])
    }
    for piece in source.pieces() if len(widths) < len(lists) else ():
        rest = {column: kind for column, kind in lists.items() if column not in widths}
        for rows in source.read(piece, rest, lambda block: True, Faults()):
            for column in rest:
                sizes = lengths(one(rows.table.column(column)))
                if column not in widths and sizes.max(initial=0) > 0:
                    widths[column] = int(sizes[sizes > 0][0])
            if len(widths) == len(lists):
                return widths
    return {**dict.fromkeys(lists, 0), **widths}
