"""The job: every choice of a run, under the same keys in Python, in a YAML file and as flags.

The fields below are the only list of keys there is. The text under a field is its line in ``--help``, and a value is
checked by the same code wherever it comes from.
"""
from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from graphtheta.errors import ConfigError, FormatError

ALL_NEIGHBOURS = -1
LINK_METRICS = ("mrr", "hits1", "hits3", "hits10")
# a key that only one value of another key makes use of
NEEDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "batch_size": ("strategy", ("mini",)),
    "fanout": ("strategy", ("mini",)),
    "replace": ("strategy", ("mini",)),
    "share_sample": ("strategy", ("mini",)),
    "clusters": ("strategy", ("cluster",)),
    "clusters_per_batch": ("strategy", ("cluster",)),
    "cluster_method": ("strategy", ("cluster",)),
    "boundary_hops": ("strategy", ("cluster",)),
    "diagonal": ("strategy", ("cluster",)),
    "degrees": ("strategy", ("cluster",)),
    "views_in_flight": ("strategy", ("mini", "cluster")),
    "views_per_step": ("strategy", ("mini", "cluster")),
    "precompute": ("strategy", ("global", "mini")),
    "halo": ("dtype", ("float32",)),
    "momentum": ("optimiser", ("sgd",)),
    "negatives": ("task", ("link", "auto")),
    "eval_negatives": ("task", ("link", "auto")),
    "decoder": ("task", ("link", "auto")),
}
# what pydantic found, in the words of the user
EXPECTED = {
    "int_parsing": "a whole number", "int_type": "a whole number", "int_from_float": "a whole number",
    "float_parsing": "a number", "float_type": "a number", "finite_number": "a finite number",
    "bool_parsing": "true or false", "bool_type": "true or false", "string_type": "text",
    "greater_than_equal": "at least {ge}", "greater_than": "more than {gt}", "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
}


