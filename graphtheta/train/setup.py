"""From a job to what the trainer needs: the graph, the model, the task and the strategy."""
from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from graphtheta.data.graph import Graph
from graphtheta.data.split import LinkSplit, distinct_pairs, link_split
from graphtheta.data.transform import pair_key
from graphtheta.datasets.dataset import load
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.layer.dry_run import Probe, probe
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.engine.partition.clusters import find_clusters
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.sampling.sampler import NeighbourSampler
from graphtheta.engine.train.evaluate import SPLITS, EdgeEvaluator, Evaluator, LinkEvaluator, NodeEvaluator
from graphtheta.engine.view.hop import Layers, depth
from graphtheta.engine.view.strategy import ClusterBatch, GlobalBatch, MiniBatch, Strategy
from graphtheta.engine.view.task import EdgeTask, Links, LinkTask, NodeTask, Task, label_kind
from graphtheta.errors import ConfigError, DataError, GraphThetaError
from graphtheta.job.job import Job, flag
from graphtheta.models.registry import MODELS, READ_BY, Options, build_model
from graphtheta.models.user import accepted, load_user_class
from graphtheta.ops.autodiff.init import dtype_scope, init_scope
from graphtheta.ops.autodiff.naming import naming

Factory = Callable[..., Model]
# in integer columns of self loops that were added without a value: a row of no table
NO_CODE = -1


@dataclass
class GraphInfo:
    """What is kept of the whole graph once it is spread over the workers: names for results."""

    node_ids: np.ndarray | None
    links: np.ndarray | None
    edges: np.ndarray

    def named(self, out: np.ndarray, per_edge: bool) -> tuple[np.ndarray, np.ndarray]:
        """Outputs with what they belong to: original node ids; for links those of their two ends, for edges their numbers.

        Self loops that were added have no number, and their outputs are left out.
        """
        if self.links is not None:
            return (self.links if self.node_ids is None else self.node_ids[self.links]), out
        if per_edge:
            return self.edges, out[:len(self.edges)]
        return (np.arange(len(out)) if self.node_ids is None else self.node_ids), out


@dataclass
class Setup:
    """A job made concrete.

    Attributes:
        graph: The graph messages run over.
        kind: Of labels: "classes", "labels" or "values".
        task: "node", "edge" or "link".
        width: Trailing size of the outputs; 0 for one number without an axis of its own.
        unknown: Integer edge columns that have no value for the self loops that were added.
    """

    job: Job
    graph: Graph
    model: Model
    info: GraphInfo
    task: str
    kind: str
    width: int
    split: LinkSplit | None = None
    known: np.ndarray | None = None
    unknown: frozenset[str] = frozenset()

    def check_columns(self, model: Model, partition: Partition) -> None:
        """The model reads no edge column that self loops which were added have no value for.

        Raises:
            DataError: It does.
        """
        made: set[str] = set()
        for step in probe(model, partition).supersteps if self.unknown else ():
            phases = step.program.phases if step.program is not None else []
            for name in (n for phase in phases for n in phase.reads["edge"] if n in self.unknown and n not in made):
                raise DataError(f"{step.layer} reads edge.{name}, an integer column, for which the self loops that were added have no "
                                f"value; add them beforehand with graph.with_self_loops(columns={{{name!r}: VALUE}}), or choose "
                                "self_loops='no' (--self-loops no)")
            made |= {n for phase in phases for n in phase.outputs}

    def check_output(self, probe: Probe) -> None:
        """The model's outputs fit the labels.

        Raises:
            ConfigError: They do not.
        """
        name = type(self.model).__name__
        if probe.per_edge != (self.task != "node"):
            per, want = ("edges", "nodes") if probe.per_edge else ("nodes", "pairs of nodes")
            raise ConfigError(f"{name} returns values of {per}, the task '{self.task}' needs values of {want}; "
                              "end forward with a decoder for edges, or choose another --task")
        got = int(np.prod(probe.output))
        if got != max(self.width, 1) or len(probe.output) > 1:
            what = {"classes": "classes", "labels": "labels", "values": "target values"}[self.kind]
            raise ConfigError(f"{name} returns {list(probe.output)} values each, the data has {max(self.width, 1)} {what}; "
                              "build the model with that output width")

    def build_task(self, partition: Partition, layers: Layers) -> tuple[Task, Evaluator]:
        """The task and what measures it.

        Collective: all ranks of the partition.
        """
        if self.task == "node":
            return NodeTask(partition, self.kind), NodeEvaluator(partition, layers, self.kind)
        if self.task == "edge":
            masks: dict[str, np.ndarray] = {n: partition.edge[n] for n in SPLITS if n in partition.edge}
            task = EdgeTask(partition, masks["train"], self.kind)
            return task, EdgeEvaluator(partition, layers, task, masks)
        assert self.split is not None and self.known is not None
        job, graph = self.job, self.graph
        pair = pair_key(np.minimum(graph.src, graph.dst), np.maximum(graph.src, graph.dst), graph.n_nodes)
        positive = distinct_pairs(graph, pair, graph.src != graph.dst)
        held = {n: Links(ends[0], ends[1], self.known, job.eval_negatives, job.seed + i)
                for i, (n, ends) in enumerate((("val", self.split.val), ("test", self.split.test)))}
        train = Links(positive[0], positive[1], self.known, job.negatives, job.seed)
        return LinkTask(partition, train, seed=job.seed), LinkEvaluator(partition, layers, held)


