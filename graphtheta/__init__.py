"""GraphTheta: distributed graph learning on CPUs.

Public names are imported on first use, so that importing the package is fast, compiles nothing and
starts no MPI.
"""
from __future__ import annotations

from importlib import import_module
from typing import Any

from graphtheta.collector import collector_paused

__version__ = "0.1.0"

# the module of each public name
_FRONT = {
    "Graph": "data.graph", "load": "datasets.dataset", "Job": "job.job", "Trainer": "train.trainer", "Run": "train.run",
    "open_run": "train.opened", "Inference": "inductive.inference",
    "forward": "checking.forward", "gradients": "checking.forward", "time_split": "splits.times",
    "sample": "samplers.blocks", "BlockSampler": "samplers.blocks", "Block": "samplers.blocks", "SAMPLERS": "samplers.registry",
    "NeighbourSampler": "samplers.neighbour", "WeightedSampler": "samplers.weighted", "TemporalSampler": "samplers.temporal",
    "PerRelationSampler": "samplers.per_relation",
    "LaborSampler": "samplers.labor", "LadiesSampler": "samplers.ladies", "PladiesSampler": "samplers.pladies",
    "ORDERS": "orders.registry", "Callback": "train.callback", "Result": "recovery.progress",
    "GraphThetaError": "errors",
    "preset": "job.presets", "check": "checking.conformance", "check_gradients": "checking.gradients", "check_vjp": "checking.gradients",
    "explain": "reports.explanation", "TaskKind": "tasks.kind", "TASKS": "tasks.registry",
    "PARTITIONERS": "partitioners.registry", "EDGE_PLACEMENTS": "partitioners.registry", "partition_report": "partitioners.report",
    "CACHE_POLICIES": "caching.registry", "relation_report": "triples.report",
    "whole_graphs": "graph_level.whole_graphs", "import_graph": "ingest.importer", "transform_store": "rewriting.transform",
    "Query": "tables.query",
    "compare_partitions": "partitioners.comparison", "EXCHANGES": "staleness.registry", "HISTORIES": "staleness.registry",
    "HaloExchange": "staleness.exchange", "Bns": "staleness.bns",
    **dict.fromkeys(("pagerank", "components", "degree", "core_number", "triangles", "label_propagation",
                     "bfs", "sssp", "betweenness", "random_walks"), "analytics.functions"),
    "analyse": "analytics.analyse", "Algorithm": "analytics.algorithm", "ALGORITHMS": "analytics.registry",
    "to_torch": "exporting.network", "counterpart": "exporting.layers", "to_onnx": "exporting.onnx",
    "TensorBoard": "train.loggers", "MLflow": "train.loggers",
}
_MODELS = {"Design": "design", "NetworkOptions": "design", "register_model": "registry", "Linear": "mlp", "MLP": "mlp",
           "BatchNorm": "norm", "LayerNorm": "norm", "per_relation": "per_relation",
           **dict.fromkeys(("DistMult", "TransE", "ComplEx", "RotatE"), "triples.decoders")}
_ENGINE = {"Layer": "layer.layer", "Model": "layer.layer", "Module": "layer.module", "recompute": "layer.checkpointing",
           "start": "runtime.start", "Metric": "train.metrics", "METRICS": "train.metrics", "Partitioner": "partition.partitioner",
           "Assignment": "partition.partitioner", "EdgePlacement": "partition.partitioner", "EdgeRule": "partition.partitioner",
           "MappedColumn": "store.mapped", "CachePolicy": "store.cached",
           "NodeSetSampler": "sampling.node_set", "Priority": "sampling.priority", "ranked_by": "sampling.priority"}
_EDGE = {"softmax": "edge.program", "Aggregator": "edge.aggregator", "AGGREGATORS": "edge.aggregator",
         "TopK": "edge.order_statistics"}
_OPS = (
    "Parameter", "Scalar", "SGD", "Adam", "AdamW", "absolute", "batch_norm", "cast", "clip", "concat", "cos",
    "defvjp", "dropout", "elu", "embedding", "exp", "flatten", "gelu", "graph_mean", "graph_sum",
    "layer_norm", "leaky_relu", "linear", "log", "log_softmax",
    "matmul", "max", "maximum", "mean", "min", "minimum", "pick", "power", "primitive", "relu", "reshape", "sigmoid", "sin",
    "softplus", "sqrt", "square", "stack", "stop_gradient", "sum", "tanh", "to_dense", "typed_matmul", "where",
)
# packages that are read by their names: gt.models.GCN
_MODULES = ("errors", "models", "ops")
_HOME = {
    **{name: f"graphtheta.{module}" for name, module in _FRONT.items()},
    **{name: f"graphtheta.models.{module}" for name, module in _MODELS.items()},
    **{name: f"graphtheta.engine.{module}" for name, module in _ENGINE.items()},
    **{name: f"graphtheta.ops.{module}" for name, module in _EDGE.items()},
    **dict.fromkeys(_OPS, "graphtheta.ops"),
}
__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        # importing it makes it an attribute
        return import_module(f"graphtheta.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'graphtheta' has no attribute '{name}'")
    with collector_paused():
        import_module("graphtheta.engine.runtime.start").install_excepthook()
        found = getattr(import_module(_HOME[name]), name)
    # the next access does not come here, as in every pass of a user's layer
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
