"""Historical embedding cache in mini-batches: rows of other workers are leaves whose values come
from a cache.

A worker expands its own targets over its own edges. Nodes of other workers are leaves: the first
layer reads a cache of their features, or copies of these; later layers read a cache of the values
that their owners have pushed. Workers push what they compute: of each batch and layer, up to ``nc``
of the nodes that another worker has as mirrors, drawn in proportion to their degrees. No gradient
flows into cached values.

    batch k:  store the messages of batch k - d
              layer l: compute own rows; push; read leaves from the cache; drop or fetch the others

In cooperative mode a batch has targets of all workers, of which each computes its own. In
independent mode each worker has batches of its own.

Source: DistGNN-MB, https://arxiv.org/abs/2211.06385
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np

from graphtheta.base.rng import Purpose, key, uniform
from graphtheta.engine.comm.serial import LocalComm
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.partition.relation import EDGE
from graphtheta.engine.sampling.sampler import PreparedSampler, Sampler
from graphtheta.engine.store.history import NEVER, History
from graphtheta.engine.strategy.strategy import MiniBatch, Strategy
from graphtheta.engine.strategy.task import Task
from graphtheta.engine.train.deal import deal
from graphtheta.engine.train.fetch import Features
from graphtheta.engine.train.parts import parts_of_views
from graphtheta.engine.view.expand import all_passes, k_hop_view
from graphtheta.engine.view.hop import Layers, depth, hops
from graphtheta.engine.view.level import Level
from graphtheta.engine.view.view import GraphView
from graphtheta.errors import ConfigError
from graphtheta.ops.autodiff.tape import Var, current
from graphtheta.train.reuse.staleness.approximate import StateArrays
from graphtheta.train.reuse.staleness.histories import (
    HistoryBatches,
    check_limits,
    check_targets,
)
from graphtheta.train.reuse.staleness.leaf_rows import packed, with_leaves
from graphtheta.train.reuse.staleness.mirror_rows import NO_LIMIT, MirrorRows, Push
from graphtheta.train.reuse.staleness.own_batches import own_batches
from graphtheta.train.reuse.staleness.reads import FEATURES, Reads
from graphtheta.train.reuse.staleness.selections import from_senders
from graphtheta.train.reuse.staleness.stale_batch import check_senders
from graphtheta.train.reuse.staleness.surroundings import surroundings

KNOBS = "knobs"
MISSES = ("drop", "fetch")
COPIES = ("cached", "copied")


class Hec:
    """A cache of embeddings of other workers' nodes.

    Args:
        cs: Lines of the cache of each layer; -1 for as many as there are mirrors.
        ls: Most steps for which a line is read; -1 for no limit. Features have none.
        nc: Most nodes that a worker pushes to another one in a batch and layer; -1 for all.
        d: Batches after which a pushed value is stored; 0 within the batch.
        miss: "drop" leaves out edges from nodes that are not in the cache, "fetch" asks their
            owners for the last value that they have computed, and leaves out edges only if there is
            none.
        features: "cached" has a cache of the features of mirrors, as of a layer: the published
            form, in which a worker holds features of its own nodes only. "copied" copies those of
            mirrors before training.

    Raises:
        ConfigError: An option is out of range.
    """

    name: ClassVar = "hec"
    strategy: ClassVar = "mini"
    modes: ClassVar[tuple[str, ...]] = ("cooperative", "independent")
    one_by_one: ClassVar = (
        "its batches are expanded among the rows of a worker without a message, so that there is"
        " nothing to merge"
    )

    def __init__(
        self,
        cs: int = 1_000_000,
        ls: int = 2,
        nc: int = 2000,
        d: int = 1,
        miss: str = "drop",
        features: str = "cached",
    ):
        check_limits(self.name, {"cs": (cs, 1), "ls": (ls, 0), "nc": (nc, 1)})
        if d < 0:
            raise ConfigError(f"history=hec: d is {d}; expected a number of batches")
        for option, text, choices in (("miss", miss, MISSES), ("features", features, COPIES)):
            if text not in choices:
                raise ConfigError(
                    f"history=hec: {option} is {text!r}; expected {' or '.join(choices)}"
                )
        self.cs = cs
        self.ls = ls
        self.nc = nc
        self.d = d
        self.fetch = miss == "fetch"
        self.cached = features == "cached"

    def open(
        self, partition: Partition, layers: Layers, task: Task, seed: int, **arguments: Any
    ) -> Strategy:
        """The strategy; arguments are those of ``MiniBatch``, and ``independent``."""
        return HecBatch(partition, layers, task, seed, policy=self, **arguments)


class _Message(NamedTuple):
    """Pushed values of one layer that wait: step and number of the layer, and the push, or its
    result once it has ended.
    """

    step: int
    number: int
    what: Push | tuple[np.ndarray, np.ndarray]

    def end(self) -> tuple[np.ndarray, np.ndarray]:
        """Mirrors [n] and values [n, ...]."""
        return self.what.end() if isinstance(self.what, Push) else self.what


class HecBatch(MiniBatch, HistoryBatches):
    """Batches of targets; each worker computes its own ones, with a cache for the nodes of the
    others.

    Args:
        policy: Sizes and limits.
        batch_size, sampler, drop_last: As for ``MiniBatch``; in independent mode they are about
            the batches of one worker, see ``own_batches``.
        independent: Whether each worker has batches of its own, of which view i of an epoch belongs
            to worker i % n of n.

    Raises:
        ConfigError: The targets are not nodes, values depend on their times, messages are summed at
            mirrors, or features to be cached are sparse.
    """

    def __init__(
        self,
        partition: Partition,
        layers: Layers,
        task: Task,
        seed: int = 0,
        *,
        policy: Hec,
        batch_size: int,
        sampler: Sampler | None = None,
        independent: bool = False,
        drop_last: bool = False,
    ):
        check_targets(Hec.name, task, sampler)
        check_senders(partition, layers, "history=hec")
        if policy.cached:
            for name in partition.node.wide():
                if partition.node.column(name).sparse:
                    raise ConfigError(
                        f"history=hec: the node column {name!r} is sparse, and a cache holds rows"
                        " of one length; give it as a dense array, or features=copied"
                    )
        super().__init__(
            surroundings(partition, wide=not policy.cached),
            layers,
            task,
            seed,
            batch_size=batch_size,
            sampler=sampler,
            drop_last=drop_last and not independent,
        )
        self._whole = partition
        self._supersteps = hops(layers)
        self.alone = independent
        self._width = partition.halo_comm.size if independent else 1
        if independent:
            self._order = own_batches(
                partition=partition,
                n_targets=len(task.ids),
                batch_size=batch_size,
                seed=seed,
                drop_last=drop_last,
            )
        sending = [
            relation.served(reverse)[0]
            for relation, reverse in all_passes(partition, self._supersteps).values()
        ]
        self._link = MirrorRows(partition, *(sending or [partition.relations[EDGE].sources])[0])
        self.ls = policy.ls
        self.nc = policy.nc
        self.d = policy.d
        self.fetch = policy.fetch
        self.cached = policy.cached
        n = partition.n_mirrors
        read = [number for number, hop in enumerate(self._supersteps) if hop.from_end]
        cached = [FEATURES, *read] if self.cached else read
        self._cache = {
            number: History(n, n if policy.cs == NO_LIMIT else policy.cs) for number in cached
        }
        self._own = {number: History(partition.n_masters, partition.n_masters) for number in read}
        self._histories = {f"cache/{number}": history for number, history in self._cache.items()}
        self._histories |= {f"own/{number}": history for number, history in self._own.items()}
        self._waiting: list[_Message] = []
        self._reads = Reads(cached)

    def _targets(self, epoch: int, i: int) -> np.ndarray:
        return self.task.seeds(self._order.own(epoch, i), self._step(epoch, i)).nodes

    def _step(self, epoch: int, i: int) -> int:
        """Number of the batch; workers with batches of their own count them together."""
        return super()._step(epoch, i) // self._width

    def batch(self, epoch: int, i: int) -> GraphView:
        step = self._step(epoch, i)
        self._store(step)
        nodes = np.append(self._targets(epoch, i), np.zeros(self._whole.n_mirrors, bool))
        view = k_hop_view(self.partition, nodes, self.layers, sampler=self.sampler, step=step)
        assert view.rows is not None
        # a miss removes edges from levels of this list
        levels = list(view.levels)
        p = view.partition
        if self.cached:
            p = replace(p, node=self._features(view.rows, levels, step))
        if self.alone:
            # sums over the rows of a batch, such as those of batch norm, are this worker's alone
            p = replace(p, halo_comm=LocalComm(p.job_comm))
        return replace(
            view, partition=p, levels=levels, revise=partial(self._revise, view.rows, levels, step)
        )

    def exact(self, epoch: int, i: int) -> GraphView:
        p = self._whole
        layers = self.layers
        if isinstance(self.sampler, PreparedSampler):
            for relation, reverse in all_passes(p, self._supersteps).values():
                self.sampler.prepare(p, relation, reverse)
        begin = i - i % self._width
        step = self._step(epoch, i)
        views = [
            k_hop_view(p, self._targets(epoch, begin + q), layers, sampler=self.sampler, step=step)
            for q in range(self._width)
        ]
        return deal(parts_of_views(views, layers), layers, Features(p)) if self.alone else views[0]

    # ---- before the first layer

    def _features(self, rows: np.ndarray, levels: list[Level], step: int) -> Any:
        """Push the features of own rows; returns the node columns of a batch, with the features of
        its leaves that are found.
        """
        n_own = self._whole.n_masters
        own = self._whole.node
        masters = rows[rows < n_own]
        leaves = rows[rows >= n_own]
        values = packed(own, masters)
        self._push(step, FEATURES, masters, values)
        self._store(step)
        leaf_values, present = self._read(step, FEATURES, leaves - n_own, values)
        self._drop(rows, levels, leaves[~present], depth(self.layers) - 1)
        return with_leaves(self.partition.node, own, leaves, leaf_values)

    # ---- after a layer

    def _revise(
        self, rows: np.ndarray, levels: list[Level], step: int, number: int, out: Var
    ) -> Var:
        """Push own rows of the result of a layer, and replace its leaves."""
        if number not in self._cache:
            return out
        value = out.value
        n_own = self._whole.n_masters
        mine = rows[: out.shape[0]]
        own = np.flatnonzero(mine < n_own)
        leaves = np.flatnonzero(mine >= n_own)
        if self.fetch:
            self._own[number].store(mine[own], value[own], step)
        self._push(step, number, mine[own], value[own])
        self._store(step)
        new, present = self._read(step, number, mine[leaves] - n_own, value)
        self._drop(rows, levels, mine[leaves[~present]], self._supersteps[number].from_end - 1)
        whole = value.copy()
        whole[leaves] = new
        result = Var(whole, out.space)
        current().add("history", [out], [result], lambda gs: [_zeroed(gs[0], leaves)])
        return result

    def _drop(
        self, rows: np.ndarray, levels: list[Level], missing: np.ndarray, from_end: int
    ) -> None:
        """Remove the edges from some local rows from the levels of a hop."""
        there = np.isin(rows, missing)
        for j, hop in enumerate(self._supersteps):
            if hop.from_end == from_end:
                levels[j] = _without(levels[j], there)

    def _push(self, step: int, number: int, masters: np.ndarray, values: np.ndarray) -> None:
        """Send rows of the batch to the workers that have them as mirrors; what arrives waits.

        Collective: all ranks of the partition.
        """
        plan = self._link.plan
        chosen = []
        rows = []
        at = np.full(self._whole.n_masters, -1, np.int64)
        at[masters] = np.arange(len(masters))
        for a, b in pairwise(plan.send_ptr):
            theirs = plan.rows[a:b]
            chosen.append(
                self._drawn(
                    np.flatnonzero(at[theirs] >= 0),
                    theirs,
                    key(self.seed, Purpose.HALO, step, number),
                )
            )
            rows.append(values[at[theirs[chosen[-1]]]])
        self._waiting.append(_Message(step, number, self._link.push(chosen, rows, self.nc)))

    def _drawn(self, positions: np.ndarray, masters: np.ndarray, draw: int) -> np.ndarray:
        """At most ``nc`` of some positions, ascending, without replacement and in proportion to
        degrees.

        Args:
            masters: The masters at all positions.
            draw: Key of the draws.
        """
        if self.nc == NO_LIMIT or len(positions) <= self.nc:
            return positions
        rows = masters[positions]
        degree = (
            np.asarray(self._whole.node.read("in_degree"))[rows]
            + np.asarray(self._whole.node.read("out_degree"))[rows]
        )
        # the first arrivals of exponential clocks with these rates
        clock = -np.log1p(-uniform(draw, self._whole.masters[rows])) / np.maximum(degree, 1)
        return np.sort(positions[np.argsort(clock, kind="stable")[: self.nc]])

    def _store(self, step: int) -> None:
        """Store the messages that have waited for ``d`` batches."""
        due = [m for m in self._waiting if m.step <= step - self.d]
        self._waiting = [m for m in self._waiting if m.step > step - self.d]
        for m in due:
            self._cache[m.number].store(*m.end(), m.step)

    def _read(
        self, step: int, number: int, mirrors: np.ndarray, like: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Values of some mirrors, 0 where there are none, and where there are.

        Collective: all ranks of the partition.
        """
        history = self._cache[number]
        oldest = NEVER + 1 if self.ls == NO_LIMIT or number == FEATURES else step - self.ls
        lines = history.find(mirrors, oldest)
        values = np.zeros((len(mirrors), *like.shape[1:]), like.dtype)
        present = lines >= 0
        if present.any():
            values[present] = history.read(lines[present])
        self._reads.add(number, len(mirrors), step - history.steps(lines[present]))
        if self.fetch:
            missed = np.flatnonzero(~present)
            values[missed], present[missed] = self._link.fetch(
                mirrors[missed], partial(self._answer, number, like)
            )
        return values, present

    def _answer(
        self, number: int, like: np.ndarray, masters: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Whether this worker has values of some masters, and the values, for one that asks."""
        if number == FEATURES:
            return np.ones(len(masters), bool), packed(self._whole.node, masters)
        history = self._own[number]
        lines = history.find(masters)
        present = lines >= 0
        rows = np.zeros((len(lines), *like.shape[1:]), like.dtype)
        if present.any():
            rows[present] = history.read(lines[present])
        return present, rows

    # ---- between steps

    def settle(self) -> None:
        self._waiting = [m._replace(what=m.end()) for m in self._waiting]

    def held(self) -> StateArrays:
        state = super().held()
        for j, m in enumerate(self._waiting):
            mirrors, values = m.end()
            state |= {
                f"waiting/{j}/{m.step}/{m.number}/mirrors": mirrors,
                f"waiting/{j}/{m.step}/{m.number}/values": values,
            }
        return {**state, KNOBS: np.array([self.ls, self.nc, self.d, self.fetch], np.int64)}

    def hold(self, state: Mapping[str, np.ndarray]) -> None:
        super().hold(state)
        self._waiting = []
        for name in sorted(
            (name for name in state if name.endswith("/mirrors")),
            key=lambda name: int(name.split("/")[1]),
        ):
            _, _, step, layer, _ = name.split("/")
            self._waiting.append(
                _Message(
                    int(step),
                    int(layer),
                    (state[name], state[name.removesuffix("mirrors") + "values"]),
                )
            )
        if KNOBS in state:
            self.ls, self.nc, self.d, fetch = state[KNOBS].tolist()
            self.fetch = bool(fetch)

    def tighten(self) -> str:
        if self.nc != NO_LIMIT:
            self.nc = NO_LIMIT
            return f"nc={self.nc}"
        if not self.fetch:
            self.fetch = True
            return "miss=fetch"
        if self.d:
            self.d = 0
            return "d=0"
        return ""


def _without(level: Level, missing: np.ndarray) -> Level:
    """A level without the edges from some rows, [n_in] bool or longer."""
    if not missing.any():
        return level
    passes = []
    for p in level.passes:
        some = [from_senders(s, ~missing[: s.n_senders]) for s in p.selections]
        passes.append(replace(p, selections=[s for s in some if s.n_edges]))
    return replace(level, passes=passes)


def _zeroed(g: np.ndarray, rows: np.ndarray) -> np.ndarray:
    out = g.copy()
    out[rows] = 0
    return out