def load_graph(job: Job) -> Graph:
    """The job's dataset; self loops are left for ``prepare``, where the model has a say.

    Raises:
        ConfigError, FormatError, DataError: It cannot be had.
    """
    options: dict[str, Any] = {"split": job.split, "seed": job.seed, "symmetric": job.symmetric, "largest_component": job.largest_component,
                               "normalise_features": job.normalise_features}
    options |= {n: getattr(job, n) for n in ("train_per_class", "val_per_class") if getattr(job, n)}
    return load(job.dataset, data_dir=job.data_dir or None, **options)


def prepare(job: Job, graph: Graph, given: Model | Factory | None = None) -> Setup:
    """Choose the task, make the model, and bring the graph into the shape both want.

    Raises:
        ConfigError, DataError: Job, graph and model do not fit together.
    """
    if graph.x is None and not graph.node_columns:
        raise DataError(f"{graph.name or 'the graph'} has no node features x; give the graph some, for example its degrees")
    task = job.task if job.task != "auto" else "node" if graph.y is not None else "edge" if graph.edge_y is not None else "link"
    kind, width = _labels(task, graph)
    if task != "link":
        _refuse_unread(job, {"negatives", "eval_negatives", "decoder"}, f"task={task}", "give --task link")
    if task != "node":
        _refuse_unread(job, {"precompute"}, f"task={task}, which takes edges out of the neighbourhoods", "give --task node")
    split = known = None
    if task == "link":
        src, dst = np.concatenate((graph.src, graph.dst)), np.concatenate((graph.dst, graph.src))
        known = np.unique(src * np.int64(graph.n_nodes) + dst)
        split = link_split(graph, seed=job.seed)
        graph = split.graph
    model = make_model(job, graph, task, width, given)
    loops, edges, unknown = job.self_loops, np.arange(graph.n_edges), frozenset[str]()
    if loops == "yes" or (loops == "auto" and any(m.self_loops for m in model.modules() if isinstance(m, Layer))):
        whole = frozenset(name for name, x in graph.edge_columns.items() if x.dtype.kind == "i")
        graph = graph.with_self_loops(columns=dict.fromkeys(whole, NO_CODE))
        unknown = whole if graph.n_edges > len(edges) else unknown
    elif loops == "no":
        edges = np.flatnonzero(graph.src != graph.dst)
        graph = graph.without_self_loops()
    if task == "node":
        graph.require_training()
    elif task == "edge" and (graph.edge_train is None or not graph.edge_train.any()):
        raise DataError(f"{graph.name or 'the graph'} has no training edges; give it an edge_train mask")
    info = GraphInfo(graph.node_ids, None if split is None else split.test.T, edges)
    return Setup(job, graph, model, info, task, kind, width, split, known, unknown)


def _labels(task: str, graph: Graph) -> tuple[str, int]:
    """Kind of labels and how many numbers predict one row."""
    if task == "link":
        return "labels", 0
    y = graph.y if task == "node" else graph.edge_y
    if y is None:
        field = "y" if task == "node" else "edge_y"
        raise DataError(f"{graph.name or 'the graph'} has no labels for task '{task}'; give it {field}, or choose another --task")
    kind = label_kind(y, graph.multilabel and task == "node")
    return kind, graph.n_classes if kind == "classes" else (y.shape[1] if y.ndim == 2 else 1)


