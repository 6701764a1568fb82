"""The keys of a job, by section.

The title of a section is its docstring, and the text under a key is its line in the help: in
``--help`` if it is ``COMMON``, else in ``--help-all`` alone. The keys of the section Model are
declared by the models.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.fields import FieldInfo

from graphtheta.base.registry import Registry
from graphtheta.engine.strategy.registry import AUTO, STRATEGIES
from graphtheta.engine.strategy.strategy import GlobalBatch
from graphtheta.engine.train.metrics import METRICS
from graphtheta.engine.train.stages import FREE
from graphtheta.models.design import COMMON, NetworkOptions, Options
from graphtheta.partitioners.pairs import DEFAULT_MASTERS
from graphtheta.partitioners.registry import DEFAULT_PLACEMENT, EDGE_PLACEMENTS, PARTITIONERS
from graphtheta.run.job.model_keys import ModelKeys
from graphtheta.run.job.rules import Excludes, Needs, OnlyWith
from graphtheta.samplers.orders.registry import ORDERS
from graphtheta.tasks.kinds.registry import TASKS

# keys whose values are "auto" if that is the default, a name in a registry, or FILE.py:NAME
REGISTRIES: dict[str, Registry[Any]] = {
    "task": TASKS,
    "metric": METRICS,
    "partitioner": EDGE_PLACEMENTS,
    "masters": PARTITIONERS,
    "order": ORDERS,
    "strategy": STRATEGIES,
}
# rules that several keys have
MINI = OnlyWith("strategy", ("mini",))
CLUSTER = OnlyWith("strategy", ("cluster",))
BATCHES = OnlyWith("strategy", ("mini", "cluster"), without=("global", AUTO))
INDEPENDENT = OnlyWith("mode", ("independent", "auto"))
SAMPLING = Needs(("fanout",), "configures neighbour sampling, but no fanout is given")
LEARNED = Needs(("embedding",), "configures learned node features, which have no width")
# neighbours outside of a batch are read from histories
NO_HISTORY = Excludes(("history",), "has no meaning with")
# keys that choose and prepare a dataset, and what does the same to a graph that is given in Python
OF_DATASET: dict[str, str] = {
    "dataset": "leave the graph out",
    "data_dir": "leave the graph out",
    "split": (
        "give the graph the masks: gt.load(..., split=...), graph.with_masks(train, val, test), or"
        " class_split and fraction_split of graphtheta.graph.splits.nodes, split_by_time of"
        " graphtheta.graph.splits.times"
    ),
    "train_per_class": "give the graph masks, with class_split of graphtheta.graph.splits.nodes",
    "val_per_class": "give the graph masks, with class_split of graphtheta.graph.splits.nodes",
    "symmetric": "give graph.symmetrised()",
    "largest_component": "give graph.largest_component()",
    "normalise_features": (
        "give graph.with_row_normalised_features() or graph.with_standardised_features()"
    ),
}
# values of these keys that ask for nothing, which a graph that is given has done already
ASKS_NOTHING: dict[str, str] = {
    "symmetric": "no",
    "largest_component": "no",
    "normalise_features": "none",
}
# keys that ask for a folder of the run, which checkpoints are written to
ASKING = ("out", "resume", "checkpoint_every", "keep")
# keys that change nothing of a model that was trained already
OF_TRAINING = frozenset(
    (
        "embedding_optimiser",
        "embedding_lr",
        "dropout",
        "attention_dropout",
        "feature_dropout",
        "edge_drop",
        "strategy",
        "batch_size",
        "vertex_limit",
        "drop_last",
        "order",
        "clusters",
        "clusters_per_batch",
        "cluster_method",
        "boundary_hops",
        "degrees",
        "diagonal",
        "history",
        "mode",
        "views_in_flight",
        "pipeline",
        "stage_threads",
        "macrobatch",
        "fetch_batch",
        "machine_cache",
        "audit",
        "audit_limit",
        "recompute",
        "halo",
        "exchange",
        "epochs",
        "steps",
        "views_per_step",
        "staleness",
        "lr",
        "lr_schedule",
        "lr_decay_updates",
        "lr_decay",
        "lr_patience",
        "lr_warmup_updates",
        "clip_norm",
        "optimiser",
        "momentum",
        "centered",
        "weight_decay",
        "decay_first_layer_only",
        "negatives",
        "negative_groups",
        "negatives_from",
        "patience",
        "eval_every",
        "seeds",
        "out",
        "checkpoint_every",
        "keep",
        "resume",
        "overwrite",
        "save_predictions",
        "trace",
    )
)


def _declared(where: type[Options], key: str) -> Any:
    """A field that is declared elsewhere."""
    return copy(where.model_fields[key])


class DataKeys(Options):
    """Data"""

    dataset: Annotated[str, COMMON] = "sbm"
    """Generated graph (sbm, rmat, ring, star), a named dataset (cora, ...), an npz file, a store,
    or a folder of Planetoid files; append options as in rmat:scale=17,edge_factor=8."""
    data_dir: Annotated[str, COMMON] = ""
    """Folder of the named datasets; by default the environment variable GRAPHTHETA_DATA."""
    split: Annotated[Literal["auto", "public", "random", "fraction", "time", "none"], COMMON] = (
        "auto"
    )
    """Training, validation and test sets: the split that comes with the dataset (public), a fixed
    number of nodes per class (random), random fractions of the nodes (fraction), the earliest nodes
    or edges by the column "time" for training and the latest for testing (time), or no split
    (none); auto uses the dataset's default.
    """
    split_index: int = Field(0, ge=0)
    """Which split to use, if the graph comes with several; the first is 0."""
    train_per_class: int = Field(0, ge=0)
    """Training nodes per class in a random split; 0 uses the dataset's default, usually 20."""
    val_per_class: int = Field(0, ge=0)
    """Validation nodes per class in a random split; 0 uses the dataset's default, usually 30."""
    self_loops: Literal["auto", "yes", "no"] = "auto"
    """Add missing self loops (yes) or remove all self loops (no); auto adds them for layers that
    use them, such as gcn, unless the text of the dataset says self_loops=no.
    """
    symmetric: Literal["auto", "yes", "no"] = "auto"
    """Make the graph undirected by adding missing reverse edges; auto uses the dataset's default.
    """
    largest_component: Literal["auto", "yes", "no"] = "auto"
    """Keep only the largest connected component; auto uses the dataset's default."""
    embedding: int = Field(0, ge=0)
    """Learn node features x of this width, for a graph without features: a row for each node, held
    by the worker of the node; a step updates only rows that its batch reads. 0 is off."""
    embedding_types: Annotated[str, LEARNED] = ""
    """Types of nodes that learn features beside those they have, with own widths if given:
    user,item=8.
    """
    embedding_optimiser: Annotated[Literal["adam", "adagrad", "sgd"], LEARNED] = "adam"
    """Optimiser of the rows of --embedding: lazy Adam, which leaves rows without a gradient alone,
    adagrad or sgd, without weight decay.
    """
    embedding_lr: Annotated[float, LEARNED] = Field(0.0, ge=0, allow_inf_nan=False)
    """Learning rate of the rows of --embedding; 0 uses that of the parameters."""
    structural_features: str = ""
    """Results of graph algorithms as further node features, such as
    pagerank+core_number+triangles+degree; options follow as NAME:option=value. Each is log(1 + x /
    mean), standardised over all nodes.
    """
    normalise_features: Literal["auto", "none", "row", "standard"] = "auto"
    """Normalise node features: rows sum to 1 (row), or each feature has mean 0 and standard
    deviation 1 over the training nodes (standard), in a graph with types over those of its type, or
    over all nodes of a type without any.
    """


