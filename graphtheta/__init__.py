"""GraphTheta: distributed graph learning on CPUs.

Public names are imported on first use, so that importing the package is fast, compiles nothing and
starts no MPI.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from graphtheta.base.collector import collector_paused

__version__ = "0.2.0"

# public names by the module that defines them, in the order of the rooms
_PUBLIC = {
    "errors": ("GraphThetaError",),
    "graph.data.graph": ("Graph",),
    "graph.datasets.dataset": ("load",),
    "graph.splits.times": ("time_split",),
    "graph.graph_level.whole_graphs": ("whole_graphs",),
    "importing.ingest.importer": ("import_graph",),
    "importing.rewriting.transform": ("transform_store",),
    "importing.tables.libraries": ("from_pyg", "from_dgl"),
    "importing.tables.query": ("Query",),
    "partitioners.registry": ("PARTITIONERS", "EDGE_PLACEMENTS"),
    "partitioners.report": ("partition_report",),
    "partitioners.comparison": ("compare_partitions",),
    "samplers.registry": ("SAMPLERS",),
    "samplers.neighbour": ("NeighbourSampler",),
    "samplers.weighted": ("WeightedSampler",),
    "samplers.temporal": ("TemporalSampler",),
    "samplers.per_relation": ("PerRelationSampler",),
    "samplers.labor": ("LaborSampler",),
    "samplers.ladies": ("LadiesSampler",),
    "samplers.pladies": ("PladiesSampler",),
    "samplers.orders.registry": ("ORDERS",),
    "tasks.kinds.kind": ("TaskKind",),
    "tasks.kinds.registry": ("TASKS",),
    "tasks.triples.report": ("relation_report",),
    "run.job.job": ("Job",),
    "run.checkpoints.progress": ("Result",),
    "run.job.presets": ("preset",),
    "train.loop.trainer": ("Trainer",),
    "train.loop.run": ("Run",),
    "train.loop.opened": ("open_run",),
    "train.loop.callback": ("Callback",),
    "train.loader.loader": ("Loader",),
    "train.loader.batch": ("LoaderBatch", "Block"),
    "train.loader.sample": ("sample",),
    "train.loader.gradients": ("average_gradients",),
    "train.reuse.caching.registry": ("CACHE_POLICIES",),
    "train.reuse.staleness.registry": ("EXCHANGES", "HISTORIES"),
    "train.reuse.staleness.exchange": ("HaloExchange",),
    "train.reuse.staleness.bns": ("Bns",),
    "train.loop.loggers": ("TensorBoard", "MLflow"),
    "inference.grown.inference": ("Inference",),
    "inference.exporting.network": ("to_torch",),
    "inference.adopting.from_torch": ("from_torch",),
    "inference.exporting.layers": ("counterpart",),
    "inference.exporting.onnx": ("to_onnx",),
    "analytics.functions": (
        "pagerank",
        "components",
        "degree",
        "core_number",
        "triangles",
        "label_propagation",
        "bfs",
        "sssp",
        "betweenness",
        "random_walks",
    ),
    "analytics.analyse": ("analyse",),
    "analytics.algorithm": ("Algorithm",),
    "analytics.registry": ("ALGORITHMS",),
    "inspect.checking.forward": ("forward", "gradients"),
    "inspect.checking.conformance": ("check",),
    "inspect.checking.gradients": ("check_gradients", "check_vjp"),
    "inspect.reports.explanation": ("explain",),
    "inspect.reports.plot": ("plot",),
    "models.design": ("Design", "NetworkOptions"),
    "models.registry": ("register_model",),
    "models.mlp": ("Linear", "MLP"),
    "models.norm": ("BatchNorm", "LayerNorm"),
    "models.per_relation": ("per_relation",),
    "models.pooling": ("AttentionPooling", "GatedPooling"),
    "models.recurrent": ("LSTM", "GRU", "GRUCell"),
    "models.sequential": ("Sequential",),
    "models.triples.decoders": ("DistMult", "TransE", "ComplEx", "RotatE"),
    "engine.layer.layer": ("Layer", "Model"),
    "engine.layer.module": ("Module",),
    "engine.layer.staged": ("Pooling",),
    "engine.layer.ordered": ("Ordered", "Recurrent", "Concat"),
    "engine.layer.checkpointing": ("recompute",),
    "engine.runtime.start": ("start",),
    "engine.train.metrics": ("Metric", "METRICS"),
    "engine.partition.partitioner": ("Partitioner", "Assignment", "EdgePlacement", "EdgeRule"),
    "engine.store.mapped": ("MappedColumn",),
    "engine.store.cached": ("CachePolicy",),
    "engine.sampling.node_set": ("NodeSetSampler",),
    "engine.strategy.own": ("OwnStrategy", "Batch"),
    "engine.strategy.registry": ("STRATEGIES",),
    "engine.sampling.priority": ("Priority", "ranked_by"),
    "ops.edge.program": ("softmax",),
    "ops.edge.aggregator": ("Aggregator", "AGGREGATORS"),
    "ops.edge.order_statistics": ("TopK",),
    "ops": (
        "Parameter",
        "Scalar",
        "SGD",
        "Adam",
        "AdamW",
        "RMSprop",
        "absolute",
        "batch_norm",
        "cast",
        "clip",
        "concat",
        "cos",
        "cumsum",
        "defvjp",
        "dropout",
        "einsum",
        "elu",
        "embedding",
        "exp",
        "flatten",
        "gelu",
        "graph_mean",
        "graph_sum",
        "layer_norm",
        "leaky_relu",
        "linear",
        "log",
        "log_softmax",
        "matmul",
        "max",
        "maximum",
        "mean",
        "min",
        "minimum",
        "pick",
        "power",
        "primitive",
        "relu",
        "reshape",
        "sigmoid",
        "silu",
        "sin",
        "softplus",
        "sqrt",
        "square",
        "stack",
        "std",
        "stop_gradient",
        "sum",
        "tanh",
        "to_dense",
        "typed_matmul",
        "where",
    ),
}
_HOME = {name: f"graphtheta.{module}" for module, names in _PUBLIC.items() for name in names}
# packages that are read by their names: gt.models.GCN
_MODULES = ("errors", "models", "ops")
__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        # importing it makes it an attribute
        return import_module(f"graphtheta.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'graphtheta' has no attribute '{name}'{_hint(name)}")
    with collector_paused():
        import_module("graphtheta.engine.runtime.start").install_excepthook()
        value = getattr(import_module(_HOME[name]), name)
    # the next access does not come here, as in every pass of a user's layer
    globals()[name] = value
    return value


def _hint(name: str) -> str:
    """What may be meant by an unknown name; published models are none of the public names."""
    if name.startswith("_"):
        return ""
    model = name.casefold().removesuffix("conv")
    if model in import_module("graphtheta.models.registry").MODELS:
        return f"; it is a model, gt.Trainer('{model}', graph), with layers in gt.models"
    return str(import_module("graphtheta.base.wording").did_you_mean(name, __all__))


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES})
