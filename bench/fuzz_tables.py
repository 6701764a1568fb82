"""Random tables, imported by ``gt.import_graph`` and compared with what was written into them.

    python bench/fuzz_tables.py --tables 500 --seed 1

Tables of nodes and edges are drawn as lists of Python values: ids of both kinds, features with
missing values and rules for them, true and false, dates, names, classes, splits, and columns of
integers, texts and times, with numbers and texts that are easily misread. They are written as text
files with separators, quotes and compression, as Parquet, or given in memory, and imported on 1 to
3 simulated ranks; so are other tables, which are imported like the first ones. The graph that is
loaded must have the values that the page "Importing tables" states, computed here in Python. Other
values and errors of other libraries are faults, and make the exit code 1.
"""

from __future__ import annotations

import csv
import datetime
import gzip
import math
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import seeds

import graphtheta as gt
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import GraphThetaError

Rng = np.random.Generator
OTHER = "(other)"
WORDS = (
    *("Oslo", "oslo", "New York", 'say "hi"', "a,b", "a;b", "a\tb", "NA", "null", "nan", "None"),
    *("true", "0", "007", "-0", "1e3", "+5", "é", "日本", "ß", "'", "x#", "\\", "inf", "x" * 70),
    *("\u00a0x", "x\u3000", 'a""b'),
)
FLOATS = (0.0, -0.0, 1.5, -2.25, 1e-40, 3e38, -1e-3, 0.1, 16777217.5, 123456.789)
TRUE, FALSE = ("true", "Yes", "t", "Y", "1"), ("False", "no", "f", "N", "0")
EPOCH = datetime.date(1970, 1, 1)
EDGES = (0, 1, -1, 2**24 + 1, 2**53 + 1, 2**63 - 1, -(2**63) + 1)
BEYOND = (2**63, 2**63 + 1, 2**64 + 1, -(2**63) - 1)
MISSING = ("", "NA", "null", "NaN")
RULES = ("mean", "mode", "zero", "own")


@dataclass
class Drawn:
    """Tables and how they are imported.

    Attributes:
        nodes, edges: Values by column, None where one is missing.
        options: Of the import.
        kinds: What a column is, by name.
    """

    nodes: dict[str, list[Any]] = field(default_factory=dict)
    edges: dict[str, list[Any]] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)


def drawn(rng: Rng) -> Drawn:
    """Tables of nodes and edges."""
    d = Drawn()
    n, e = int(rng.choice([1, 2, 7, 40])), int(rng.choice([0, 1, 9, 80]))
    d.kinds["id"] = str(rng.choice(["long", "text"]))
    d.nodes["id"] = ids(rng, n, d.kinds["id"])
    d.edges = {end: [d.nodes["id"][i] for i in rng.integers(0, n, e)] for end in ("src", "dst")}
    d.edges["number"] = list(range(e))
    d.kinds["number"] = "long"
    holes = rng.random() < 0.5
    missing = {}
    for k, kind in enumerate(rng.choice(["float", "int", "bool", "date"], rng.integers(0, 4))):
        name = f"f{k}"
        d.kinds[name] = str(kind)
        d.nodes[name] = with_holes(rng, column(rng, n, kind), holes)
        if holes:
            missing[name] = str(rng.choice(RULES))
    features = [name for name in d.nodes if name.startswith("f")]
    if rng.random() < 0.4:
        d.nodes["name"] = with_holes(rng, column(rng, n, "text"), holes)
        d.kinds["name"] = "text"
        if holes:
            missing["name"] = str(rng.choice(["mode", "zero", "own"]))
        d.options["one_hot"] = "name"
    if rng.random() < 0.6:
        kind = str(rng.choice(["class", "text", "float"]))
        d.nodes["label"] = with_holes(rng, column(rng, n, kind), True)
        d.kinds["label"] = kind
        d.options["label"] = "label"
    if rng.random() < 0.6:
        labels = d.nodes.get("label", d.nodes["id"])
        parts = [(None, "train", "val", "test")[i] for i in rng.integers(0, 4, n)]
        # rows without a label are in no part
        d.nodes["part"] = ["train", *parts[1:]]
        d.nodes["part"] = [
            None if label is None else part
            for part, label in zip(d.nodes["part"], labels, strict=True)
        ]
        d.kinds["part"] = "text"
        d.options["split"] = "part"
    for table, rows, of, option in (
        (d.nodes, n, "n", "node_columns"),
        (d.edges, e, "e", "edge_columns"),
    ):
        named = ["number"] if of == "e" else []
        kinds = ["long", "text", "time", "float", "beyond"]
        weights = [0.24, 0.24, 0.24, 0.24, 0.04]
        for k, kind in enumerate(rng.choice(kinds, rng.integers(0, 3), p=weights)):
            name = f"{of}{k}"
            d.kinds[name] = str(kind)
            table[name] = column(rng, rows, kind)
            named.append(name)
        if named:
            d.options[option] = named
    for name, option in (
        ("weight", "edge_weight"),
        ("attr", "edge_attr"),
        ("target", "edge_label"),
    ):
        if rng.random() < 0.3:
            d.kinds[name] = "float"
            d.edges[name] = with_holes(rng, column(rng, e, "float"), name == "target")
            d.options[option] = name
    d.options["scale"] = "none"
    if features:
        d.options["features"] = features
        d.options["scale"] = str(rng.choice(["none", "standard"]))
    if missing:
        d.options["missing"] = missing
        d.options["missing_indicator"] = bool(rng.random() < 0.5)
    return d