class StrategyKeys(Options):
    """Strategy"""

    strategy: Annotated[str, COMMON] = GlobalBatch.name
    """Batching: full-graph training (global), mini-batches of target nodes with their k-hop
    neighbourhoods (mini), or batches of clusters as in Cluster-GCN (cluster); or the one predicted
    to learn fastest, with batch size and fan-out (auto); give your own as FILE.py:Class. Options of
    your own follow as :name=value,..."""
    batch_size: Annotated[int, MINI, COMMON] = Field(0, ge=0)
    """Target nodes per mini-batch, summed over all workers; 0 uses all training nodes."""
    vertex_limit: Annotated[int, MINI, NO_HISTORY] = Field(0, ge=0)
    """Nodes per mini-batch: the batch size is adapted before training so that the targets of a
    batch and their neighbourhoods are about this many nodes, summed over all workers; 0 keeps the
    batch size.
    """
    drop_last: Annotated[bool, OnlyWith("strategy", ("mini", "cluster"))] = False
    """Leave out the last mini-batch of an epoch if it has fewer targets than the others, or fewer
    clusters with strategy=cluster."""
    order: Annotated[str, MINI, NO_HISTORY] = "random"
    """Order of the targets of an epoch: random, with sampler=temporal and edges, links or triples
    in batches of about one time; batches of targets that are near each other
    (proximity:sequences=5, or auto for as few as mix the classes), which share more of their
    neighbourhoods; batches with equal numbers of targets of each class (balanced), in which those
    of rare classes come repeatedly and not all of frequent classes come; or by their ids in every
    epoch (ids); give your own as FILE.py:Class."""
    fanout: Annotated[tuple[int, ...], MINI, COMMON] = ()
    """Neighbours sampled per node, one number per hop from the targets outwards, such as 10,10; all
    disables sampling.
    """
    eval_fanout: Annotated[
        tuple[int, ...],
        MINI,
        Excludes(
            ("inference_memory",),
            "samples neighbourhoods of metrics, which are not computed layer by layer as with",
        ),
    ] = ()
    """Neighbours sampled per node for metrics of all sets, one number per hop from the targets
    outwards, such as 20,20,20, drawn uniformly and anew in each epoch; by default, and with all,
    metrics read all neighbours. Predictions always do."""
    sampler: Annotated[str, MINI] = "neighbour"
    """Sampler. neighbour draws in-edges of each node uniformly, weighted in proportion to an edge
    column (options weight, importance, normalise), temporal from the edges up to the time of the
    target (time, target_time, strategy), per_relation from the edges of each relation (of);
    mask=COLUMN limits each to some edges. saint_node, saint_edge, saint_walk and saint_frontier
    choose the nodes of a batch as GraphSAINT does, without --batch-size and --fanout. labor
    (iterations, star, sequential) draws vertices, for fewer rows per batch; ladies (weights) and
    pladies (skip) choose --fanout vertices per hop; all three take weight, normalise, kappa,
    mega_batch and layer_dependency. Give your own as FILE.py:Class. Options follow as
    :name=value,...
    """
    replace: Annotated[bool, MINI, SAMPLING] = False
    """Sample with replacement."""
    share_sample: Annotated[bool, MINI, SAMPLING] = False
    """Use one sample for all hops, so that a layer can read edge values made by the layer before
    it; requires equal fanouts.
    """
    clusters: Annotated[int, CLUSTER] = Field(0, ge=0)
    """Number of clusters; with 0, louvain and leiden choose it."""
    clusters_per_batch: Annotated[int, CLUSTER] = Field(1, ge=1)
    """Clusters per batch; edges between the clusters of a batch are kept."""
    cluster_method: Annotated[
        str, CLUSTER, Needs(("clusters",), "needs the number of clusters", value="metis")
    ] = "louvain"
    """Clustering: louvain, leiden, metis, or a .npy file with one cluster number per node."""
    boundary_hops: Annotated[int, CLUSTER, NO_HISTORY] = Field(0, ge=0, le=2)
    """Hops around the clusters of a batch that are added to it, so that its nodes see neighbours in
    other clusters.
    """
    degrees: Annotated[Literal["graph", "view"], CLUSTER, NO_HISTORY] = "graph"
    """Node degrees used in normalisation: those of the whole graph (graph) or of the subgraph of
    the batch (view).
    """
    diagonal: Annotated[float, CLUSTER, NO_HISTORY] = Field(0.0, allow_inf_nan=False)
    """Lambda of the diagonal enhancement of Cluster-GCN; 0 disables it."""
    history: Annotated[
        str,
        OnlyWith("strategy", ("cluster", "mini")),
        Excludes(
            ("recompute", "precompute", "views_in_flight"),
            "stores values of one batch after another, each computed once, and cannot be combined"
            " with",
        ),
    ] = "none"
    """Historical embeddings: nodes outside of a batch are not computed but read from the values of
    earlier batches (gas: hops, with clusters), nodes of other workers from a cache of what these
    have computed (hec: cs, ls, nc, d, miss, features, with mini-batches), or nodes on whose values
    the loss depends little from earlier batches (fresh: share, ls, lines, with mini-batches); give
    your own as FILE.py:Class. Options follow as :name=value,...
    """


