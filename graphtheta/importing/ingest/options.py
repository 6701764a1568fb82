"""What an import is asked to do, and the tables and fields that follow from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, get_type_hints

import pyarrow as pa
import pyarrow.compute as pc

from graphtheta.base.arguments import matches, misfit
from graphtheta.base.described import each_once
from graphtheta.base.wording import did_you_mean
from graphtheta.errors import ConfigError, DataError
from graphtheta.graph.data.columns import TIME_UNITS
from graphtheta.importing.fields.base import Field, Ids
from graphtheta.importing.fields.codes import Codes
from graphtheta.importing.fields.dates import is_date
from graphtheta.importing.fields.filling import RULES, Filling
from graphtheta.importing.fields.labels import Labelled, label_field
from graphtheta.importing.fields.named import (
    named_field,
    number_field,
    require,
    split_field,
    stated,
)
from graphtheta.importing.fields.numbers import Numbers
from graphtheta.importing.fields.one_hot import Beside, Indicators, OneHot
from graphtheta.importing.fields.scaled import Scaled
from graphtheta.importing.fields.sparse import SparseRows
from graphtheta.importing.fields.training import TrainingRows
from graphtheta.importing.tables.arrow import (
    BOOL,
    FLOAT,
    TEXT,
    WHOLE,
    flags,
    is_list,
    is_number,
    is_text,
    is_whole,
    is_yes_or_no,
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
IDS = ("src", "dst", "id")
# options whose columns become numbers, times become days: their types and units are no matter
OF_NUMBERS = ("features", "edge_attr", "edge_weight", "edge_label")
# options whose columns have a rule for missing values
MAY_LACK = ("features", "one_hot", "edge_attr", "node_columns", "edge_columns")
MISSING = "a mean or mode for missing values (--missing)"
# where values belong that float32 would round
REMEDY = "give codes, ids and times as --{}-columns, and rescale measured quantities"


@dataclass(frozen=True)
class ImportOptions:
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
    missing: str | Mapping[str, str] = "error"
    missing_indicator: bool = False
    rename: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None

    def __post_init__(self) -> None:
        for key, hint in get_type_hints(ImportOptions).items():
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
        object.__setattr__(self, "missing", self._rules())
        if len(set(self.rename.values())) < len(self.rename):
            raise ConfigError(f"rename: two columns get the same name in {dict(self.rename)}")

    def _rules(self) -> dict[str, str]:
        """The rules of missing values, by column; that of all others by an empty name."""
        rules = rules_of(self.missing) if isinstance(self.missing, str) else dict(self.missing)
        may_lack = [name for key in MAY_LACK for name in self.names(key)]
        for column, rule in rules.items():
            if rule not in RULES:
                raise ConfigError(
                    f"missing (--missing): unknown rule {rule!r}{did_you_mean(rule, RULES)};"
                    f" allowed: {', '.join(RULES)}"
                )
            if column and column not in may_lack:
                raise ConfigError(
                    f"missing (--missing): '{column}' is no column of"
                    f" {', '.join(MAY_LACK)}{did_you_mean(column, may_lack)}; the missing values of"
                    " others have no rule"
                )
        for column in (*self.one_hot, *self.node_columns, *self.edge_columns):
            if rules.get(column) == "mean":
                raise ConfigError(
                    f"missing (--missing): '{column}' is no column of numbers, which have a mean;"
                    f" give {column}=own or {column}=mode"
                )
        if self.missing_indicator and not any(rule != "error" for rule in rules.values()):
            raise ConfigError(
                "missing_indicator (--missing-indicator) marks missing values, which are errors;"
                " say what stands for them, as in --missing mean"
            )
        return rules

    def rule(self, column: str) -> str:
        """What stands for missing values of a column; a mean for all others holds for numbers."""
        rules = dict(self.missing)  # type: ignore[arg-type]
        rule = rules.get(column, rules.get("", "error"))
        return "error" if rule == "mean" and column in self.one_hot else rule

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


def edge_fields(
    options: ImportOptions, source: Source, types: dict[str, Any], kind: Any, like: bool
) -> list[Field]:
    """The fields of an edge table.

    Args:
        options: Names of its columns.
        source: The table.
        types: Types of its columns.
        kind: Type of the ids.
        like: Whether they take what the fields of another import learnt, so that no training rows
            are needed.

    Raises:
        ConfigError, DataError: A column has a type that does not fit.
    """
    widths = list_widths(source, {column: types[column] for column in options.used & types.keys()})
    fields: list[Field] = [Ids((options.src, options.dst), kind)]
    split = split_field(options.edge_split, types, widths) if options.edge_split else None
    learns_from = None if like else split
    numbers: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("attr", "edge_attr", features_form(options, options.edge_attr, learns_from)),
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
    fields = [with_marks(field, options) for field in fields]
    if split is not None:
        fields.append(split)
    return fields + [
        named(
            options=options,
            group="edge",
            column=column,
            types=types,
            widths=widths,
            split=learns_from,
        )
        for column in options.edge_columns
    ]


def node_fields(
    options: ImportOptions, source: Source, types: dict[str, Any], kind: Any, like: bool
) -> list[Field]:
    """The fields of a node table; the arguments are those of ``edge_fields``."""
    widths = list_widths(source, {column: types[column] for column in options.used & types.keys()})
    fields: list[Field] = [] if options.id is None else [Ids((options.id,), kind)]
    split = split_field(options.split, types, widths) if options.split else None
    learns_from = None if like else split
    marked: list[tuple[Numbers | Codes, Sequence[str]]] = []
    features: list[Field] = []
    if options.features:
        form = features_form(options, options.features, learns_from)
        form |= (
            {"remedy": REMEDY.format("node")}
            if options.scale == "none"
            else {"make": Scaled, "training": TrainingRows(learns_from, "scale=standard")}
        )
        numbers = number_field(
            name="x", columns=options.features, types=types, widths=widths, **form
        )
        features.append(numbers)
        marked.append((numbers, own_marks(options, options.features)))
    names = [
        OneHot(
            column, types[column], options.rule(column), training_of(options, column, learns_from)
        )
        for column in options.one_hot
    ]
    if options.missing_indicator:
        marked += [
            (field, (column,))
            for field, column in zip(names, options.one_hot, strict=True)
            if options.rule(column) != "error"
        ]
    if any(columns for _, columns in marked):
        features.append(Indicators("x", marked))
    features += names
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
        named(
            options=options,
            group="node",
            column=column,
            types=types,
            widths=widths,
            split=learns_from,
        )
        for column in options.node_columns
    ]


def features_form(
    options: ImportOptions, columns: Sequence[str], split: Field | None
) -> dict[str, Any]:
    """Arguments of ``Numbers`` for features: dates are accepted, and missing values have rules."""
    rules = {column: options.rule(column) for column in columns}
    if set(rules.values()) <= {"error"}:
        return {"dates": True}
    takes_statistics = bool({"mean", "mode"} & set(rules.values()))
    training = TrainingRows(split if takes_statistics else None, MISSING)
    return {"dates": True, "filling": partial(Filling, rules=rules, training=training)}


def with_marks(field: Field, options: ImportOptions) -> Field:
    """Attributes of edges with the features that mark missing ones; other fields as they are."""
    marked = own_marks(options, options.edge_attr)
    if not marked or not isinstance(field, Numbers) or field.key != "attr":
        return field
    return Beside([field, Indicators("attr", [(field, marked)])])


def own_marks(options: ImportOptions, columns: Sequence[str]) -> list[str]:
    """Columns of numbers whose missing values a feature marks."""
    rules = {column: options.rule(column) for column in columns}
    return [
        column
        for column, rule in rules.items()
        if rule == "own" or (options.missing_indicator and rule != "error")
    ]


def training_of(options: ImportOptions, column: str, split: Field | None) -> TrainingRows:
    """The training rows of a column of names; only the most frequent name needs them."""
    return TrainingRows(split if options.rule(column) == "mode" else None, MISSING)


def named(
    options: ImportOptions,
    group: str,
    column: str,
    types: dict[str, Any],
    widths: dict[str, int],
    split: Field | None,
) -> Field:
    """The field of a named column; a rule for all columns holds for those that can have it."""
    rule = options.rule(column)
    if column not in options.missing and not (is_text(types[column]) and rule in ("mode", "own")):
        rule = "error"
    return named_field(
        group=group,
        column=column,
        types=types,
        width=widths.get(column, 0),
        rule=rule,
        training=training_of(options, column, split),
    )


def id_kind(options: ImportOptions, edges: Source, nodes: Source | None) -> Any:
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
            if not (is_text(kind) or is_number(kind)):
                raise DataError(
                    f"{source.name}: the ids in column '{column}' have type {kind}; ids are"
                    " integers or texts"
                )
        if not all(are_whole(*item) for item in columns):
            return TEXT
        for source, column, _ in texts:
            source.plain.add(column)
    for source, column, kind in texts:
        if pa.types.is_floating(kind):
            source.pointed.add(column)
    return WHOLE


def first_texts(source: Source, column: str) -> Any:
    """The values of a column at the beginning of a table, as texts; None if there are no rows."""
    try:
        piece = next(iter(source.pieces()), None)
        rows = (
            None
            if piece is None
            else next(source.read(piece, {column: TEXT}, lambda block: block == 0, Faults()), None)
        )
    except LineBreaks:
        source.with_line_breaks()
        return first_texts(source, column)
    return None if rows is None else one(rows.table.column(column))


def are_whole(source: Source, column: str, kind: Any) -> bool:
    """Whether ids are integers of 64 bits, as far as their type and the beginning of the table say.
    Those of a text file have no signs or zeros in front, which make them names; or all are as 7.0.
    """
    may_be_long = kind == pa.uint64() or (pa.types.is_decimal(kind) and is_whole(kind))
    if not is_number(kind) or (source.typed and (source.rank0 or not may_be_long)):
        return is_number(kind)
    ids = first_texts(source, column)
    if ids is None:
        return True
    if pa.types.is_floating(kind):
        if not flags(pc.match_substring_regex(ids, POINTED)).all():
            return False
        ids = without_point(ids)
    try:
        ids.filter(pc.match_substring_regex(ids, r"^-?\d{19,}$")).cast(WHOLE)
    except pa.ArrowInvalid:
        return False
    return not flags(pc.match_substring_regex(ids, DISGUISED)).any()


def checked_types(
    options: ImportOptions,
    source: Source,
    named: Sequence[str],
    may_be_empty: bool = False,
    words: Mapping[str, str] | None = None,
    store: str = "",
) -> dict[str, Any]:
    """Types of the columns of a table, in which all that are named exist; numbers for those of a
    table without rows, if it may be empty.

    Args:
        options: Names of columns, and types that are stated.
        source: The table.
        named: Options whose columns must exist.
        may_be_empty: Whether the table may have no rows.
        words: Types that another import found, which are as if they were stated.
        store: The store of the other import; empty without.
    """
    plain = source.types()
    # times that become days are read in the unit in which they are given
    stored = {*options.node_columns, *options.edge_columns}
    earlier = {
        column: word
        for column, word in (words or {}).items()
        if column in stored or word not in TIME_UNITS or not is_date(plain.get(column, FLOAT))
    }
    every = {**earlier, **options.types}
    types = stated(
        plain, {column: word for column, word in every.items() if column in plain}, source.name
    )
    # a text file without rows has no types but those that are stated
    if may_be_empty and (source.typed or all(map(pa.types.is_null, plain.values()))):
        types = {
            column: FLOAT if pa.types.is_null(kind) else kind for column, kind in types.items()
        }
    for key in named:
        flag = f"--{key.replace('_', '-')}"
        require(options.names(key), types, source.name, flag, "" if key in IDS else store)
    for column in (*options.features, *options.edge_attr) if named and not source.rank0 else ():
        # texts of true and false are numbers
        if column in types and column not in every and is_text(types[column]):
            texts = first_texts(source, column)
            if texts is not None and is_yes_or_no(texts):
                types[column] = BOOL
    return types


def rules_of(text: str) -> dict[str, str]:
    """Rules of missing values by column, that of all others by an empty name, of a text such as
    "mean,city=own".

    Raises:
        ConfigError: A column has two rules.
    """
    pairs = [item.rpartition("=") for item in text.split(",") if item.strip()]
    return each_once(
        [(column.strip(), rule.strip()) for column, _, rule in pairs],
        f"missing (--missing): {text} has two rules for the same columns; drop one of them",
    )


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