def ids(rng: Rng, n: int, kind: str) -> list[Any]:
    """Different ids."""
    if kind == "long":
        wide = int(rng.choice([8, 31, 62]))
        values = {int(x) for x in rng.integers(-(2**wide), 2**wide, 3 * n)}
        values |= {2**63 - 1} if rng.random() < 0.2 else set()
        values |= set(BEYOND) if rng.random() < 0.2 else set()
    else:
        values = {f"{rng.choice(WORDS)}{i % 7 if i % 3 else ''}" for i in range(4 * n)}
        values |= {f"node {i}" for i in range(n)}
    return [list(values)[i] for i in rng.permutation(len(values))[:n]]


def column(rng: Rng, n: int, kind: str) -> list[Any]:
    """Values of a kind."""
    values: dict[str, Any] = {
        "float": lambda: float(rng.choice(FLOATS) if rng.random() < 0.5 else rng.standard_normal()),
        "int": lambda: int(rng.integers(-(2**24), 2**24)),
        "class": lambda: int(rng.integers(0, 3)),
        "long": lambda: int(rng.choice(EDGES) if rng.random() < 0.3 else rng.integers(-99, 99)),
        "beyond": lambda: BEYOND[rng.integers(4)] if rng.random() < 0.1 else int(rng.integers(99)),
        "bool": lambda: bool(rng.random() < 0.5),
        "date": lambda: EPOCH + datetime.timedelta(days=int(rng.integers(-40_000, 40_000))),
        "time": lambda: (
            datetime.datetime(1970, 1, 1)
            + datetime.timedelta(seconds=int(rng.integers(-(2**33), 2**33)))
        ),
        "text": lambda: str(rng.choice(WORDS)),
    }
    return [values[kind]() for _ in range(n)]


def with_holes(rng: Rng, values: list[Any], holes: bool) -> list[Any]:
    """Values of which some are missing, but not the first."""
    return [None if holes and i and rng.random() < 0.3 else x for i, x in enumerate(values)]


# ---- writing


def given(rng: Rng, table: dict[str, list[Any]], kinds: dict[str, str], path: Path) -> Any:
    """A table as a file or an object."""
    import pandas
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {**kinds, "src": kinds["id"], "dst": kinds["id"]}
    form = str(rng.choice(["text", "parquet", "arrow", "pandas", "numpy", "lists"]))
    if form == "lists":
        return table
    if form == "text":
        return as_text(rng, table, kinds, path)
    typed = pa.table({name: arrow(rng, x, kinds[name]) for name, x in table.items()})
    if form == "arrow":
        return typed
    if form == "pandas":
        return typed.to_pandas(types_mapper=pandas.ArrowDtype)
    if form == "numpy":
        return {name: with_mask(typed[name].combine_chunks()) for name in table}
    file = path.with_suffix(".parquet")
    pq.write_table(typed, file, row_group_size=int(rng.choice([1, 7, 1000])))
    return str(file)


def with_mask(column: Any) -> Any:
    """A column of numbers or texts as a masked array; another one as it is."""
    import pyarrow.types as types

    kind = column.type
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_string(kind)):
        return column
    values = column.to_pylist()
    known = [value for value in values if value is not None]
    filled = [known[0] if value is None and known else value for value in values]
    return np.ma.masked_array(np.array(filled), mask=[value is None for value in values])


