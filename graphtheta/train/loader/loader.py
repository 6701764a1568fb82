"""``gt.Loader``: the batches of training, for training loops of other libraries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from graphtheta.base.arguments import checked
from graphtheta.base.described import name_and_options
from graphtheta.base.logger import start_logging
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.runtime.start import start
from graphtheta.engine.sampling.node_set import is_node_set
from graphtheta.engine.strategy.neighbourhoods import neighbourhoods
from graphtheta.engine.strategy.shares import SharedBatch
from graphtheta.engine.strategy.strategy import MiniBatch, Strategy
from graphtheta.engine.strategy.task import NodeTask, label_kind
from graphtheta.engine.train.deal import deal
from graphtheta.engine.train.parts import parts_of_search
from graphtheta.engine.train.supply import ViewSupply
from graphtheta.errors import ConfigError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.datasets.dataset import load
from graphtheta.run.agreement.digest import graph_digests
from graphtheta.run.agreement.ranks import check_arguments, check_graphs, check_jobs
from graphtheta.run.dividing import choose_pair, divide
from graphtheta.run.job.job import Job
from graphtheta.samplers.registry import SAMPLERS
from graphtheta.train.loader.batch import Fields
from graphtheta.train.loader.forms import form_of
from graphtheta.train.loader.prefetch import Prefetch
from graphtheta.train.loader.targets import Nodes
from graphtheta.train.loop.prepare import build_strategy
from graphtheta.train.reuse.caching.setup import with_cached_columns
from graphtheta.train.reuse.macrobatch.setup import comm_of_views
from graphtheta.train.reuse.reuse import Reuse

MODES = ("cooperative", "independent")
DIRECTIONS = ("in", "out")
STRATEGIES = ("mini", "cluster")
# keys of a job that a loader reads
READ = (
    "strategy",
    "batch_size",
    "vertex_limit",
    "order",
    "fanout",
    "sampler",
    "replace",
    "share_sample",
    "clusters",
    "clusters_per_batch",
    "cluster_method",
    "boundary_hops",
    "partitioner",
    "masters",
    "macrobatch",
    "fetch_batch",
    "feature_cache",
    "machine_cache",
    "cache_policy",
    "seed",
    "dtype",
    "log_level",
)


class Loader:
    """Iterates over the batches that ``gt.Trainer`` makes, in the form of another library.

    Args:
        graph: The graph, or the name or path of one, such as that of a store.
        targets: Nodes that batches are made of: "train", "val", "test", "all", or their ids, a mask
            of all nodes, or a pair of a type and numbers of its nodes.
        to: Form of the batches: "pyg" (``Data``, with types ``HeteroData``), "dgl" (input nodes,
            output nodes, blocks), or "arrays" (``LoaderBatch``).
        mode: What a worker gets. "cooperative": of each batch, which is sampled once for all
            workers, the part that leads to the targets that it owns. "independent": a batch of its
            own.
        drop_last: Leave out the last batch of an epoch if it has fewer targets, and steps in which
            not every worker has a batch.
        prefetch: Batches that a thread makes ahead; 0 for none.
        direction: "in" follows edges backwards to their sources, "out" forwards; graphs with types
            take the latter with "arrays" alone.
        comm: The workers; by default those the process was started with.
        **keys: Keys of a job: ``fanout`` (one number for each hop; -1 for all neighbours),
            ``batch_size``, ``sampler``, ``order``, ``replace``, ``share_sample``, ``seed``,
            ``macrobatch``, ``feature_cache`` and others of ``READ``.

    Attributes:
        epoch: Number of the epoch of the last iteration, or of the next one if there was none.
        reuse: Caches and macrobatches, with their counts.

    Raises:
        GraphThetaError: Something does not fit; on all workers together.

    Collective: all ranks of comm, here, in every step of an iteration and in ``sample``.

    Examples:
        >>> loader = gt.Loader(gt.load("sbm"), fanout=[10, 5], batch_size=64, to="arrays")
        >>> batch = next(iter(loader))
        >>> batch.n_targets, len(batch.blocks)
        (64, 2)
    """

    @checked
    def __init__(
        self,
        graph: Graph | str | Path,
        *,
        targets: Any = "train",
        to: str = "pyg",
        mode: str = "cooperative",
        drop_last: bool = False,
        prefetch: int = 0,
        direction: str = "in",
        comm: Comm | None = None,
        **keys: Any,
    ):
        comm = comm if comm is not None else start()
        for name, value, choices in (("mode", mode, MODES), ("direction", direction, DIRECTIONS)):
            if value not in choices:
                raise ConfigError(
                    f"{name} {value!r} is not known; choose from {', '.join(choices)}"
                )
        if prefetch < 0:
            raise ConfigError(f"prefetch: got {prefetch}, expected at least 0")
        job = _job(keys)
        if not job.is_default("log_level"):
            start_logging(job.log_level, comm.rank, comm.size)
        check_jobs(job, comm)
        with comm.agreed():
            self._graph = graph if isinstance(graph, Graph) else load(graph)
            if direction == "out" and to != "arrays" and self._graph.node_types:
                raise ConfigError(
                    f"direction='out' sends against the relations, and edges of to={to!r} go along"
                    " them; give graph.with_inverse_relations() and direction='in', or to='arrays'"
                )
            self._form = form_of(to, self._graph, np.dtype(job.dtype))
            self._nodes = Nodes(self._graph)
            if not isinstance(targets, str):
                targets = self._nodes.numbers(targets)
        arguments = {
            "targets": targets if isinstance(targets, str) else f"checksum {crc32(targets)}",
            "mode": mode,
            "drop_last": drop_last,
            "prefetch": prefetch,
            "direction": direction,
        }
        check_arguments("gt.Loader", arguments, comm)
        # samplers of node sets have no smaller batch
        if drop_last and not is_node_set(SAMPLERS.find(name_and_options(job.sampler)[0])):
            job = job.change(drop_last=True)
        if comm.size > 1:
            check_graphs(graph_digests(self._graph, comm.cores), comm)
        self.comm = comm
        self._mode = mode
        self._partition = with_cached_columns(
            job,
            divide(
                job,
                self._graph,
                choose_pair(job, self._graph, comm, job.epochs),
                comm_of_views(job, comm),
                comm,
            ),
        )
        self._fields = Fields.of(self._graph)
        self._layers = [direction] * max(len(job.fanout), 1)
        with comm.agreed():
            rows = self._nodes.rows(targets, self._partition)
        self._batches = build_strategy(
            job=job,
            graph=self._graph,
            partition=self._partition,
            layers=self._layers,
            task=self._task(rows),
        )
        strategy = self._shared(job) if mode == "cooperative" else self._batches
        self.reuse = Reuse.of(job, strategy, comm.size, independent=comm.size > 1)
        self._supply = ViewSupply(
            strategy,
            views_per_step=comm.size,
            independent=comm.size > 1,
            features=self.reuse.caches.features,
            foresight=self.reuse.foresight,
            ahead=self.reuse.macrobatches,
        )
        self._prefetch = prefetch if comm.takes_threads else 0
        self._views = strategy.steps_per_epoch
        if drop_last:
            self._views -= self._views % comm.size
            with comm.agreed():
                self._check_views()
        self.epoch = 0
        self._step = 0
        self._next = (0, 0)

    def _task(self, rows: np.ndarray) -> NodeTask:
        y = self._graph.y
        kind = "values" if y is None else label_kind(y, self._graph.multilabel)
        return NodeTask(self._partition, kind, rows)

    def _shared(self, job: Job) -> Strategy:
        """The shares of batches that all workers sample together."""
        if not isinstance(self._batches, MiniBatch):
            raise ConfigError(
                "mode='cooperative' divides the targets of a batch among workers, but"
                f" strategy={job.strategy} with sampler={job.sampler} chooses all of its nodes;"
                " give mode='independent'"
            )
        return SharedBatch(self._batches) if self.comm.size > 1 else self._batches

    def _check_views(self) -> None:
        """Refuse ``drop_last`` if it leaves no step.

        Raises:
            ConfigError: There is none.
        """
        n = self._batches.steps_per_epoch
        if not self._views:
            raise ConfigError(
                f"drop_last leaves out the only step of an epoch, which has {n} of the"
                f" {self.comm.size} batches of mode='independent'; give a smaller batch_size, fewer"
                " workers, or leave drop_last off"
            )

    def __len__(self) -> int:
        """Steps of an epoch, on every worker."""
        return -(-self._views // self.comm.size)

    def __iter__(self) -> Iterator[Any]:
        """The batches of the next epoch, on this worker.

        Each iteration is another epoch: the one after that of the iteration before, whether that
        came to its end or not, or the one given to ``set_epoch``.
        """
        epoch, step = self._next
        self._next = (epoch + 1, 0)
        self.epoch = epoch
        self._step = step
        return self._given_out(epoch, step)

    def _given_out(self, epoch: int, step: int) -> Iterator[Any]:
        batches = self._batches_from(epoch, step)
        if self._prefetch:
            ahead = Prefetch(batches, self.comm, self._prefetch)
            with closing(ahead):
                yield from self._counted(ahead, epoch, step)
        else:
            yield from self._counted(batches, epoch, step)

    def _batches_from(self, epoch: int, step: int) -> Iterator[Any]:
        views = self._supply.own_views(epoch, step * self.comm.size, self._views)
        while True:
            with self.comm.ledger.stage("batch"):
                view = next(views, None)
                if view is None:
                    return
                batch = self._form(self._fields.batch(view))
            yield batch

    def _counted(self, batches: Iterator[Any], epoch: int, step: int) -> Iterator[Any]:
        for number, batch in enumerate(batches, start=step + 1):
            if self.epoch == epoch:
                self._step = number
            yield batch

    @checked
    def set_epoch(self, epoch: int, step: int = 0) -> None:
        """Let the next iteration be that of an epoch, from a step on.

        Raises:
            ConfigError: There is no such step.
        """
        if epoch < 0 or not 0 <= step <= len(self):
            raise ConfigError(
                f"set_epoch: got epoch {epoch} and step {step}; expected an epoch of at least 0,"
                f" and a step of 0 to {len(self)}"
            )
        self.epoch = epoch
        self._step = step
        self._next = (epoch, step)

    def state_dict(self) -> dict[str, int]:
        """The batch that follows the last one that was given out: its epoch and step, and the
        number of workers.
        """
        over = len(self) > 0 and self._step == len(self)
        step = 0 if over else self._step
        return {"epoch": self.epoch + over, "step": step, "workers": self.comm.size}

    @checked
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration begin with the batch that a result of ``state_dict`` names. The
        number of workers may be another one in mode "cooperative".

        Raises:
            ConfigError: It is no such result, or a step of mode "independent" of another number of
                workers.
        """
        if missing := sorted({"epoch", "step", "workers"} - set(state)):
            raise ConfigError(
                f"load_state_dict: the state has no {' and no '.join(missing)}; give what"
                " state_dict of a loader returned"
            )
        workers = int(state["workers"])
        if self._mode == "independent" and state["step"] and workers != self.comm.size:
            raise ConfigError(
                f"load_state_dict: the state is that of {workers} workers, and a step of"
                f" mode='independent' has a batch for each of {self.comm.size} here; load it on"
                f" {workers} workers, or begin an epoch with set_epoch({state['epoch']})"
            )
        self.set_epoch(int(state["epoch"]), int(state["step"]))

    @checked
    def sample(self, targets: Any, step: int = 0) -> Any:
        """The batch of some targets, which may differ between workers.

        Args:
            targets: Ids of the targets, each once, [n], or what else the argument ``targets`` of
                the loader may be, but for a split; they come first in the batch, in this order.
            step: Number of the batch; the draws differ from step to step.

        Raises:
            ConfigError: The batches of this loader are not those of targets.
            DataError: An id is unknown or given twice; on all ranks together.
        """
        batches = self._batches
        partition = self._partition
        comm = partition.halo_comm
        with self.comm.agreed():
            if not isinstance(batches, MiniBatch):
                raise ConfigError(
                    "sample: the sampler of this loader chooses all nodes of a batch; make a loader"
                    " with a sampler of neighbours, such as fanout=[10, 5]"
                )
            numbers = self._nodes.numbers(targets)
        asked = comm.all_to_all([numbers] * comm.size)
        searched = neighbourhoods(
            partition=partition,
            layers=self._layers,
            task=self._task(np.arange(partition.n_masters)),
            own=[np.flatnonzero(np.isin(partition.masters, of_rank)) for of_rank in asked],
            steps=[step] * comm.size,
            sampler=batches.sampler,
        )
        assert searched is not None
        parts = parts_of_search(partition, self._layers, searched)
        view = deal(parts, self._layers, self.reuse.caches.features)
        # the search orders targets by number
        return self._form(self._fields.batch(view, np.argsort(np.argsort(numbers))))


def _job(keys: Mapping[str, Any]) -> Job:
    """The job of a loader.

    Raises:
        ConfigError: A key is unknown, is not read, or has a value that is not allowed.
    """
    for key in keys:
        if key in Job.model_fields and key not in READ:
            raise ConfigError(
                f"{key} has no meaning for gt.Loader; drop it. It reads {', '.join(READ)}"
            )
    hops = _n_hops(keys.get("fanout", ()))
    # in both modes a worker has the whole of its batch, and fetches the features
    job = Job(**{"strategy": "mini", **keys, "mode": "independent", "layers": max(hops, 1)})
    if job.strategy not in STRATEGIES:
        raise ConfigError(
            f"strategy={job.strategy} has no meaning for gt.Loader; choose from"
            f" {', '.join(STRATEGIES)}"
        )
    if job.strategy == "mini" and not job.fanout and job.is_default("sampler"):
        raise ConfigError(
            "fanout is empty; give a number of neighbours for each hop, such as [10, 5]"
        )
    return job


def _n_hops(fanout: Any) -> int:
    """Number of hops of a fanout as a job takes it."""
    if isinstance(fanout, str):
        return len([x for x in fanout.split(",") if x.strip()])
    return len(fanout) if isinstance(fanout, Sequence) else 1