class PartitionKeys(Options):
    """Partition"""

    partitioner: str = DEFAULT_PLACEMENT
    """Edge placement: store an edge on the owner of its source (1d-src) or destination (1d-dst), on
    a grid of workers (vertex-cut), by the degree of its destination (hybrid), by a greedy
    vertex-cut (hdrf, oblivious, libra), or at random (random); give your own as FILE.py:Class;
    options follow as NAME:key=value. Or a pair with a node partitioner: that of a published system
    (armada, bgl, distdgl, distgnn, gemini, graphx, metis, powergraph, powerlyra, pregel), or the
    one predicted to take the least time (auto)."""
    masters: str = DEFAULT_MASTERS
    """Node partitioner: assign nodes to workers by the hash of their ids (hash), in ranges of ids
    of equal nodes or edges (block, degree-block, gemini), by greedy streaming (ldg, fennel), by
    streaming that revises itself (grem), in connected blocks (bgl), by clustering (louvain, leiden,
    metis), or from a file (file:path=owners.npy); give your own as FILE.py:Class; options follow as
    NAME:key=value."""


class ComputeKeys(Options):
    """Computing"""

    backend: Literal["fused", "reference"] = "fused"
    """How messages are computed: compiled kernels (fused), or plain NumPy for debugging, which is
    slow (reference).
    """
    mode: Annotated[Literal["cooperative", "independent", "auto"], BATCHES] = "cooperative"
    """How workers share the mini-batches of a step: all compute each together (cooperative), or
    each computes its own and holds all of it (independent); auto estimates before training which is
    faster. Results do not depend on it if --views-per-step is given.
    """
    views_in_flight: Annotated[int, BATCHES] = Field(1, ge=1, le=64)
    """Pipelined mini-batches per worker: one computes while the others communicate. Results do not
    depend on this number.
    """
    pipeline: Annotated[
        Literal["no", "auto"],
        BATCHES,
        Needs(
            ("views_in_flight",),
            "chooses the number of views in flight up to views_in_flight, which is 1",
        ),
    ] = "no"
    """Profile the stages of the first steps, and use as many of --views-in-flight as take the least
    time (auto). Results do not depend on it."""
    stage_threads: Annotated[
        str,
        BATCHES,
        Needs(
            ("views_in_flight",),
            "lets stages of different views run at the same time, but views_in_flight is 1",
        ),
    ] = FREE
    """Processors of each stage of pipelined mini-batches, whose threads run on no others, such as
    sampling=1,features=1,compute=2, or sampling+features=1,compute=1 for stages that share one; or
    the division that a profile of the first steps foresees as fastest (auto). With free, threads
    take whatever can continue. Results do not depend on it."""
    macrobatch: Annotated[str, BATCHES] = "1"
    """Steps whose mini-batches are expanded together, with merged messages: a number, or as many as
    fit into a quarter of the free memory (auto). With mode=independent these are groups of one
    mini-batch for each worker. Results do not depend on it.
    """
    fetch_batch: Annotated[int, INDEPENDENT] = Field(0, ge=0)
    """Groups of mini-batches of a macrobatch whose features are fetched together, those in common
    once; 0 is all of them.
    """
    feature_cache: Annotated[str, BATCHES] = "0"
    """Size of each worker's cache of feature rows that other workers hold (mode=independent) or
    that are in files: rows (5000), bytes (64MiB) or a share of the nodes (10%); 0 is off. Results
    do not depend on it.
    """
    machine_cache: Annotated[str, INDEPENDENT] = "0"
    """Size of a second cache, of rows that other machines hold, in memory that the workers of a
    machine share: each of these rows is fetched once for all of them. Sizes are as for
    --feature-cache, and that of the machine; 0 is off. Results do not depend on it.
    """
    cache_policy: Annotated[
        str,
        Needs(("feature_cache", "machine_cache"), "has no meaning without a cache"),
    ] = "fifo"
    """Which rows caches hold: by the past (fifo, lru, lfu, clock, s3-fifo), chosen before training
    (degree; probability, by a dry run of the sampler, option groups), or by the next use, which a
    dry run of the sampler finds (belady, option window); give your own as FILE.py:Class; options
    follow as NAME:key=value.
    """
    precompute: Annotated[
        Literal["no", "yes", "auto"], OnlyWith("strategy", ("global", "mini"))
    ] = "no"
    """Aggregate the input features of the first layer once before training instead of in every
    step, over complete neighbourhoods even if --fanout samples those of the other layers; for node
    tasks whose first layer aggregates features without weights or dropout. auto does so if batches
    then read fewer rows of features, which is measured before training; the flag alone means yes.
    """
    audit: Annotated[
        int,
        Needs(
            ("exchange", "history"),
            "compares reused values with exact ones, but no values are reused",
        ),
    ] = Field(0, ge=0)
    """Steps between two audits with --exchange or --history: the next batch is also computed
    exactly, and the relative errors of outputs, embeddings and gradients are recorded, with hit
    rates and ages; 0 disables them.
    """
    audit_limit: Annotated[float, Needs(("audit",), "needs an audit")] = Field(
        0.0, ge=0, allow_inf_nan=False
    )
    """Relative error of the outputs above which an audit makes the exchange or the history more
    exact; 0 disables this.
    """
    recompute: bool = False
    """Gradient checkpointing: recompute activations of layers in the backward pass, so that memory
    grows with the square root of the depth at the cost of a second forward pass."""
    inference_memory: float = Field(0.0, ge=0, le=1e9, allow_inf_nan=False)
    """Memory of each worker for evaluation, predictions and embeddings in GiB, with that of the
    graph. If a pass over the whole graph needs more, it runs layer by layer over blocks of nodes,
    and values of layers are in files in TMPDIR; 0 is no limit. Results do not depend on it."""
    halo: Annotated[
        Literal["exact", "bf16"],
        OnlyWith("dtype", ("float32",)),
        Excludes(
            ("mode",),
            "rounds the values that layers send between workers, but they send none with",
            value="independent",
        ),
    ] = "exact"
    """Precision of values sent between workers in training: exact, or bfloat16 for columns of at
    least 16 numbers (bf16), which halves the traffic; with bf16, rounding makes results depend on
    the number of workers.
    """
    exchange: Annotated[
        str,
        OnlyWith("strategy", ("global",)),
        Excludes(
            ("recompute",),
            "reuses the values of each message once in an epoch, but they are sent twice with",
        ),
    ] = "exact"
    """Values that workers exchange in a global batch: all of the epoch (exact), a sample of them
    (bns: rate), those of the epoch before (pipegcn: feat_corr, grad_corr, refresh), or again only
    when they have changed (skip: threshold); give your own as FILE.py:Class. Options follow as
    :name=value,... Results depend on the number of workers.
    """


