"""How the columns of an import were read: kept in ``meta["recipe"]`` of its store, and taken by
imports of other tables with ``like``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from graphtheta.errors import ConfigError, FormatError
from graphtheta.graph.store.manifest import is_store, read_manifest
from graphtheta.importing.fields.named import as_numbers
from graphtheta.importing.ingest.opening import Tables
from graphtheta.importing.ingest.options import (
    OF_EDGES,
    OF_NODES,
    OF_NUMBERS,
    ImportOptions,
    rules_of,
)
from graphtheta.run.job.keyfile import JOB_FILE, read_mapping

KEY = "recipe"
# what regards the tables of an import alone
NOT_TAKEN = ("n_nodes", "types", "rename", "on_bad_row", "name")
# what decides about columns of the store, and cannot be another than that of the other import
DECIDED = (
    "edge_attr",
    "edge_weight",
    "edge_label",
    "edge_columns",
    "features",
    "one_hot",
    "sparse_features",
    "n_features",
    "scale",
    "missing",
    "missing_indicator",
    "label",
    "node_columns",
)
# columns that tables without known answers do not have
OF_ANSWERS = {"edges": ("edge_label", "edge_split"), "nodes": ("label", "split")}
AGAIN = "import its tables again with `graphtheta import --edges`, and give that store"


class Recipe(BaseModel):
    """How the columns of an import were read.

    Attributes:
        options: Its options, without those that regard its tables alone.
        types: Words that state the types of columns, by table ("edges", "nodes") and column.
        fields: What fields learnt, by table and field.
    """

    model_config = ConfigDict(extra="forbid")

    options: dict[str, Any]
    types: dict[str, dict[str, str]]
    fields: dict[str, dict[str, dict[str, Any]]]

    @classmethod
    def of(
        cls,
        options: ImportOptions,
        types: dict[str, dict[str, str]],
        fields: dict[str, dict[str, dict[str, Any]]],
    ) -> Recipe:
        """The recipe of an import."""
        taken = {
            key: dict(value) if isinstance(value, Mapping) else value
            for key, value in asdict(options).items()
            if key not in NOT_TAKEN
        }
        return cls(options=taken, types=types, fields=fields)


def recipe_of(like: str | os.PathLike[str]) -> tuple[Recipe, str]:
    """The recipe of a store, or of the one that a run was trained on; and the store.

    Raises:
        ConfigError: It is neither, or the store has no recipe.
        FormatError: It is damaged.
    """
    path = Path(like)
    if not is_store(path) and (path / JOB_FILE).is_file():
        dataset = str(read_mapping(path / JOB_FILE).get("dataset", ""))
        if not is_store(Path(dataset)):
            raise ConfigError(
                f"like (--like): {path} was trained on '{dataset}', which is no store in this"
                " folder, or on a graph that was given in Python; give the store itself, by its"
                " path"
            )
        path = Path(dataset)
    if not is_store(path):
        raise ConfigError(
            f"like (--like): {path} is neither a store nor the folder of a run that was trained on"
            " one; give one that graphtheta import --edges has made"
        )
    record = read_manifest(path).meta.get(KEY)
    if record is None:
        raise ConfigError(
            f"like (--like): {path} does not say how columns of tables became its own: an earlier"
            f" version has made it, or it was made of a whole graph; {AGAIN}"
        )
    try:
        return Recipe.model_validate(record), str(path)
    except ValidationError as error:
        raise FormatError(f"{path}: {KEY} is none ({error.errors()[0]['msg']}); {AGAIN}") from None


def options_like(given: Mapping[str, Any], recipe: Recipe, store: str) -> ImportOptions:
    """The options of an import that takes those of another one.

    Args:
        given: Those that are given.
        recipe: Of the other one.
        store: The store of the other one, for messages.

    Raises:
        ConfigError: One is given that the other one decides, and is another; or another type of a
            column that the store has.
    """
    other = ImportOptions(**recipe.options)
    for key in DECIDED:
        wanted = getattr(other, key)
        value = given.get(key, wanted)
        if isinstance(wanted, tuple):
            value = (value,) if isinstance(value, str) else tuple(value or ())
        if key == "missing" and isinstance(value, str):
            value = rules_of(value)
        # without answers, labels may be left out
        if value != wanted and (value or key not in ("label", "edge_label")):
            raise ConfigError(
                f"{key} (--{key.replace('_', '-')}) is that of {store} (--like); leave it out, or"
                " import without --like"
            )
    options = ImportOptions(**{**recipe.options, **given})
    decided = {key: columns_of(other, key) for key in DECIDED}
    for words in recipe.types.values():
        for key, columns in decided.items():
            read = as_numbers if key in OF_NUMBERS else str
            for column in [name for name in columns if name in words and name in options.types]:
                if read(options.types[column]) != read(words[column]):
                    raise ConfigError(
                        f"types (--types): '{column}' is {words[column]} in {store} (--like), and"
                        f" not {options.types[column]}; leave its type out, or import without"
                        " --like"
                    )
    return options


def columns_of(options: ImportOptions, key: str) -> Sequence[str]:
    """The columns that an option names; none of one that names no columns."""
    return options.names(key) if key in (*OF_EDGES, *OF_NODES) else ()


def of_recipe(tables: Tables, given: Mapping[str, Any], recipe: Recipe) -> tuple[Tables, list[str]]:
    """Tables without the labels and splits that the tables of the other import had and these have
    not, since answers may not be known yet; and the columns that they lack.

    Args:
        tables: The tables, with the options of the other import.
        given: Options that are given.
        recipe: Of the other import.

    Raises:
        ConfigError: There is no table of nodes, and the other import had one.
    """
    options = tables.options
    lacking = dict[str, Sequence[str]]()
    for table, source in (("edges", tables.edges), ("nodes", tables.nodes)):
        if source is None and table in recipe.types:
            raise ConfigError(
                "the store of --like was made with a table of nodes; give that of the new nodes"
                " with --nodes"
            )
        names = {} if source is None else source.types()
        for key in OF_ANSWERS[table]:
            columns = options.names(key)
            if key not in given and columns and not names.keys() & set(columns):
                lacking[key] = columns
    without: dict[str, Any] = dict.fromkeys(lacking, ())
    options = replace(options, **without)
    return (
        replace(tables, options=options),
        [column for columns in lacking.values() for column in columns],
    )


def used_columns(options: ImportOptions, table: str) -> list[str]:
    """Columns of a table that become columns of the store; ids do not."""
    keys = OF_EDGES if table == "edges" else OF_NODES
    ids = {options.src, options.dst, options.id}
    return [name for key in keys for name in options.names(key) if name not in ids]