def as_text(rng: Rng, table: dict[str, list[Any]], kinds: dict[str, str], path: Path) -> list[str]:
    """Text files of any separator, quotes and line ends, perhaps packed."""
    separator = str(rng.choice([",", "\t", ";", "|"]))
    words = [str(rng.choice(of)) for of in (TRUE, FALSE, MISSING)]
    spaces = ["", " "] if separator == "\t" else ["", " ", "\t", " \t"]
    suffix = str(rng.choice([".csv", ".csv.gz"]))
    rows = list(zip(*table.values(), strict=True))
    cuts = [0, *sorted(rng.integers(0, len(rows) + 1, rng.integers(0, 3))), len(rows)]
    files = []
    for k, (begin, end) in enumerate(pairwise(cuts)):
        files.append(f"{path}-{k}{suffix}")
        opened = gzip.open if suffix.endswith("gz") else open
        with opened(files[-1], "wt", encoding="utf-8", newline="") as f:
            f.write("\ufeff" if rng.random() < 0.2 else "")
            writer = csv.writer(
                f,
                delimiter=separator,
                quoting=csv.QUOTE_ALL if rng.random() < 0.3 else csv.QUOTE_MINIMAL,
                lineterminator=str(rng.choice(["\n", "\r\n"])),
            )
            writer.writerow(table)
            pads = spaces if rng.random() < 0.5 else [""]
            for row in rows[begin:end]:
                writer.writerow(
                    [
                        cell(x, kinds[name], words, str(rng.choice(pads)))
                        for name, x in zip(table, row, strict=True)
                    ]
                )
    return files


def cell(x: Any, kind: str, words: list[str], pad: str) -> str:
    """A value as text, which spaces around it are no part of; words stand for no number."""
    true, false, nothing = words
    if x is None:
        return nothing if kind in ("float", "int", "bool") else ""
    if isinstance(x, bool):
        return true if x else false
    text = repr(x) if isinstance(x, float) else str(x)
    return f"{pad}{text}{pad}"


def arrow(rng: Rng, values: list[Any], kind: str) -> Any:
    """A column of pyarrow, of one of the types that have such values."""
    import pyarrow as pa

    types = {
        "float": [pa.float64()],
        "int": [pa.int32(), pa.int64(), pa.float64()],
        "class": [pa.int8(), pa.uint8(), pa.int64()],
        "long": [pa.int64()],
        "beyond": [pa.int64()],
        "bool": [pa.bool_()],
        "date": [pa.date32(), pa.date64(), pa.timestamp("ms")],
        "time": [pa.timestamp("s"), pa.timestamp("us")],
        "text": [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())],
    }[kind]
    kept = types[rng.integers(len(types))]
    if pa.types.is_int64(kept) and any(x is not None and not -(2**63) <= x < 2**63 for x in values):
        kept = pa.decimal128(20, 0)
    if pa.types.is_dictionary(kept):
        return pa.array(values, pa.string()).dictionary_encode()
    # timestamps are not made of dates
    return pa.array(values, pa.date32() if kind == "date" else kept).cast(kept)


# ---- what the graph must have


def features(d: Drawn, first: Drawn) -> list[list[float]]:
    """Columns of x, each with a value for every node; what stands for missing values, scales and
    names are those of the first tables.
    """
    rules = d.options.get("missing", {})
    marks = []
    out = []
    for name in d.options.get("features", ()):
        rule, kind = rules.get(name), d.kinds[name]
        known = known_values(first, name)
        filled = [x if x is not None else instead(rule, known, kind) for x in d.nodes[name]]
        columns = numbers(filled, kind)
        if d.options["scale"] == "standard":
            pairs = zip(columns, numbers(known, kind), strict=True)
            columns = [standardised(values, of) for values, of in pairs]
        out += columns
        if rule and (rule == "own" or d.options["missing_indicator"]):
            marks.append([float(x is None) for x in d.nodes[name]])
    hot = []
    if name := d.options.get("one_hot"):
        rule = rules.get(name)
        names = {x for x in first.nodes[name] if x is not None} | (
            {OTHER} if rule == "own" else set()
        )
        stand = {"mode": lambda: most_frequent(known_values(first, name)), "own": lambda: OTHER}
        values = [x if x is not None or rule not in stand else stand[rule]() for x in d.nodes[name]]
        values = [OTHER if x not in names and x is not None else x for x in values]
        hot = [[float(x == name) for x in values] for name in sorted(names)]
        if rule and d.options["missing_indicator"]:
            marks.append([float(x is None) for x in d.nodes[name]])
    return [*out, *marks, *hot]


def known_values(d: Drawn, name: str) -> list[Any]:
    """Values of the training rows."""
    return [d.nodes[name][i] for i in training_rows(d) if d.nodes[name][i] is not None]