class TrainKeys(Options):
    """Training"""

    task: Annotated[str, COMMON] = Field(
        "auto",
        description=(
            f"Task: {', '.join(f'{kind.summary} ({name})' for name, kind in TASKS.items())}; "
            "your own as FILE.py:Class; auto chooses by the labels of the dataset."
        ),
    )
    metric: str = "auto"
    """Metric on the validation set that selects the best model; auto uses the task's default; give
    your own as FILE.py:NAME.
    """
    class_weights: str = "none"
    """Weights of classes in the loss, of training and evaluation alike: none, balanced (all classes
    weigh the same in the training set), or a number for each class, such as 1,4.5; with several
    labels a node, the weight of each label's 1 beside a weight of 1 for its 0.
    """
    sample_weights: str = ""
    """Node or edge column with the weight of each target in the loss, a number of at least 0;
    negatives weigh as their link.
    """
    threshold: str = "0.5"
    """Probability above which a label, or the positive one of two classes, is predicted: a number,
    or chosen for each label on the validation set at each evaluation, for the best F1 (f1) or
    balanced accuracy (balanced_accuracy)."""
    positive: str = "auto"
    """Positive one of two classes, that f1, auc, average_precision and threshold are about: its
    name or its number; auto is the one with fewer training labels, and of equally many the one that
    sorts last."""
    epochs: Annotated[int, COMMON] = Field(100, ge=0)
    """Number of passes over the training set."""
    steps: int = Field(0, ge=0)
    """Stop after this many parameter updates, instead of after epochs; 0 is off."""
    views_per_step: Annotated[int, replace(BATCHES, free="1")] = Field(0, ge=0)
    """Gradient accumulation: mini-batches whose gradients are summed for one parameter update; 0 is
    one, or one for each worker with mode=independent."""
    staleness: int = Field(0, ge=0)
    """Asynchronous training: mini-batches use parameters that are this many updates old, and do not
    wait for the latest update; 0 is synchronous training."""
    lr: Annotated[float, COMMON] = Field(0.01, gt=0, allow_inf_nan=False)
    """Learning rate."""
    lr_schedule: Annotated[
        Literal["constant", "cosine", "step", "plateau"],
        Needs(("lr_decay_updates",), "needs a number of updates", "cosine"),
        Needs(("lr_decay_updates",), "needs a number of updates", "step"),
        Needs(("lr_patience",), "needs a number of evaluations", "plateau"),
    ] = "constant"
    """Learning rate schedule: constant, cosine annealing to 0 (cosine), or decay by a factor at
    fixed intervals (step) or where the validation metric does not improve (plateau).
    """
    lr_decay_updates: Annotated[int, OnlyWith("lr_schedule", ("cosine", "step"))] = Field(0, ge=0)
    """Updates until the cosine schedule reaches 0, or between two decays of the step schedule."""
    lr_decay: Annotated[float, OnlyWith("lr_schedule", ("step", "plateau"))] = Field(
        0.1, gt=0, le=1
    )
    """Factor by which the schedules step and plateau multiply the learning rate."""
    lr_patience: Annotated[int, OnlyWith("lr_schedule", ("plateau",))] = Field(0, ge=0)
    """The plateau schedule decays after more evaluations in a row than this number that did not
    improve the validation metric."""
    lr_warmup_updates: int = Field(0, ge=0)
    """Linear warm-up: updates over which the learning rate rises to its full value, before the
    schedule starts.
    """
    clip_norm: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Gradient clipping: largest Euclidean norm of all gradients together; larger gradients are
    scaled down to it. 0 disables it.
    """
    optimiser: Annotated[Literal["adam", "adamw", "sgd", "rmsprop"], COMMON] = "adam"
    """Optimiser."""
    momentum: Annotated[float, OnlyWith("optimiser", ("sgd", "rmsprop"))] = Field(0.0, ge=0, lt=1)
    """Momentum of sgd and rmsprop."""
    centered: Annotated[bool, OnlyWith("optimiser", ("rmsprop",))] = False
    """Divide by the deviation of gradients in rmsprop, and not by their root mean square."""
    weight_decay: Annotated[float | str, COMMON] = "auto"
    """Weight decay (L2 penalty), decoupled with adamw: a number, or auto, which is 0 with the tasks
    link and triple, where decay draws all scores to 0, and 0.0005 with all others."""
    decay_first_layer_only: bool = _declared(NetworkOptions, "decay_first_layer_only")
    link_relation: str = ""
    """The relation whose edges are the links to predict, by name or code; by default the edges of
    all relations.
    """
    negatives: int = Field(1, ge=1, le=10_000)
    """Negative samples per positive link in training."""
    eval_negatives: int = Field(50, ge=1, le=10_000)
    """Negative samples per positive link in validation and test; the samples are fixed. Triples
    have ranks among all nodes, so that these samples only count in the loss."""
    rank_all: bool = False
    """Rank the links of each source among all nodes in validation and test, for recall and NDCG
    (link tasks).
    """
    negative_groups: int = Field(0, ge=0)
    """Groups among which the links of a batch are divided at random; those of a group have the same
    negative samples, so that a batch reads fewer nodes. 0 draws samples for each link."""
    negatives_from: Literal["nodes", "batch"] = "nodes"
    """Nodes that the negative samples of training are drawn from: all (nodes), or the ends of the
    links of the batch (batch), so that it reads no others. With strategy=cluster these are always
    the nodes of the batch.
    """
    link_loss: Literal["binary", "softmax", "adversarial"] = "binary"
    """Loss of links: cross entropy of each score as a label (binary), of the link among itself and
    its negatives (softmax), or binary with negatives weighted by their scores (adversarial, as in
    RotatE).
    """
    adversarial_temperature: Annotated[float, OnlyWith("link_loss", ("adversarial",))] = Field(
        1.0, ge=0, allow_inf_nan=False
    )
    """Factor of the scores in the softmax that weighs negatives; 0 weighs them equally."""
    patience: Annotated[int, COMMON] = Field(0, ge=0)
    """Early stopping: stop after this many evaluations without a better validation metric; 0
    disables it.
    """
    eval_every: int = Field(1, ge=1)
    """Epochs between two evaluations."""
    seed: Annotated[int, COMMON] = Field(0, ge=0)
    """Random seed."""
    seeds: int = Field(1, ge=1)
    """Repeat the run with this many consecutive seeds and report mean and standard deviation."""
    dtype: Literal["float32", "float64"] = "float32"
    """Floating-point type of parameters, features and activations."""
    values: Annotated[
        Literal["float32", "bfloat16"],
        OnlyWith("dtype", ("float32",)),
        Excludes(("exchange", "history"), "does not reach values that are reused between steps by"),
    ] = "float32"
    """Type in which wide values of nodes are stored and sent, in training and afterwards: float32,
    or bfloat16, which halves the bytes of dense features of at least 16 numbers, of values of
    nodes that operations read and backward keeps, of what edges read, and of the gradients of what
    edges sum. Numbers are rounded at the node, to 8 significant bits, wherever it lives. Sums,
    messages of sums, results of the model, losses, parameters, their gradients and the optimiser
    remain float32, and so do sparse features, edge values and narrow columns.
    """


class OutputKeys(Options):
    """Output"""

    out: Annotated[str, COMMON] = ""
    """Output folder; by default runs/DATASET-MODEL-STRATEGY, or that name with -2, -3, ... if it
    holds a finished run.
    """
    checkpoint_every: int = Field(0, ge=0)
    """Updates between two checkpoints; 0 writes one about every minute."""
    keep: int = Field(2, ge=0)
    """Number of newest checkpoints to keep; 0 disables checkpoints."""
    resume: Annotated[bool, COMMON] = False
    """Resume from the newest intact checkpoint in the output folder, by default that of the last
    run of this name; start from the beginning if there is none.
    """
    overwrite: Annotated[bool, Excludes(("resume",), "replaces a run and cannot be given with")] = (
        False
    )
    """Replace the run in the output folder, by default the last one of this name; otherwise a
    folder that holds a run is refused.
    """
    save_predictions: bool = False
    """Write predictions for all nodes, with their original ids, to the output folder at the end of
    the run.
    """
    scores: Literal["probabilities", "logits"] = "probabilities"
    """What predictions are: probabilities of classes (softmax), and of labels, links and triples
    (sigmoid), or logits, the outputs of the model. Predicted values are the same in both.
    """
    trace: bool = False
    """Record a timeline of all workers in trace.json (stages, waiting, messages, work items), for
    ui.perfetto.dev or chrome://tracing.
    """
    log_level: Literal["debug", "info", "warning", "error"] = "warning"
    """Lowest level of log messages that are shown."""


SECTIONS: tuple[type[Options], ...] = (
    DataKeys,
    ModelKeys,
    StrategyKeys,
    PartitionKeys,
    ComputeKeys,
    TrainKeys,
    OutputKeys,
)
FIELDS: dict[str, FieldInfo] = {
    key: field for section in SECTIONS for key, field in section.model_fields.items()
}
