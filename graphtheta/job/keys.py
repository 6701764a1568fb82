"""The keys of a job, by section: its title is its docstring, and the text under a key is its line in ``--help``.

Those of the section of the model are declared by the models.
"""
from __future__ import annotations

from copy import copy
from typing import Any, Literal

from pydantic import Field
from pydantic.fields import FieldInfo

from graphtheta.engine.partition.partitioner import DEFAULT_PLACEMENT, EDGE_PLACEMENTS, PARTITIONERS
from graphtheta.engine.train.metrics import METRICS
from graphtheta.job.model_keys import ModelKeys
from graphtheta.models.design import NetworkOptions, Options
from graphtheta.registry import Registry
from graphtheta.tasks.registry import TASKS

# keys whose values are "auto" if that is the default, a name in a registry, or FILE.py:NAME
REGISTRIES: dict[str, Registry[Any]] = {"task": TASKS, "metric": METRICS, "partitioner": EDGE_PLACEMENTS, "masters": PARTITIONERS}
# a key that only one value of another key makes use of
NEEDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "batch_size": ("strategy", ("mini",)),
    "fanout": ("strategy", ("mini",)),
    "sampler": ("strategy", ("mini",)),
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
    "lr_decay_updates": ("lr_schedule", ("cosine", "step")),
    "lr_decay": ("lr_schedule", ("step",)),
}


def _declared(where: type[Options], key: str) -> Any:
    """A field that is declared elsewhere."""
    return copy(where.model_fields[key])


class DataKeys(Options):
    """Data"""

    dataset: str = "sbm"
    """Embedded graph (sbm, rmat, ring, star), a named one (cora, ...), an npz file or a folder of Planetoid files; options
    follow as rmat:scale=17,edge_factor=8."""
    data_dir: str = ""
    """Folder of the named files; by default that in the environment variable GRAPHTHETA_DATA."""
    split: Literal["auto", "public", "random", "fraction", "none"] = "auto"
    """Who trains, validates and tests: the data's own split, equally many of each class, or random shares; auto is as usual for it."""
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


class StrategyKeys(Options):
    """Strategy"""

    strategy: Literal["global", "mini", "cluster"] = "global"
    """What one step computes: all nodes, a batch of target nodes with their neighbourhoods, or a set of clusters."""
    batch_size: int = Field(0, ge=0)
    """Target nodes of a mini-batch, over all workers together; 0 takes all training nodes."""
    fanout: tuple[int, ...] = ()
    """Neighbours sampled for each node, one number per hop from the targets outwards, such as 10,10; all keeps all."""
    sampler: str = "neighbour"
    """Which neighbours are sampled: neighbour draws uniformly; or your own sampler as FILE.py:Class."""
    replace: bool = False
    """Sample with replacement."""
    share_sample: bool = False
    """Draw one sample for all hops, so that edge values can be carried from layer to layer; needs equal fanouts."""
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


class PartitionKeys(Options):
    """Partition"""

    partitioner: str = DEFAULT_PLACEMENT
    """Which worker keeps an edge: that of its source, that of its destination, or one on a grid."""
    masters: str = "hash"
    """Which worker owns a node: by hash, or in contiguous blocks of the numbering; options follow as NAME:key=value."""


class ComputeKeys(Options):
    """Computing"""

    backend: Literal["fused", "reference"] = "fused"
    """How messages are computed: compiled loops, or plain NumPy, which is slow and easy to follow."""
    views_in_flight: int = Field(1, ge=1, le=64)
    """Views each worker has under way at a time: one computes while others wait for messages. Results are the same for any number."""
    precompute: bool = False
    """Sum the features of neighbours once and not in every step; for node tasks whose first layer sums features, as they are, over all."""
    recompute: bool = False
    """Make values of layers again in backward: memory grows with the root of the depth, for the time of a second forward pass."""
    halo: Literal["exact", "bf16"] = "exact"
    """How values travel between workers in training: as they are, or wide ones in 16 bits (bf16), which halves the bytes and makes results
    depend on the number of workers by rounding."""


class TrainKeys(Options):
    """Training"""

    task: str = Field("auto", description=f"What to predict: {', '.join(f'{kind.summary} ({name})' for name, kind in TASKS.items())}; "
                                          "your own as FILE.py:Class; auto takes what the data has labels for.")
    metric: str = "auto"
    """What the best model is chosen by on the validation set; your own as FILE.py:NAME."""
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
    lr_schedule: Literal["constant", "cosine", "step"] = "constant"
    """How the learning rate falls: not at all, along a cosine to 0, or by a factor after every so many updates."""
    lr_decay_updates: int = Field(0, ge=0)
    """Updates over which cosine comes to 0, or after each of which step multiplies with lr_decay."""
    lr_decay: float = Field(0.1, gt=0, le=1)
    """Factor of the schedule step."""
    lr_warmup_updates: int = Field(0, ge=0)
    """Updates over which the learning rate rises linearly to its full value, before the schedule begins."""
    clip_norm: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Largest Euclidean norm of the gradients of all parameters together; longer ones are scaled down to it. 0 is off."""
    optimiser: Literal["adam", "adamw", "sgd"] = "adam"
    """Optimiser."""
    momentum: float = Field(0.0, ge=0, lt=1)
    """Momentum of sgd."""
    weight_decay: float = Field(5e-4, ge=0, allow_inf_nan=False)
    """L2 penalty; decoupled in adamw."""
    decay_first_layer_only: bool = _declared(NetworkOptions, "decay_first_layer_only")
    negatives: int = Field(1, ge=1, le=10_000)
    """Links that do not exist drawn for each that does, in training."""
    eval_negatives: int = Field(50, ge=1, le=10_000)
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


class OutputKeys(Options):
    """Output"""

    out: str = ""
    """Folder for results; by default runs/DATASET-MODEL-STRATEGY, replaced by the next run of that name."""
    checkpoint_every: int = Field(0, ge=0)
    """Updates between two checkpoints; 0 makes one about every minute."""
    keep: int = Field(2, ge=0)
    """Checkpoints that are kept, the newest ones; 0 makes none."""
    resume: bool = False
    """Go on from the newest good checkpoint in the folder; from the beginning if there is none."""
    save_predictions: bool = False
    """Write predictions of all nodes, under their original ids, at the end."""
    trace: bool = False
    """Leave a timeline of all workers in trace.json: stages, waiting, moves and tasks, for ui.perfetto.dev or chrome://tracing."""
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    """How much the log tells."""


SECTIONS: tuple[type[Options], ...] = (DataKeys, ModelKeys, StrategyKeys, PartitionKeys, ComputeKeys, TrainKeys, OutputKeys)
FIELDS: dict[str, FieldInfo] = {key: field for section in SECTIONS for key, field in section.model_fields.items()}