class Keys(BaseModel):
    """A section of keys; its title is its docstring."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class DataKeys(Keys):
    """Data"""

    dataset: str = "sbm"
    """Embedded graph (sbm, rmat, ring, star), a named one (cora, ...), an npz file or a folder of Planetoid files; options
    follow as rmat:scale=17,edge_factor=8."""
    data_dir: str = ""
    """Folder of the named files; by default that in the environment variable GRAPHTHETA_DATA."""
    split: Literal["auto", "public", "random", "fraction", "none"] = "auto"
    """Who trains, validates and tests: the split that comes with the data, equally many of each class, or random shares; auto is the
    usual one of the dataset."""
    train_per_class: int = Field(0, ge=0)
    """Training nodes of each class in a random split; 0 is as usual for the dataset, mostly 20."""
    val_per_class: int = Field(0, ge=0)
    """Validation nodes of each class in a random split; 0 is as usual for the dataset, mostly 30."""
    self_loops: Literal["auto", "yes", "no"] = "auto"
    """Add missing self loops (yes), drop all (no), or leave them as they are."""
    symmetric: Literal["auto", "yes", "no"] = "auto"
    """Add missing reverse edges; auto is as usual for the dataset."""
    largest_component: Literal["auto", "yes", "no"] = "auto"
    """Keep only the largest connected component; auto is as usual for the dataset."""
    normalise_features: Literal["auto", "none", "row", "standard"] = "auto"
    """Node features: each node adds up to 1 (row), or each feature has mean 0 and deviation 1 over the training nodes (standard)."""


class ModelKeys(Keys):
    """Model"""

    model: str = "gcn"
    """A published model (gcn, sage, gin, gat, gat_e, gipa), or your own as FILE.py:Class."""
    layers: int = Field(2, ge=1)
    """Number of supersteps, and so of hops."""
    hidden: int = Field(16, ge=1)
    """Width of the hidden layers; of each head for attention models."""
    heads: int = Field(8, ge=1)
    """Attention heads of the hidden layers."""
    out_heads: int = Field(1, ge=1)
    """Attention heads of the last layer."""
    dropout: float = Field(0.5, ge=0, lt=1)
    """Share of the inputs of each layer set to zero in training."""
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    """Share of the attention weights set to zero in training."""
    residual: bool = False
    """Add the input of a hidden layer to its output."""
    norm: Literal["none", "batch", "layer"] = "none"
    """Normalisation after each hidden layer; batch uses the statistics over all workers."""
    jumping: Literal["none", "concat", "max"] = "none"
    """Jumping knowledge: the decoder sees the outputs of all layers."""
    aggregator: Literal["mean", "max", "sum"] = "mean"
    """How GraphSAGE combines messages."""
    activation: Literal["auto", "relu", "elu", "leaky_relu", "tanh", "gelu"] = "auto"
    """Activation between layers; auto is what the model was published with."""
    feature_dropout: float = Field(0.0, ge=0, lt=1)
    """Share of the projected features set to zero in messages (gat, gat_e, gipa)."""
    edge_drop: float = Field(0.0, ge=0, lt=1)
    """Share of the edges taken out of each step (gipa)."""
    normalisation: Literal["sym", "row"] = "sym"
    """How gcn divides by degrees: by the roots of both ends, or by that of the receiving end."""
    separate: bool = False
    """The gat of DistGNN-MB: own weights for the two ends, bias and activation before the attention."""
    train_eps: bool = False
    """Learn the weight of the node itself (gin)."""
    reduce: Literal["sum", "mean", "max"] = "sum"
    """How gipa combines weighted messages."""
    direction: Literal["in", "out", "both"] = "in"
    """Which edges carry messages: those that come in, those that go out, or both."""
    decoder: Literal["dot", "hadamard"] = "dot"
    """How the score of a link is made from its two ends."""


class StrategyKeys(Keys):
    """Strategy"""

    strategy: Literal["global", "mini", "cluster"] = "global"
    """What one step computes: all nodes, a batch of target nodes with their neighbourhoods, or a set of clusters."""
    batch_size: int = Field(0, ge=0)
    """Target nodes of a mini-batch, over all workers together; 0 takes all training nodes."""
    fanout: tuple[int, ...] = ()
    """Neighbours sampled for each node, one number per layer from the targets outwards, such as 10,10; all keeps all.
    Without it nothing is sampled."""
    replace: bool = False
    """Sample with replacement."""
    share_sample: bool = False
    """Draw one sample for all layers, so that edge values can be carried from layer to layer; needs equal fanouts."""
    clusters: int = Field(0, ge=0)
    """Number of clusters; 0 leaves it to louvain."""
    clusters_per_batch: int = Field(1, ge=1)
    """Clusters computed together in one step; edges between them are kept."""
    cluster_method: str = "louvain"
    """louvain, metis, or a .npy file with one cluster number per node."""
    boundary_hops: int = Field(0, ge=0, le=2)
    """Hops around the clusters of a step that are computed with them."""
    degrees: Literal["graph", "view"] = "graph"
    """Normalise by degrees in the whole graph or in the part that a step computes."""
    diagonal: float = Field(0.0, allow_inf_nan=False)
    """Diagonal enhancement of Cluster-GCN, its lambda; 0 is off."""


class PartitionKeys(Keys):
    """Partition"""

    partitioner: Literal["1d-src", "1d-dst", "vertex-cut"] = "1d-src"
    """Which worker keeps an edge: that of its source, that of its destination, or one on a grid."""
    masters: Literal["hash", "block"] = "hash"
    """Which worker owns a node: by hash, or in contiguous blocks of the numbering."""


class ComputeKeys(Keys):
    """Computing"""

    backend: Literal["fused", "reference"] = "fused"
    """How messages are computed: compiled loops, or plain NumPy, which is slow and easy to follow."""
    views_in_flight: int = Field(1, ge=1, le=64)
    """Views each worker has under way at a time: one computes while others wait for messages. Results are the same for any number."""
    precompute: bool = False
    """Sum the features of neighbours once and not in every step; for node tasks whose first layer sums features over whole
    neighbourhoods, such as gcn, sage and gin without dropout of the features."""
    recompute: bool = False
    """Make values of the layers again in backward instead of keeping them: memory grows with the root of the depth, for the time of
    a second forward pass."""
    halo: Literal["exact", "bf16"] = "exact"
    """How values travel between workers in training: as they are, or wide ones in 16 bits (bf16), which halves the bytes and makes results
    depend on the number of workers by rounding."""


class TrainKeys(Keys):
    """Training"""

    task: Literal["auto", "node", "link", "edge"] = "auto"
    """Classify or regress nodes, predict links, or predict edge targets; auto takes what the data has labels for."""
    metric: Literal["auto", "accuracy", "f1_micro", "f1_macro", "auc", "mrr", "hits1", "hits3", "hits10", "mae", "rmse", "r2"] = "auto"
    """What the best model is chosen by on the validation set."""
    epochs: int = Field(100, ge=0)
    """Passes over the training set."""
    steps: int = Field(0, ge=0)
    """Number of parameter updates to stop after, instead of epochs."""
    views_per_step: int = Field(1, ge=1)
    """Views whose gradients are summed for one update of the parameters."""
    staleness: int = Field(0, ge=0)
    """Updates that a view misses: it computes with the parameters from so many steps before, so that it need not wait for the last; 0
    is synchronous training."""
    lr: float = Field(0.01, gt=0, allow_inf_nan=False)
    """Learning rate."""
    optimiser: Literal["adam", "adamw", "sgd"] = "adam"
    """Optimiser."""
    momentum: float = Field(0.0, ge=0, lt=1)
    """Momentum of sgd."""
    weight_decay: float = Field(5e-4, ge=0, allow_inf_nan=False)
    """L2 penalty; decoupled in adamw."""
    decay_first_layer_only: bool = False
    """Put the penalty on the first layer only, as the original GCN does."""
    negatives: int = Field(1, ge=1)
    """Links that do not exist drawn for each that does, in training."""
    eval_negatives: int = Field(50, ge=1)
    """The same for validation and testing; the draws are fixed."""
    patience: int = Field(0, ge=0)
    """Stop after this many evaluations without a better validation metric; 0 is off."""
    eval_every: int = Field(1, ge=1)
    """Epochs between two evaluations."""
    seed: int = Field(0, ge=0)
    """Seed of everything random."""
    seeds: int = Field(1, ge=1)
    """Repeat the run with this many consecutive seeds and report mean and spread."""
    dtype: Literal["float32", "float64"] = "float32"
    """Precision of all numbers."""


class OutputKeys(Keys):
    """Output"""

    out: str = ""
    """Folder for results; by default runs/DATASET-MODEL-STRATEGY, replaced by the next run of that name."""
    save_predictions: bool = False
    """Write predictions of all nodes, under their original ids, at the end."""
    trace: bool = False
    """Leave a timeline of all workers in trace.json: stages, waiting, moves and tasks, for ui.perfetto.dev or chrome://tracing."""
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    """How much the log tells."""


