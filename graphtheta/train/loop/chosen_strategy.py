"""``strategy=auto``: the whole graph, mini-batches or clusters, by the time that training is
predicted to take.

Training with batches of B targets takes about 1 + NOISE / B times as many updates as training with
exact gradients, and each of them takes the time that the cost model counts for a batch and its
neighbourhood, and for the share of an update in evaluations, which read the whole graph. The way of
the least product is chosen, among those

- that fit into the memory of the machines of the job, and
- that make ``UPDATES`` updates in the epochs of the job, if any does; otherwise, those that make
  most.

Sampled neighbourhoods change what a model learns, so sampling must save more than a factor of
``SAMPLING_SAVES``. Clusters leave edges out, and are only chosen where nothing else fits.

Counts and constants alone decide, and the memory that machines have, not what is free of it. So all
workers choose alike, on any number of workers of a machine, and a job that is repeated chooses the
same.

Source: S = S_min (1 + B_noise / B), https://arxiv.org/abs/1812.06162 (section 2.3); the constant is
fitted to ``bench/time_to_accuracy.py``
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphtheta.base.console import amount, figure
from graphtheta.base.costs import EVALUATED, FLOPS, GRADIENTS_ALIVE, LISTED, PASSES, PHASE
from graphtheta.base.memory import total_bytes
from graphtheta.base.sparse import is_sparse
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.layer.dry_run import Probe
from graphtheta.engine.layer.opened import message_of, order_of
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.strategy.registry import AUTO
from graphtheta.engine.strategy.task import Task
from graphtheta.engine.view.hop import depth, hops
from graphtheta.inference.forward.assembly import Prepared
from graphtheta.run.job.job import Job, read_keys
from graphtheta.run.job.keyfile import JOB_FILE
from graphtheta.run.job.keys import ASKING
from graphtheta.train.loop.level_work import level_work, row_work, steps_of

# targets of a batch whose gradient is as far from the exact one as that is long
NOISE = 300
# updates without which a model has learned little
UPDATES = 100
# least factor that sampling must save
SAMPLING_SAVES = 2.0
# batches that are compared, and neighbours of a node that are sampled
BATCH_SIZES = (128, 256, 512, 1024, 2048, 4096)
FANOUT = 10
# classes of a degree of fewer than 2**40
MOST_CLASSES = 80
# share of the memory of the machines that values of a step may take
MEMORY_SHARE = 0.5
# how the line of a choice begins to speak of times
UPDATE = "an update with its share of evaluations is predicted to take"
# keys that are chosen
CHOSEN = ("strategy", "batch_size", "fanout", "clusters")


@dataclass(frozen=True)
class Degrees:
    """Nodes of about equal numbers of in-edges and out-edges, in classes.

    Attributes:
        nodes: Nodes of each class, [k].
        into, out: In-edges and out-edges of a node of each, by the mean, [k].
    """

    nodes: np.ndarray
    into: np.ndarray
    out: np.ndarray


@dataclass(frozen=True)
class Facts:
    """What the choice depends on, besides the job and the model.

    Attributes:
        nodes, edges: Of the message-passing graph.
        degrees: Of its nodes.
        targets: Training targets.
        nodes_per_target: Nodes from which the neighbourhood of a target begins.
        density: Share of the numbers of the features that are stored.
        memory: Bytes of memory of all machines.
    """

    nodes: int
    edges: int
    degrees: Degrees
    targets: int
    nodes_per_target: float
    density: float
    memory: int


class Way(NamedTuple):
    """A way to train.

    Attributes:
        keys: Keys of the job.
        batch: Targets of a batch.
        steps: Updates of an epoch.
        seconds: Predicted time of an update with its share of evaluations, on one core.
        memory: Bytes of the values of a step.
    """

    keys: dict[str, Any]
    batch: int
    steps: int
    seconds: float
    memory: float

    @property
    def cost(self) -> float:
        """Time in which as much is learned as in an update with the exact gradient."""
        return self.seconds * (1 + NOISE / self.batch)

    @property
    def name(self) -> str:
        """As one would write it in a job."""
        return ", ".join(f"{key}={value}" for key, value in self.keys.items())


class StrategyChoice(NamedTuple):
    """The job with the keys that were chosen, and a line that says why."""

    job: Job
    reason: str


def facts_of(prepared: Prepared, partition: Partition, task: Task, memory: int) -> Facts:
    """The facts of a job.

    Args:
        prepared: Its graph and kind of task.
        partition: The graph on the workers.
        task: Its objective.
        memory: Bytes of memory of all machines.

    Collective: all ranks of the partition.
    """
    graph = prepared.graph
    kind = prepared.kind
    sparse = is_sparse(graph.x) and not prepared.job.embedding
    per_target = 1.0
    if kind.of_pairs:
        per_target = 2.0 + ("negatives" in kind.keys) * prepared.job.negatives
    elif prepared.info.whole is not None:
        per_target = graph.n_nodes / max(len(prepared.info.whole[0]), 1)
    return Facts(
        nodes=graph.n_nodes,
        edges=graph.n_edges,
        degrees=degrees_of(partition),
        targets=task.n_targets,
        nodes_per_target=per_target,
        density=graph.x.nnz / max(prod(graph.x.shape), 1) if sparse else 1.0,
        memory=memory,
    )


def degrees_of(partition: Partition) -> Degrees:
    """The degrees of all nodes, of which numbers below 3 have classes of their own, and two classes
    lie between a power of two and the next.

    Collective: all ranks of the partition.
    """
    into, out = (
        partition.node.read(name).astype(np.float64) for name in ("in_degree", "out_degree")
    )
    classes = [np.floor(2 * np.log2(1 + x)).astype(np.int64) for x in (into, out)]
    code = classes[0] * MOST_CLASSES + classes[1]
    # sums of integers, so that they do not depend on the number of workers; of no nodes bincount
    # makes integers, whatever the weights
    own = [
        np.bincount(code, weights=x, minlength=MOST_CLASSES**2).astype(np.float64)
        for x in (into**0, into, out)
    ]
    sums = partition.halo_comm.all_sum(np.stack(own))
    nodes, edges_in, edges_out = sums[:, sums[0] > 0]
    return Degrees(nodes, edges_in / nodes, edges_out / nodes)


def memory_of_machines(comm: Comm) -> int:
    """Bytes of memory of the machines of all workers, each as much as the smallest one has.

    Collective: all ranks of comm.
    """
    least = int(comm.all_min(np.asarray(total_bytes()))) if comm.size > 1 else total_bytes()
    return least * len(np.unique(comm.machines))


def with_strategy(
    prepared: Prepared, partition: Partition, probe: Probe, task: Task, comm: Comm
) -> StrategyChoice:
    """The choice of a job with ``strategy=auto``. A run that is resumed goes on as it began.

    Args:
        prepared: The job, its graph and its kind of task.
        partition: The graph on the workers.
        probe: Dry run of the model.
        task: The objective.
        comm: The workers.

    Collective: all ranks of comm.
    """
    job = prepared.job
    choice = _recorded(job, comm)
    if choice is None:
        facts = facts_of(prepared, partition, task, memory_of_machines(comm))
        choice = choose_strategy(job, probe, facts)
    if all(map(job.is_default, ASKING)):
        return choice
    # the name of the folder does not depend on the choice
    return choice._replace(job=choice.job.change(out=str(job.folder)))


def _recorded(job: Job, comm: Comm) -> StrategyChoice | None:
    """The choice of the run that a job resumes; None if there is none.

    Collective: all ranks of comm.
    """
    if not job.resume:
        return None
    keys = None
    path = Path(job.folder, JOB_FILE)
    with comm.agreed():
        if comm.rank == 0 and path.is_file():
            recorded = read_keys(path)
            keys = {key: recorded[key] for key in CHOSEN if key in recorded}
    keys = comm.broadcast(keys)
    if not keys or keys.get("strategy") == AUTO:
        return None
    return StrategyChoice(job.change(**keys), f"strategy={AUTO}: as the run in {job.folder} began")


def choose_strategy(job: Job, probe: Probe, facts: Facts) -> StrategyChoice:
    """Choose strategy, batch size and fan-out.

    Args:
        job: A job with ``strategy=auto``.
        probe: Dry run of the model.
        facts: The same on all workers.
    """
    ways = list(_ways(job, probe, facts))
    limit = MEMORY_SHARE * facts.memory
    whole = ways[0]
    fitting = [way for way in ways if way.memory <= limit]
    if not fitting:
        chosen = _clusters(whole, limit)
        why = (
            f"values of the whole graph take {amount(round(whole.memory))}, neighbourhoods of a"
            f" mini-batch no less than {amount(round(min(way.memory for way in ways)))}, and"
            f" {amount(round(limit))} may be used"
        )
    else:
        enough = _with_updates(job, fitting)
        exact = [way for way in enough if "fanout" not in way.keys]
        sampled = [way for way in enough if "fanout" in way.keys]
        chosen = min(exact or sampled, key=lambda way: way.cost)
        fewest = min(sampled or exact, key=lambda way: way.cost)
        if fewest.cost * SAMPLING_SAVES < chosen.cost:
            chosen = fewest
        why = _reason(
            job=job, chosen=chosen, whole=whole, facts=facts, fitting=fitting, enough=enough
        )
    return StrategyChoice(job.change(**chosen.keys), f"strategy={AUTO}: {chosen.name}, since {why}")


def _with_updates(job: Job, ways: list[Way]) -> list[Way]:
    """Those that make enough updates, or else the most."""
    if job.steps:
        return ways
    wanted = min(UPDATES, max(job.epochs * way.steps for way in ways))
    return [way for way in ways if job.epochs * way.steps >= wanted]


def _reason(
    job: Job, chosen: Way, whole: Way, facts: Facts, fitting: list[Way], enough: list[Way]
) -> str:
    """Why a way was chosen, in words."""
    of = f"{figure(facts.targets)} targets among {figure(facts.nodes)} nodes"
    if whole not in fitting:
        return (
            f"values of the whole graph take {amount(round(whole.memory))}, and those of a batch"
            f" {amount(round(chosen.memory))}; {of}"
        )
    if whole not in enough:
        return (
            f"{job.epochs} epochs make {job.epochs * chosen.steps} updates, and only"
            f" {job.epochs * whole.steps} on the whole graph; {of}"
        )
    if chosen is whole:
        other = min((way for way in enough if way is not whole), key=lambda way: way.cost)
        return (
            f"{UPDATE} {1000 * whole.seconds:.3g} ms on a core, and with"
            f" {other.name} {1000 * other.seconds:.3g} ms and"
            f" {(1 + NOISE / other.batch) / (1 + NOISE / whole.batch):.2g} times the updates; {of}"
        )
    return (
        f"{UPDATE} {1000 * chosen.seconds:.3g} ms on a core, and"
        f" {1000 * whole.seconds:.3g} ms on the whole graph; {of}"
    )


def _ways(job: Job, probe: Probe, facts: Facts) -> Iterator[Way]:
    """The whole graph, and then mini-batches."""
    n_hops = depth(probe.layers)
    forward = _seconds(
        job=job,
        probe=probe,
        facts=facts,
        rows=[facts.nodes] * (n_hops + 1),
        edges=[facts.edges * _directions(probe)] * n_hops,
    )
    evaluation = EVALUATED * forward / job.eval_every
    yield Way(
        keys={"strategy": "global"},
        batch=facts.targets,
        steps=1,
        seconds=PASSES * forward + evaluation,
        memory=_memory(job, probe, facts.nodes),
    )
    # one of all targets is worth it where these are few
    for size in (*(size for size in BATCH_SIZES if size < facts.targets), facts.targets):
        steps = ceil(facts.targets / size)
        for sampled in (0, FANOUT) if _may_sample(probe) else (0,):
            rows, edges = _neighbourhood(probe, facts, size, sampled)
            listed = (LISTED * sum(edges) + PHASE * len(probe.layers)) / FLOPS
            update = listed + PASSES * _seconds(
                job=job, probe=probe, facts=facts, rows=rows, edges=edges
            )
            yield Way(
                keys={"strategy": "mini", "batch_size": size}
                | ({"fanout": sampled} if sampled else {}),
                batch=size,
                steps=steps,
                seconds=update + evaluation / steps,
                memory=_memory(job, probe, rows[-1]),
            )


def _may_sample(probe: Probe) -> bool:
    """Whether no layer makes edge values, which a later one might read for other edges."""
    return not any(
        phase.outputs.keys()
        - {of(name) for name in step.in_order(phase) for of in (message_of, order_of)}
        for step in probe.supersteps
        if step.program is not None and step.made_by is not None and step.made_by.sum is not None
        for phase in step.program.phases
    )


def _directions(probe: Probe) -> int:
    """Passes over the edges of the graph in a layer."""
    return 2 if any(hop.direction == "both" for hop in hops(probe.layers)) else 1


def _neighbourhood(
    probe: Probe, facts: Facts, size: int, sampled: int
) -> tuple[list[float], list[float]]:
    """Expected nodes of a batch within 0, 1, ... hops of its targets, and edges of each hop, where
    the ends of edges are drawn at random among all ends.

    Nodes with many edges are reached first, and once they are, more edges lead to no more nodes. A
    batch that is drawn would show this, too, but its kernels take longer to load than the choice.

    Args:
        probe: Gives the hops.
        facts: Of the graph.
        size: Targets of the batch.
        sampled: Neighbours of a node, at most; 0 for all.
    """
    of = facts.degrees
    ends = [(of.into, of.out), (of.out, of.into)]
    direction_of = {hop.from_end: hop.direction for hop in hops(probe.layers)}
    share = np.full(len(of.nodes), min(1.0, size * facts.nodes_per_target / max(facts.nodes, 1)))
    before = np.zeros(len(of.nodes))
    rows = [float(share @ of.nodes)]
    edges = []
    for hop in range(depth(probe.layers)):
        used = 0.0
        arriving = np.zeros(len(of.nodes))
        for taken, sent in {"in": ends[:1], "out": ends[1:]}.get(direction_of[hop], ends):
            each = np.minimum(taken, sampled) if sampled else taken
            used += float((share * each) @ of.nodes)
            # edges of the hop before that are read again lead to no other nodes
            again = before * each / np.maximum(taken, 1)
            arriving += float(((share - again) * each) @ of.nodes) * sent / max(facts.edges, 1)
        before = share
        share = 1 - (1 - share) * np.exp(-arriving)
        rows.append(float(share @ of.nodes))
        edges.append(used)
    return rows, edges


def _seconds(
    job: Job, probe: Probe, facts: Facts, rows: Sequence[float], edges: Sequence[float]
) -> float:
    """Predicted time of a forward pass on one core, without that to make the view.

    Args:
        job: The job.
        probe: Dry run of the model.
        facts: Of the graph.
        rows: Nodes within 0, 1, ... hops of the targets.
        edges: Edges of each hop, from the targets outwards.
    """
    layers = iter(hops(probe.layers))
    itemsize = np.dtype(job.dtype).itemsize
    between = sum(row_work(probe, i, "other") for i in range(-1, len(probe.supersteps)))
    work = between * rows[0]
    phases = 0
    for step in steps_of(probe):
        phases += len(step.widths)
        if step.sums:
            far = next(layers).from_end
            work += level_work(
                probe=probe,
                superstep=step.number,
                widths=step.widths,
                itemsize=itemsize,
                rows_in=rows[far + 1],
                rows_out=rows[far],
                edges=edges[far],
                density=facts.density,
            )
    return (work + PHASE * phases / PASSES) / FLOPS


def _memory(job: Job, probe: Probe, rows: float) -> float:
    """Bytes of the values of a step over some nodes."""
    width = probe.node_width + GRADIENTS_ALIVE * probe.widest
    return rows * width * np.dtype(job.dtype).itemsize


def _clusters(whole: Way, limit: float) -> Way:
    """Clusters whose values fit, with room for those that are larger than others."""
    n = ceil(2 * whole.memory / max(limit, 1.0))
    return whole._replace(
        keys={"strategy": "cluster", "clusters": n}, steps=n, memory=whole.memory / n
    )
