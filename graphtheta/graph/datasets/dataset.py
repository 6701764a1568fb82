"""Loading graphs by name or path, with splits.

A name may carry options: ``rmat:scale=17,edge_factor=8`` or ``mol_tox21:hide=degree+ring``. The
same options can be given as keyword arguments of :func:`load`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from graphtheta.base.arguments import checked
from graphtheta.base.described import each_once
from graphtheta.base.private import user_folder
from graphtheta.errors import ConfigError, FormatError
from graphtheta.graph.data.arrays import EDGE_MASKS, NODE_MASKS
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.datasets import builder, generate, whole
from graphtheta.graph.datasets.heterogeneous import heterogeneous
from graphtheta.graph.datasets.reader_npz import read_npz
from graphtheta.graph.datasets.reader_planetoid import read_planetoid
from graphtheta.graph.datasets.sources import FACTS
from graphtheta.graph.splits.nodes import split_nodes
from graphtheta.graph.splits.several import choose_split
from graphtheta.graph.splits.times import split_by_time
from graphtheta.graph.store.manifest import is_store
from graphtheta.graph.store.reader import read_store

DATA_VARIABLE = "GRAPHTHETA_DATA"
BESIDE = Path("..", "shared", "data")


@dataclass(frozen=True)
class Entry:
    """A named graph.

    Attributes:
        about: One line for listings.
        build: Makes the graph of a file; called with its path and options. That of a generated
            graph is called with options, and returns the arguments of ``Graph``.
        file: File in the data folder; None for a generated graph.
        options: Its own options and their types.
        split: The split that ``split="auto"`` chooses.
        per_class: Arguments of :func:`graphtheta.graph.splits.nodes.class_split` for
            ``split="random"``.
        common: Defaults of the common options, where they are not "as stored".
        seeded: Whether ``build`` makes the split, and takes its seed.
    """

    about: str
    build: Callable[..., Any]
    file: str | None = None
    options: dict[str, type] = field(default_factory=dict)
    split: str = "public"
    per_class: dict[str, int] = field(default_factory=dict)
    common: dict[str, Any] = field(default_factory=dict)
    seeded: bool = False


PLANETOID: dict[str, Any] = {
    "per_class": {"train_per_class": 20, "n_val": 500, "n_test": 1000},
    "common": {"normalise_features": "row"},
}
PITFALLS: dict[str, Any] = {
    "split": "random",
    "per_class": {"train_per_class": 20, "val_per_class": 30},
    "common": {"symmetric": True, "largest_component": True},
}
FEATURES: dict[str, type] = {"features": int}

ENTRIES: dict[str, Entry] = {
    "sbm": Entry(
        "stochastic block model, features and edge attributes depend on the block; the default job",
        generate.sbm,
        options={
            "n_nodes": int,
            "n_edges": int,
            "classes": int,
            "features": int,
            "edge_features": int,
            "inside": float,
            "signal": float,
            "edge_signal": float,
            "skew": float,
            "graph_seed": int,
        },
    ),
    "rmat": Entry(
        "R-MAT, heavy hubs",
        generate.rmat,
        options={
            "scale": int,
            "edge_factor": int,
            "features": int,
            "classes": int,
            "edge_features": int,
            "a": float,
            "b": float,
            "c": float,
            "directed": bool,
            "graph_seed": int,
        },
    ),
    "ring": Entry(
        "nodes in a circle", generate.ring, options={"n": int, "features": int, "graph_seed": int}
    ),
    "star": Entry(
        "one hub and its leaves",
        generate.star,
        options={"n": int, "features": int, "graph_seed": int},
    ),
    "cora": Entry("citations, 7 classes, public split", builder.plain, "cora.npz", **PLANETOID),
    "citeseer": Entry(
        "citations, 6 classes, public split", builder.plain, "citeseer.npz", **PLANETOID
    ),
    "pubmed": Entry("citations, 3 classes, public split", builder.plain, "pubmed.npz", **PLANETOID),
    "amazon_photo": Entry(
        "co-purchases, 8 classes", builder.bag_of_words, "amazon_photo.npz", **PITFALLS
    ),
    "amazon_computers": Entry(
        "co-purchases, 10 classes", builder.bag_of_words, "amazon_computers.npz", **PITFALLS
    ),
    "coauthor_cs": Entry(
        "co-authors, 15 classes", builder.bag_of_words, "coauthor_cs.npz", **PITFALLS
    ),
    "mol_tox21": Entry(
        "145,459 atoms: which element? level=graphs: 7,831 molecules, 12 assays",
        whole.molecules,
        "mol_tox21.npz",
        {"level": str, "hide": str},
    ),
    "mol_hiv": Entry(
        "1,049,163 atoms: which element? level=graphs: 41,127 molecules, active or not",
        whole.molecules,
        "mol_hiv.npz",
        {"level": str, "hide": str},
    ),
    "tu_mutag": Entry(
        "188 molecules: mutagenic or not, ten folds", whole.chemical, "tu_mutag.npz", {"fold": int}
    ),
    "tu_proteins": Entry(
        "1,113 proteins: enzyme or not, ten folds", whole.chemical, "tu_proteins.npz", {"fold": int}
    ),
    "traffic_chicago_regional": Entry(
        "roads: flow of each link (edge regression), split by region",
        builder.traffic,
        "traffic_chicago_regional.npz",
        {"target": str, "coordinates": bool, "regions": int},
        seeded=True,
    ),
    "bitcoin_otc": Entry(
        "trust ratings over time (edge regression or sign)",
        builder.ratings,
        "bitcoin_otc.npz",
        {"target": str},
    ),
    "fb15k_237": Entry(
        "237 relations (link prediction)",
        builder.knowledge,
        "fb15k_237.npz",
        {"features": int, "relations": str},
    ),
    "wn18rr": Entry(
        "11 relations (link prediction)",
        builder.knowledge,
        "wn18rr.npz",
        {"features": int, "relations": str},
    ),
    "hetero_acm": Entry(
        "papers, authors and subjects: field of each paper",
        heterogeneous,
        "hetero_acm.npz",
        {"labels": int, "inverse": bool},
    ),
    "hetero_movielens100k": Entry(
        about="users, movies and ratings, without labels",
        build=heterogeneous,
        file="hetero_movielens100k.npz",
        options={"labels": int, "inverse": bool},
        split="none",
    ),
    "graphchallenge_sbm_50k": Entry(
        about="50,000 nodes in 44 known blocks",
        build=builder.topology,
        file="graphchallenge_sbm_50k.npz",
        options=FEATURES,
        split="random",
    ),
    "biogrid_all": Entry(
        about="protein interactions, topology only",
        build=builder.topology,
        file="biogrid_all.npz",
        options=FEATURES,
        split="none",
    ),
    "cnr_2000": Entry(
        about="web crawl, topology only, directed",
        build=builder.topology,
        file="cnr_2000.npz",
        options=FEATURES,
        split="none",
    ),
    "road_usa_bay": Entry(
        about="roads, topology only, huge diameter",
        build=builder.topology,
        file="road_usa_bay.npz",
        options=FEATURES,
        split="none",
    ),
    "facebook100": Entry(
        about="89 college networks, 66,596,166 edges: year or gender",
        build=builder.colleges,
        file="facebook100_packed.npz",
        options={"target": str, "colleges": int},
        split="fraction",
    ),
}

# options that every graph has
PREPARING = ("symmetric", "largest_component", "self_loops", "normalise_features")
# any graph without an entry
FILE = Entry("a file", read_npz)


@checked
def load(
    name_or_path: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    split: str | None = None,
    seed: int = 0,
    symmetric: bool | str | None = None,
    largest_component: bool | str | None = None,
    self_loops: bool | str | None = None,
    normalise_features: bool | str | None = None,
    split_index: int = 0,
    **options: Any,
) -> Graph:
    """Load a graph by name, from an npz file, from a store, or from original Planetoid files.

    Args:
        name_or_path: A name of :func:`names`, an npz file, a store, a folder of Planetoid files or
            one of these; followed by options as ``:key=value,key=value`` if wanted.
        data_dir: Folder of the named files; by default ``$GRAPHTHETA_DATA``, else
            ``../shared/data`` beside the current folder or beside the repository, or the folder of
            ``graphtheta download``.
        split: ``"public"`` (the graph's own masks), ``"stored"`` (the same, or none), ``"random"``
            (a fixed number of each class), ``"fraction"`` (60/20/20 %), ``"none"`` (no masks), or
            ``"auto"``: the default of a named graph; for a file its own masks, else fraction if it
            has labels. By default as auto, but a file without masks has none, as ``gt.Graph``.
        seed: Seed of random splits. The graph itself does not depend on it (generated graphs have
            ``graph_seed``).
        symmetric: Add missing reverse edges. This and the next three options are True, False, or
            None for the default: as stored, or the published protocol of a named graph. ``"yes"``,
            ``"no"`` and ``"auto"`` mean the same.
        largest_component: Keep the largest component only.
        self_loops: True adds the missing self loops, False drops all.
        normalise_features: True or ``"row"`` scales rows to sum 1; ``"standard"`` standardises
            columns over training nodes, those of a type of nodes over this type.
        split_index: Which split to use, if the graph comes with several; ``split="stored"`` keeps
            all.
        **options: Options of the named graph, and ``train_per_class``, ``val_per_class`` for
            random splits (0 is the default).

    Returns:
        The graph.

    Raises:
        ConfigError: Unknown name, option or value; the message lists the known ones.
        FormatError: A file is missing or unreadable.
        ShapeError, DataError: Its arrays do not make a graph.
    """
    given = {
        **options,
        "symmetric": symmetric,
        "largest_component": largest_component,
        "self_loops": self_loops,
        "normalise_features": normalise_features,
        "split": split,
        "split_index": split_index or None,
    }
    name, options = parse(name_or_path, given)
    # a job has a seed of its own
    return loaded(name, {"seed": seed, **options}, data_dir)


def loaded(
    name: str, options: Mapping[str, Any], data_dir: str | os.PathLike[str] | None = None
) -> Graph:
    """The graph of a name or path.

    Args:
        name: Name or path, without options.
        options: All options of :func:`load`, as values or as words.
        data_dir: As of ``load``.
    """
    options = dict(options)
    sizes = [k for k in ("train_per_class", "val_per_class") if options.get(k)]
    per_class = class_counts(name, options)
    common = {k: options.pop(k, None) for k in PREPARING}
    chosen = options.pop("split", None)
    split = "auto" if chosen is None else str(chosen)
    seed = convert(name, "seed", options.pop("seed", 0), int)
    split_index = convert(name, "split_index", options.pop("split_index", None) or 0, int)
    entry = ENTRIES.get(name)
    if entry is None:
        graph = read_path(name, data_dir, options)
        entry = FILE
        has_split = graph.train is not None or graph.edge_train is not None
        usual = (
            "public"
            if has_split
            else "fraction"
            if graph.y is not None and chosen is not None
            else "none"
        )
    else:
        graph = build(name, entry, data_dir, seed, options)
        usual = entry.split
    choices = {k: entry.common.get(k) if v in (None, "auto") else v for k, v in common.items()}
    graph = prepare(graph, choices)
    split = usual if split == "auto" else split
    if sizes and split != "random":
        raise ConfigError(
            f"{name}: {sizes[0]} has no meaning with the split '{split}'; choose split='random'"
            " (--split random)"
        )
    if split_index and split != "public":
        raise ConfigError(
            f"{name}: split_index has no meaning with the split '{split}'; drop it, or choose"
            " split='public'"
        )
    return scale(
        with_masks(graph=graph, split=split, index=split_index, seed=seed, per_class=per_class),
        choices["normalise_features"],
    )


def preparation(name_or_path: str | os.PathLike[str], **given: Any) -> dict[str, str]:
    """How :func:`load` prepares a graph: its options that prepare another graph alike, as words.

    Args:
        name_or_path: As of ``load``.
        **given: The options "symmetric", "self_loops" and "normalise_features" of ``load``.
    """
    name, options = parse(name_or_path, given)
    usual = ENTRIES.get(name, FILE).common
    chosen = {
        key: usual.get(key) if options.get(key) in (None, "auto") else options[key]
        for key in ("symmetric", "self_loops", "normalise_features")
    }
    scaling = chosen["normalise_features"]
    if scaling not in ("row", "standard"):
        scaling = "row" if flag("normalise_features", scaling) else "none"
    loops = flag("self_loops", chosen["self_loops"])
    return {
        "symmetric": "yes" if flag("symmetric", chosen["symmetric"]) else "no",
        "normalise_features": scaling,
        **({} if loops is None else {"self_loops": "yes" if loops else "no"}),
    }


def with_masks(graph: Graph, split: str, index: int, seed: int, per_class: dict[str, int]) -> Graph:
    """The graph with the masks of a split; ``index`` says which of several."""
    if split == "stored":
        return graph
    if split == "none":
        return graph.replace(**dict.fromkeys((*NODE_MASKS, *EDGE_MASKS)))
    if split == "time":
        return split_by_time(graph)
    return choose_split(split_nodes(graph, split, seed, per_class), index)


def class_counts(name: str, options: dict[str, Any]) -> dict[str, int]:
    """Sizes of a random split: the defaults, replaced by those in ``options`` that are not 0."""
    sizes = dict(ENTRIES.get(name, FILE).per_class)
    for key in ("train_per_class", "val_per_class"):
        count = convert(name, key, options.pop(key, None) or 0, int)
        if count < 0:
            raise ConfigError(f"{name}: {key} must not be negative, got {count}")
        if count:
            sizes[key] = count
            if key == "val_per_class":
                sizes.pop("n_val", None)
    return sizes


def build(
    name: str,
    entry: Entry,
    data_dir: str | os.PathLike[str] | None,
    seed: int,
    options: dict[str, Any],
) -> Graph:
    """Make a named graph with its own options."""
    check_options(name, options, entry.options)
    arguments = {k: convert(name, k, v, entry.options[k]) for k, v in options.items()}
    if entry.file is not None:
        graph: Graph = entry.build(
            find_file(name, entry.file, data_dir),
            **arguments,
            **({"seed": seed} if entry.seeded else {}),
        )
        return graph
    if "graph_seed" in arguments:
        arguments["seed"] = arguments.pop("graph_seed")
    if "directed" in arguments:
        arguments["symmetric"] = not arguments.pop("directed")
    return Graph(**entry.build(**arguments), name=name, where=name)


def prepare(graph: Graph, choices: dict[str, Any]) -> Graph:
    """Directions, component and self loops, as chosen."""
    if flag("symmetric", choices["symmetric"]):
        graph = graph.symmetrised()
    if flag("largest_component", choices["largest_component"]):
        graph = graph.largest_component()
    loops = flag("self_loops", choices["self_loops"])
    if loops is None:
        return graph
    return graph.with_self_loops() if loops else graph.without_self_loops()


def scale(graph: Graph, how: Any) -> Graph:
    """Scale the node features, as chosen."""
    if how in ("row", "standard"):
        return (
            graph.with_row_normalised_features()
            if how == "row"
            else graph.with_standardised_features()
        )
    return graph.with_row_normalised_features() if flag("normalise_features", how) else graph


def flag(name: str, value: Any) -> bool | None:
    """True, False, or None where no choice is made."""
    words = {"yes": True, "true": True, "no": False, "false": False, "none": False}
    value = words.get(value.lower(), value) if isinstance(value, str) else value
    if value is None or isinstance(value, bool):
        return value
    more = ", row or standard" if name == "normalise_features" else ""
    raise ConfigError(f"{name} must be yes, no or auto{more}, got {value!r}")


def parse(
    name_or_path: str | os.PathLike[str], options: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Split ``name:key=value,...`` into the name and all options; a path that exists is taken
    whole.

    Args:
        name_or_path: The text.
        options: Options that are given beside it; None and "auto" choose nothing.

    Raises:
        ConfigError: An option is not of this form, is given twice, or has another value in
            ``options``.
    """
    text = os.fspath(name_or_path)
    name, colon, rest = text.partition(":")
    if not colon or os.path.exists(text):
        return text, dict(options)
    items = list(filter(None, rest.split(",")))
    for item in items:
        if "=" not in item:
            raise ConfigError(
                f"{text}: '{item}' is not key=value; write {name}:key=value,key=value"
            )
    pairs = [item.partition("=")[::2] for item in items]
    written = each_once(
        [(key.strip(), value.strip()) for key, value in pairs],
        f"{text}: the option {{}} is given twice; drop one of them",
    )
    for key, value in written.items():
        other = options.get(key)
        if other not in (None, "auto") and as_word(other) != as_word(value):
            raise ConfigError(
                f"{text}: the dataset has {key}={value}, but {key}={other} is given, too; drop one"
                " of them"
            )
    return name, options | written


def as_word(value: Any) -> str:
    """The value of an option in the word by which texts write it."""
    word = str(value).lower()
    return {"true": "yes", "false": "no"}.get(word, word)


def convert(name: str, key: str, value: Any, kind: type) -> Any:
    """An option's value in its type."""
    if kind is bool:
        choice = flag(key, value)
        if choice is None:
            raise ConfigError(f"{name}: {key} must be yes or no, got {value!r}")
        return choice
    try:
        if kind is int and isinstance(value, (float, bool)):
            raise ValueError
        converted = kind(value)
        if kind is float and not isfinite(converted):
            raise ValueError
        return converted
    except (TypeError, ValueError):
        words = {int: "a whole number", float: "a finite number", str: "text"}
        raise ConfigError(f"{name}: {key} must be {words[kind]}, got {value!r}") from None


def check_options(name: str, options: Iterable[str], kinds: dict[str, type]) -> None:
    """All options are known."""
    for option in options:
        if option not in kinds:
            has = f"it has {', '.join(kinds)}" if kinds else "it has no options"
            raise ConfigError(f"{name} has no option '{option}'; {has}")


def data_dirs(data_dir: str | os.PathLike[str] | None) -> list[Path]:
    """Folders to look for named files in, first the one to prefer."""
    stated = data_dir or os.environ.get(DATA_VARIABLE)
    if stated:
        return [Path(stated)]
    beside = Path(os.path.normpath(Path(__file__).resolve().parents[3] / BESIDE))
    own = user_data()
    return [BESIDE, beside, *([] if own is None else [own])]


def user_data() -> Path | None:
    """The data folder in the cache folder of this user; None for a user without a home."""
    try:
        return user_folder().absolute() / "data"
    except RuntimeError:
        return None


def download_folder(data_dir: str | os.PathLike[str] | None) -> Path:
    """The folder that downloads go to.

    Raises:
        ConfigError: None is stated, and the user has no home.
    """
    stated = data_dir or os.environ.get(DATA_VARIABLE)
    folder = Path(stated) if stated else user_data()
    if folder is None:
        raise ConfigError(f"this user has no home folder; set {DATA_VARIABLE} to a folder for data")
    return folder


def find_file(name: str, file: str, data_dir: str | os.PathLike[str] | None) -> Path:
    """The file of a named graph."""
    folders = data_dirs(data_dir)
    for folder in folders:
        if (folder / file).is_file():
            return folder / file
    elsewhere = "" if FACTS[name].files else " --from URL_OR_FOLDER"
    there = f" --data-dir {shlex.quote(os.fspath(data_dir))}" if data_dir else ""
    raise ConfigError(
        f"{name}: {file} is not in {' or '.join(map(str, folders))}; get it with: graphtheta"
        f" download {name}{elsewhere}{there}; or set {DATA_VARIABLE} or data_dir to the folder"
        f" that has it, or use a generated graph ({', '.join(generated())})"
    )


def read_path(name: str, data_dir: str | os.PathLike[str] | None, options: dict[str, Any]) -> Graph:
    """A graph from a path, or from a file of the data folder that has no entry."""
    check_options(name, options, {})
    path = Path(name)
    if not path.exists() and os.sep not in name:
        path = next(
            (
                folder / f"{name}.npz"
                for folder in data_dirs(data_dir)
                if (folder / f"{name}.npz").is_file()
            ),
            path,
        )
    if is_store(path):
        return read_store(path)
    if path.is_dir() or (path.name.startswith("ind.") and path.exists()):
        return read_planetoid(path)
    if path.exists() or path.suffix == ".npz":
        return read_npz(path)
    if path.suffix or path.name != name:
        raise FormatError(
            f"{path}: the file or folder does not exist; check the path, or make a store there:"
            " graphtheta import --help"
        )
    here = sorted(
        {
            file.stem
            for folder in data_dirs(data_dir)
            if folder.is_dir()
            for file in folder.glob("*.npz")
        }
    )
    raise ConfigError(
        f"there is no dataset or file {name!r}; generated: {', '.join(generated())}; "
        f"in {' or '.join(map(str, data_dirs(data_dir)))}: {', '.join(here) or 'nothing'}"
    )


def generated() -> list[str]:
    """Names of the generated graphs, which need no file."""
    return [name for name, entry in ENTRIES.items() if entry.file is None]


def names() -> dict[str, str]:
    """All names that :func:`load` knows, with one line about each."""
    return {name: entry.about for name, entry in ENTRIES.items()}