SECTIONS: tuple[type[Keys], ...] = (DataKeys, ModelKeys, StrategyKeys, PartitionKeys, ComputeKeys, TrainKeys, OutputKeys)


class Job(OutputKeys, TrainKeys, ComputeKeys, PartitionKeys, StrategyKeys, ModelKeys, DataKeys):
    """All choices of a run; every key has a default, and no key can be changed afterwards.

    Example:
        >>> job = Job(dataset="sbm", strategy="mini", batch_size=140, fanout="10,10")
        >>> job.change(seed=1).seed
        1

    Raises:
        ConfigError: A key is unknown, a value is not allowed, or two keys do not fit together.
    """

    def __init__(self, **values: Any):
        for key in values:
            if key not in Job.model_fields:
                raise ConfigError(f"there is no key '{key}'{did_you_mean(key, Job.model_fields)}; all keys: graphtheta train --help")
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError("\n".join(explain(e) for e in error.errors(include_url=False))) from None

    @field_validator("fanout", mode="before")
    @classmethod
    def _read_fanout(cls, value: Any) -> Any:
        items = value.replace(" ", "").split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple)) else [value]
        items = [ALL_NEIGHBOURS if item == "all" else item for item in items if item != ""]
        if any(str(item).lstrip("-").isdigit() is False or int(item) < ALL_NEIGHBOURS or int(item) == 0 for item in items):
            raise ValueError("expected numbers of at least 1, or all, separated by commas, such as 10,10")
        return tuple(int(item) for item in items)

    @field_validator("cluster_method")
    @classmethod
    def _check_method(cls, value: str) -> str:
        if value not in ("louvain", "metis") and not value.endswith(".npy"):
            raise ValueError(f"expected louvain, metis or a .npy file{did_you_mean(value, ('louvain', 'metis'))}")
        return value

    @field_validator("dataset", "model")
    @classmethod
    def _refuse_empty(cls, value: str) -> str:
        if not value:
            raise ValueError("expected a name")
        return value

    @model_validator(mode="after")
    def _check_together(self) -> Job:
        for key, (other, values) in NEEDS.items():
            if getattr(self, key) != Job.model_fields[key].default and getattr(self, other) not in values:
                raise ConfigError(f"{key}={self.as_text(key)} has no meaning with {other}={getattr(self, other)}, only with "
                                  f"{' or '.join(values)}; drop {flag(key)} or give {flag(other)} {values[0]}")
        if len(self.fanout) not in (0, 1, self.layers) and ":" not in self.model:
            raise ConfigError(f"fanout={self.as_text('fanout')} has {len(self.fanout)} numbers and layers={self.layers}; "
                              f"give one number per layer, or one for all")
        for key in ("replace", "share_sample"):
            if getattr(self, key) and not self.fanout:
                raise ConfigError(f"{key} is about sampling and nothing is sampled; give --fanout, or drop {flag(key)}")
        if self.precompute and self.fanout:
            raise ConfigError("precompute sums whole neighbourhoods and fanout samples them; drop one of --precompute and --fanout")
        if self.cluster_method == "metis" and not self.clusters:
            raise ConfigError("cluster_method=metis needs the number of clusters; give --clusters")
        if self.clusters and self.clusters_per_batch > self.clusters:
            raise ConfigError(f"clusters_per_batch={self.clusters_per_batch} is more than clusters={self.clusters}")
        if self.metric in LINK_METRICS and self.task in ("node", "edge"):
            raise ConfigError(f"metric={self.metric} ranks links and task={self.task}; give --task link or another --metric")
        return self

    def change(self, **values: Any) -> Job:
        """The job with some keys changed, checked like a new one."""
        return Job(**{**self.model_dump(), **values})

    def as_text(self, key: str) -> str:
        """The value of a key as one would write it as a flag or in YAML."""
        value = getattr(self, key)
        if key == "fanout":
            return ",".join("all" if n == ALL_NEIGHBOURS else str(n) for n in value)
        return str(value).lower() if isinstance(value, bool) else str(value)

    def fanouts(self, layers: int) -> tuple[int, ...]:
        """Neighbours to sample in each of ``layers`` layers, from the targets outwards, -1 for all; empty if none are sampled.

        Raises:
            ConfigError: The model has another number of layers.
        """
        spread = self.fanout * layers if len(self.fanout) == 1 else self.fanout
        if spread and len(spread) != layers:
            raise ConfigError(f"fanout={self.as_text('fanout')} has {len(spread)} numbers and the model runs {layers} layers; "
                              "give one number per layer, or one for all")
        return spread

    @property
    def folder(self) -> Path:
        """Where results go."""
        model = self.model.rpartition(":")[2]
        dataset = Path(self.dataset.partition(":")[0]).stem
        return Path(self.out) if self.out else Path("runs", f"{dataset}-{model}-{self.strategy}")

    def to_yaml(self) -> str:
        """All keys, by section, as a file that ``--config`` reads."""
        lines = []
        for section in SECTIONS:
            values = {key: self.as_text(key) if key == "fanout" else getattr(self, key) for key in section.model_fields}
            lines += [f"# {section.__doc__}", yaml.safe_dump(values, sort_keys=False)]
        return "\n".join(lines)

    @classmethod
    def from_yaml(cls, path: str | Path) -> Job:
        """Read a file of keys.

        Raises:
            FormatError: The file cannot be read or is not YAML.
            ConfigError: A key or a value is not allowed.
        """
        return cls(**read_keys(path))