def standardised(values: list[float], of: list[float]) -> list[float]:
    """Values by the mean and the deviation of others; zeros if those do not differ."""
    mean = math.fsum(of) / len(of)
    deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in of) / len(of))
    constant = deviation <= 1e-12 * abs(mean)
    return [0.0 if constant else (x - mean) / deviation for x in values]


def training_rows(d: Drawn) -> list[int]:
    parts = d.nodes.get("part")
    return [i for i in range(len(d.nodes["id"])) if parts is None or parts[i] == "train"]


def most_frequent(values: list[Any]) -> Any:
    counts = Counter(values)
    return min(x for x in counts if counts[x] == max(counts.values()))


def instead(rule: str | None, known: list[Any], kind: str) -> Any:
    """What stands for a missing value: a value of the kind, a number, or None for zeros."""
    if rule == "mode":
        return most_frequent(known)
    if rule == "mean":
        days = [(x - EPOCH).days if kind == "date" else x for x in known]
        return float(math.fsum(days) / len(days))
    return None


def numbers(values: list[Any], kind: str) -> list[list[float]]:
    """The feature columns of a column."""
    if kind != "date":
        return [[0.0 if x is None else float(x) for x in values]]
    return [list(row) for row in zip(*map(of_date, values), strict=True)]


def of_date(x: Any) -> tuple[float, ...]:
    if x is None:
        return (0.0,) * 5
    days = x if isinstance(x, float) else float((x - EPOCH).days)
    date = EPOCH + datetime.timedelta(days=math.floor(days))
    angles = 2 * math.pi * date.weekday() / 7, 2 * math.pi * (date.month - 1) / 12
    return (days, *(f(angle) for angle in angles for f in (math.sin, math.cos)))


def check(graph: gt.Graph, d: Drawn, first: Drawn) -> None:
    """Compare a graph with the tables, and with the first ones where it is like those.

    Raises:
        AssertionError: A value is another one.
    """
    number = {x: i for i, x in enumerate(d.nodes["id"])}
    read = graph.original_ids.tolist()
    # integers beyond 64 bits are texts
    equal("ids", read, list(map(type(read[0]), d.nodes["id"])))
    order = np.asarray(graph.edge_columns["number"]).tolist()
    equal("edges", sorted(order), d.edges["number"])
    for end, read in (("src", graph.src), ("dst", graph.dst)):
        equal(end, read.tolist(), [number[d.edges[end][i]] for i in order])
    x = features(d, first)
    if x:
        near("x", graph.x, np.array(x).T)
    if "label" in d.nodes:
        check_label(graph, d.nodes["label"], d.kinds["label"], first.nodes["label"])
    if "part" in d.nodes:
        for mask in ("train", "val", "test"):
            equal(mask, getattr(graph, mask).tolist(), [p == mask for p in d.nodes["part"]])
    for name in d.options.get("node_columns", ()):
        check_named(graph, "node", name, (d.nodes[name], first.nodes[name]), d.kinds[name])
    for name in d.options.get("edge_columns", ()):
        values = [d.edges[name][i] for i in order]
        check_named(graph, "edge", name, (values, first.edges[name]), d.kinds[name])
    for name, read in (
        ("weight", graph.edge_weight),
        ("attr", graph.edge_attr),
        ("target", graph.edge_y),
    ):
        if name in d.edges:
            values = [d.edges[name][i] for i in order]
            near(name, read, [math.nan if v is None else v for v in values])


def check_label(graph: gt.Graph, values: list[Any], kind: str, first: list[Any]) -> None:
    if kind == "float":
        near("y", graph.y, [math.nan if v is None else v for v in values])
        return
    names = sorted({v for v in first if v is not None})
    code = dict(zip(names, range(len(names)), strict=True)) if kind == "text" else None
    equal(
        "y", graph.y.tolist(), [-1 if v is None else v if code is None else code[v] for v in values]
    )
    if code is not None:
        equal("class names", list(graph.class_names), names)


def check_named(graph: gt.Graph, of: str, name: str, both: tuple[Any, Any], kind: str) -> None:
    values, first = both
    columns = graph.node_columns if of == "node" else graph.edge_columns
    read = np.asarray(columns[name]).tolist()
    if kind == "text":
        names = graph.categories(of, name)
        equal(f"names of {name}", list(names), sorted(set(first)))
        equal(name, [names[i] for i in read], values)
    elif kind == "time":
        unit = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[graph.meta[f"{of}_units"][name]]
        seconds = [int((v - datetime.datetime(1970, 1, 1)).total_seconds()) for v in values]
        equal(name, read, [s * unit for s in seconds])
    else:
        equal(name, read, values)