def make_model(job: Job, graph: Graph, task: str, width: int, given: Model | Factory | None = None) -> Model:
    """The model of a job, with weights drawn from its seed.

    Raises:
        ConfigError: It cannot be made.
    """
    sizes = {"d_in": graph.n_features, "d_out": max(width, 1), "d_edge": graph.n_edge_features}
    offered = {**sizes, **_options(job)}
    with dtype_scope(job.dtype), init_scope(job.seed):
        if given is None and ":" not in job.model:
            unread = {option for option, models in READ_BY.items() if job.model in MODELS and job.model not in models}
            _refuse_unread(job, unread, f"model={job.model}", "choose a model that reads it")
            decoder = {"node": "none", "edge": "edge", "link": job.decoder}[task]
            return build_model(job.model, **sizes, decoder=decoder, **_options(job))
        factory = _check_factory(load_user_class(job.model) if given is None else given)
        if isinstance(factory, Model):
            _refuse_unread(job, set(_options(job)), "a model that is made already",
                           f"give the class, gt.Trainer({type(factory).__name__}, ...), so that the job makes it")
            return _check_dtype(factory, job)
        name = job.model if given is None else getattr(given, "__name__", "the function")
        taken = accepted(name, factory, offered)
        _refuse_unread(job, set(offered) - set(taken), f"{name}, whose constructor does not name it", "let it have such a parameter")
        with naming(f"constructor of {name}"):
            made = factory(**taken)
        if not isinstance(made, Model):
            raise ConfigError(f"the function that makes the model returned {type(made).__name__}; expected a gt.Model")
        return _check_dtype(made, job)


def _check_factory(given: Any) -> Any:
    layer = given if isinstance(given, Layer) else given if inspect.isclass(given) and issubclass(given, Layer) else None
    if layer is not None:
        name = layer.__name__ if inspect.isclass(layer) else type(layer).__name__
        raise ConfigError(f"{name} is a layer, and a layer runs inside a model: write a gt.Model whose forward(self, graph) returns "
                          f"self.layer(graph, graph.x), with self.layer = {name}(...)")
    if not isinstance(given, Model) and not callable(given):
        raise ConfigError(f"gt.Trainer(MODEL, GRAPH): the model is of type {type(given).__name__}; expected the name of a published model, "
                          "FILE.py:Class, a gt.Model, or a class or function that makes one")
    return given


def _check_dtype(model: Model, job: Job) -> Model:
    for name, p in model.named_parameters():
        if p.dtype != job.dtype:
            raise ConfigError(f"{name} of {type(model).__name__} was made in {p.dtype} and the job computes in dtype={job.dtype}; give the "
                              f"class, gt.Trainer({type(model).__name__}, ...), or a function that makes it, so that the job makes it")
    return model


def _refuse_unread(job: Job, keys: set[str], by: str, remedy: str) -> None:
    """Refuse choices of the user that would be ignored."""
    for key in (k for k in Job.model_fields if k in keys and getattr(job, k) != Job.model_fields[k].default):
        readers = f", but with {', '.join(READ_BY[key])}" if key in READ_BY and by.startswith("model=") else ""
        raise ConfigError(f"{key}={job.as_text(key)} has no meaning with {by}{readers}; drop {flag(key)}, or {remedy}")


def source_of(model: Any) -> str:
    """A model of the user's as FILE.py:Class, for records."""
    made_by = type(model) if isinstance(model, (Model, Layer)) else model
    file = getattr(sys.modules.get(getattr(made_by, "__module__", "")), "__file__", None)
    return f"{Path(file).name if file else 'session.py'}:{getattr(made_by, '__name__', type(made_by).__name__)}"


def _options(job: Job) -> dict[str, Any]:
    return {f.name: getattr(job, f.name) for f in fields(Options) if f.name in Job.model_fields and f.name != "decoder"}


def build_strategy(job: Job, graph: Graph, partition: Partition, layers: Layers, task: Task) -> Strategy:
    """The strategy of a job.

    Collective: all ranks of the partition.
    """
    if job.strategy == "global":
        return GlobalBatch(partition, layers, task, job.seed)
    if job.strategy == "mini":
        fanouts = job.fanouts(depth(layers))[::-1]
        sampler = NeighbourSampler(fanouts, job.replace, job.seed, job.share_sample) if fanouts else None
        return MiniBatch(partition, layers, task, job.seed, batch_size=job.batch_size or len(task.targets), sampler=sampler)
    clusters = _clusters(job, graph, partition.comm)
    return ClusterBatch(partition, layers, task, job.seed, clusters=clusters, per_batch=job.clusters_per_batch,
                        boundary_hops=job.boundary_hops, degrees=job.degrees, diagonal=job.diagonal)


def _clusters(job: Job, graph: Graph, comm: Comm) -> np.ndarray:
    """Clusters found on rank 0, so that all ranks have the same."""
    error, found = None, None
    if comm.rank == 0:
        try:
            found = find_clusters(graph.src, graph.dst, graph.n_nodes, job.cluster_method, job.clusters, job.seed)
        except GraphThetaError as e:
            error = e
    comm.agree(error)
    return np.asarray(comm.broadcast(found))