def read_keys(path: str | Path) -> dict[str, Any]:
    """The keys in a YAML file.

    Raises:
        FormatError: The file cannot be read or is not a mapping.
    """
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise FormatError(f"{path}: cannot be read as a job: {' '.join(str(error).split())}; write one 'key: value' a line") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise FormatError(f"{path}: expected lines of 'key: value', got a {type(values).__name__}")
    return {str(key): value for key, value in values.items()}


def flag(key: str) -> str:
    """The flag of a key."""
    return "--" + key.replace("_", "-")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``" (did you mean 'x'?)"`` if one of the known words is close, else nothing."""
    close = get_close_matches(str(word), list(known), 1)
    return f" (did you mean '{close[0]}'?)" if close else ""


def choices(key: str) -> tuple[Any, ...]:
    """The allowed values of a key; empty if there are too many to list."""
    hint = Job.model_fields[key].annotation
    return get_args(hint) if get_origin(hint) is Literal else ()


def explain(error: Any) -> str:
    """One problem found by pydantic, as: key, value, what is allowed."""
    if not error["loc"]:
        return str(error["msg"]).removeprefix("Value error, ")
    key, value = str(error["loc"][0]), error["input"]
    if error["type"] == "literal_error":
        allowed = choices(key)
        return f"{key}: unknown value {value!r}{did_you_mean(value, allowed)}; allowed: {', '.join(map(str, allowed))}"
    expected = EXPECTED.get(error["type"], "").format(**error.get("ctx", {})) or str(error["msg"]).removeprefix("Value error, expected ")
    return f"{key}: got {value!r}, expected {expected}"