def equal(what: str, read: list[Any], given: list[Any]) -> None:
    if read != given:
        at = next((i for i, (a, b) in enumerate(zip(read, given, strict=False)) if a != b), -1)
        raise AssertionError(f"{what}: {read[at : at + 1]!r} for {given[at : at + 1]!r}")


def near(what: str, read: Any, given: Any) -> None:
    """Compare numbers that float32 has."""
    given = np.asarray(given, np.float64)
    read = np.asarray(read.toarray() if hasattr(read, "toarray") else read[:]).reshape(given.shape)
    close = np.isclose(read, given.astype(np.float32), rtol=1e-6, atol=1e-6, equal_nan=True)
    if not close.all():
        at = tuple(np.argwhere(~close)[0])
        raise AssertionError(f"{what} at {at}: {read[at]} for {given[at]}")


# ---- the search


def imported(comm: Comm, edges: Any, nodes: Any, folder: str, options: dict[str, Any]) -> None:
    gt.import_graph(edges, nodes, to=folder, comm=comm, **options)


def one(seed: int) -> str:
    """Import tables and others like them, and compare; returns the words in which they were
    refused.
    """
    rng = np.random.default_rng(seed)
    first = drawn(rng)
    second = again(rng, first)
    id_type = {"id_type": "text"} if first.kinds["id"] == "text" else {}
    every = {**first.options, **id_type, "types": types_of(first)}
    with tempfile.TemporaryDirectory() as folder:
        stores = [str(Path(folder, name)) for name in ("first", "second")]
        options: list[dict[str, Any]] = [every, {"like": stores[0], "types": types_of(second)}]
        for d, store, how in zip((first, second), stores, options, strict=True):
            nodes, edges = (
                given(rng, table, d.kinds, Path(f"{store} {name}"))
                for name, table in (("nodes", d.nodes), ("edges", d.edges))
            )
            try:
                run_simulated(int(rng.integers(1, 4)), imported, edges, nodes, store, how)
            except GraphThetaError as error:
                return str(error)
            check(gt.load(store, split="stored"), d, first)
    return ""


def again(rng: Rng, d: Drawn) -> Drawn:
    """Other tables of the same columns, perhaps without labels; names may be new ones where an
    import like the first takes them.
    """
    n, e = int(rng.choice([1, 5, 30])), int(rng.choice([1, 50])) if d.edges["src"] else 0
    other = Drawn(options=d.options, kinds=d.kinds)
    classes = [x for x in d.nodes.get("label", ()) if x is not None]
    answers = ("label", "part") if rng.random() < 0.4 else ()
    rules = d.options.get("missing", {})
    for name, values in d.nodes.items():
        kind = d.kinds[name]
        if name == "id":
            other.nodes[name] = ids(rng, n, kind)
        elif name in answers:
            continue
        elif name == "label" and kind == "class":
            # others are bad rows
            other.nodes[name] = [classes[i] for i in rng.integers(0, len(classes), n)]
        elif kind == "text" and name != "name":
            other.nodes[name] = [values[i] for i in rng.integers(0, len(values), n)]
        else:
            other.nodes[name] = with_holes(rng, column(rng, n, kind), name in rules)
    if other.nodes.keys() >= {"label", "part"}:
        other.nodes["part"] = [
            None if label is None else part
            for label, part in zip(other.nodes["label"], other.nodes["part"], strict=True)
        ]
    for name, values in d.edges.items():
        kind = d.kinds.get(name, "")
        if name in ("src", "dst"):
            other.edges[name] = [other.nodes["id"][i] for i in rng.integers(0, n, e)]
        elif kind == "text":
            other.edges[name] = [values[i] for i in rng.integers(0, len(values), e)]
        else:
            other.edges[name] = list(range(e)) if name == "number" else column(rng, e, kind)
    return other


def types_of(d: Drawn) -> dict[str, str]:
    """Types of columns whose first values may look like others."""
    words = {"text": "text", "float": "float", "bool": "bool", "time": "time_s", "date": "time_s"}
    columns = {*d.nodes, *d.edges} - {"id"}
    return {
        name: words[kind] for name, kind in d.kinds.items() if kind in words and name in columns
    }


def search(numbers: range) -> seeds.Outcomes:
    """How many tables were accepted and refused, and the faults."""
    return seeds.outcomes(numbers, one)


if __name__ == "__main__":
    sys.exit(seeds.main(__doc__, "tables", 300, search))
