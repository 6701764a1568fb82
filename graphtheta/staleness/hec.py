"""Historical embedding cache in mini-batches: rows of other workers are leaves whose values come from a cache.

A worker expands its own targets over its own edges. Nodes of other workers are leaves: the first
layer reads copies of their features, later layers read a cache of the values that their owners
have pushed. Workers push what they compute: of each batch and layer, up to ``nc`` of the nodes that
another worker has as mirrors, drawn in proportion to their degrees. No gradient flows into cached
values.

    batch k:  store the messages of batch k - d
              layer l: compute own rows; push; read leaves from the cache; drop or fetch the others

Source: DistGNN-MB, https://arxiv.org/abs/2211.06385
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np

from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.partition.relation import EDGE
from graphtheta.engine.sampling.sampler import PreparedSampler, Sampler
from graphtheta.engine.store.history import NEVER, History
from graphtheta.engine.view.expand import all_passes, k_hop_view
from graphtheta.engine.view.hop import Layers, hops
from graphtheta.engine.view.level import Level
from graphtheta.engine.view.strategy import MiniBatch, Strategy
from graphtheta.engine.view.task import NodeTask, Task
from graphtheta.engine.view.view import GraphView
from graphtheta.errors import ConfigError
from graphtheta.ops.autodiff.tape import Var, current
from graphtheta.rng import Purpose, key, uniform
from graphtheta.staleness.approximate import Approximate, Held
from graphtheta.staleness.reads import Reads
from graphtheta.staleness.selections import from_senders
from graphtheta.staleness.stale_batch import check_senders
from graphtheta.staleness.surroundings import surroundings

KNOBS = "knobs"
NO_LIMIT = -1
MISSES = ("drop", "fetch")


class Hec:
    """A cache of embeddings of other workers' nodes.

    Args:
        cs: Lines of the cache of each layer; -1 for as many as there are mirrors.
        ls: Most steps for which a line is read; -1 for no limit.
        nc: Most nodes that a worker pushes to another one in a batch and layer; -1 for all.
        d: Batches after which a pushed value is stored; 0 within the batch.
        miss: "drop" leaves out edges from nodes that are not in the cache, "fetch" asks their owners for the last value that
            they have computed, and leaves out edges only if there is none.

    Raises:
        ConfigError: An option is out of range.
    """

    name: ClassVar = "hec"
    strategy: ClassVar = "mini"

    def __init__(self, cs: int = 1_000_000, ls: int = 2, nc: int = 2000, d: int = 1, miss: str = "drop"):
        for option, value, least in (("cs", cs, 1), ("ls", ls, 0), ("nc", nc, 1)):
            if value < least and value != NO_LIMIT:
                raise ConfigError(f"history=hec: {option} is {value}; expected at least {least}, or -1 for no limit")
        if d < 0:
            raise ConfigError(f"history=hec: d is {d}; expected a number of batches")
        if miss not in MISSES:
            raise ConfigError(f"history=hec: miss is {miss!r}; expected {' or '.join(MISSES)}")
        self.cs, self.ls, self.nc, self.d, self.fetch = cs, ls, nc, d, miss == "fetch"

    def open(self, partition: Partition, layers: Layers, task: Task, seed: int, **arguments: Any) -> Strategy:
        """The strategy; arguments are those of ``MiniBatch``."""
        return HecBatch(partition, layers, task, seed, policy=self, **arguments)


class _Message(NamedTuple):
    """Pushed values of one layer that wait: step and number of the layer, mirrors [n], values [n, ...]."""

    step: int
    number: int
    mirrors: np.ndarray
    values: np.ndarray


class HecBatch(MiniBatch, Approximate):
    """Batches of targets; each worker computes its own ones, with a cache for the nodes of the others.

    Args:
        policy: Sizes and limits.
        batch_size, sampler: As for ``MiniBatch``.

    Raises:
        ConfigError: The targets are not nodes, or messages are summed at mirrors.
    """

    def __init__(self, partition: Partition, layers: Layers, task: Task, seed: int = 0, *, policy: Hec, batch_size: int,
                 sampler: Sampler | None = None):
        if not isinstance(task, NodeTask):
            raise ConfigError("history=hec stores values of nodes in batches of nodes, and the targets of this task are edges or links; "
                              "give --history none, or another --task")
        check_senders(partition, layers, "history=hec")
        super().__init__(surroundings(partition), layers, task, seed, batch_size=batch_size, sampler=sampler)
        self._whole, self._supersteps = partition, hops(layers)
        sending = [relation.served(reverse)[0] for relation, reverse in all_passes(partition, self._supersteps).values()]
        self._plan, self._mirrors = (sending or [partition.relations[EDGE].sources])[0]
        self._halo = np.zeros(partition.n_mirrors, np.int64)
        self._halo[self._mirrors] = np.arange(len(self._mirrors))
        self.ls, self.nc, self.d, self.fetch = policy.ls, policy.nc, policy.d, policy.fetch
        n, read = partition.n_mirrors, [number for number, hop in enumerate(self._supersteps) if hop.from_end]
        self._cache = {number: History(n, n if policy.cs == NO_LIMIT else policy.cs) for number in read}
        self._own = {number: History(partition.n_masters, partition.n_masters) for number in read}
        self._waiting: list[_Message] = []
        self._reads = Reads(self._supersteps)

    def _targets(self, epoch: int, i: int) -> np.ndarray:
        return self.task.seeds(self._order.own(epoch, i), self._step(epoch, i)).nodes

    def batch(self, epoch: int, i: int) -> GraphView:
        step = self._step(epoch, i)
        self._store(step)
        nodes = np.append(self._targets(epoch, i), np.zeros(self._whole.n_mirrors, bool))
        view = k_hop_view(self.partition, nodes, self.layers, sampler=self.sampler, step=step)
        assert view.rows is not None
        # a miss removes edges from levels of this list
        levels = list(view.levels)
        return replace(view, levels=levels, revise=partial(self._revise, view.rows, levels, step))

    def exact(self, epoch: int, i: int) -> GraphView:
        p, layers = self._whole, self.layers
        if isinstance(self.sampler, PreparedSampler):
            for relation, reverse in all_passes(p, self._supersteps).values():
                self.sampler.prepare(p, relation, reverse)
        return k_hop_view(p, self._targets(epoch, i), layers, sampler=self.sampler, step=self._step(epoch, i))

    # ---- after a layer

    def _revise(self, rows: np.ndarray, levels: list[Level], step: int, number: int, out: Var) -> Var:
        """Push own rows of the result of a layer, and replace its leaves."""
        if number not in self._cache:
            return out
        value, n_own = out.value, self._whole.n_masters
        mine = rows[: out.shape[0]]
        own, leaves = np.flatnonzero(mine < n_own), np.flatnonzero(mine >= n_own)
        if self.fetch:
            self._own[number].store(mine[own], value[own], step)
        self._push(step, number, mine[own], value[own])
        self._store(step)
        new, found = self._read(step, number, mine[leaves] - n_own, value)
        missing = np.zeros(len(rows), bool)
        missing[leaves[~found]] = True
        later = self._supersteps[number].from_end - 1
        for j, hop in enumerate(self._supersteps):
            if hop.from_end == later:
                levels[j] = _without(levels[j], missing)
        whole = value.copy()
        whole[leaves] = new
        result = Var(whole, out.space)
        current().add("history", [out], [result], lambda gs: [_zeroed(gs[0], leaves)])
        return result

    def _push(self, step: int, number: int, masters: np.ndarray, values: np.ndarray) -> None:
        """Send rows of the batch to the workers that have them as mirrors; what arrives waits.

        Collective: all ranks of the partition.
        """
        plan, comm = self._plan, self._whole.halo_comm
        at = np.full(self._whole.n_masters, -1, np.int64)
        at[masters] = np.arange(len(masters))
        positions, rows = [], []
        for a, b in pairwise(plan.send_ptr):
            chosen = self._drawn(np.flatnonzero(at[plan.rows[a:b]] >= 0), plan.rows[a:b], key(self.seed, Purpose.HALO, step, number))
            positions.append(chosen.astype(np.int32))
            rows.append(values[at[plan.rows[a:b][chosen]]])
        arrived = [start + x for start, x in zip(plan.recv_ptr[:-1], comm.all_to_all(positions), strict=True)]
        mirrors = self._mirrors[np.concatenate(arrived)].astype(np.int64)
        self._waiting.append(_Message(step, number, mirrors, np.concatenate(comm.all_to_all(rows))))

    def _drawn(self, positions: np.ndarray, masters: np.ndarray, draw: int) -> np.ndarray:
        """At most ``nc`` of some positions, ascending, without replacement and in proportion to degrees.

        Args:
            masters: The masters at all positions.
            draw: Key of the draws.
        """
        if self.nc == NO_LIMIT or len(positions) <= self.nc:
            return positions
        rows = masters[positions]
        degree = np.asarray(self._whole.node.read("in_degree"))[rows] + np.asarray(self._whole.node.read("out_degree"))[rows]
        # the first arrivals of exponential clocks with these rates
        clock = -np.log1p(-uniform(draw, self._whole.masters[rows])) / np.maximum(degree, 1)
        return np.sort(positions[np.argsort(clock, kind="stable")[: self.nc]])

    def _store(self, step: int) -> None:
        """Store the messages that have waited for ``d`` batches."""
        due = [m for m in self._waiting if m.step <= step - self.d]
        self._waiting = [m for m in self._waiting if m.step > step - self.d]
        for m in due:
            self._cache[m.number].store(m.mirrors, m.values, m.step)

    def _read(self, step: int, number: int, mirrors: np.ndarray, like: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values of some mirrors, 0 where there are none, and where there are.

        Collective: all ranks of the partition.
        """
        history, oldest = self._cache[number], NEVER + 1 if self.ls == NO_LIMIT else step - self.ls
        lines, values = history.find(mirrors, oldest), np.zeros((len(mirrors), *like.shape[1:]), like.dtype)
        found = lines >= 0
        if found.any():
            values[found] = history.read(lines[found])
        self._reads.add(number, len(mirrors), step - history.steps(lines[found]))
        if self.fetch:
            missed = np.flatnonzero(~found)
            values[missed], found[missed] = self._fetched(number, mirrors[missed], like)
        return values, found

    def _fetched(self, number: int, mirrors: np.ndarray, like: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The last values that owners have computed of some mirrors, and whether they have computed any.

        Collective: all ranks of the partition.
        """
        plan, comm, history = self._plan, self._whole.halo_comm, self._own[number]
        halo = self._halo[mirrors]
        order = np.argsort(halo)
        bounds = np.searchsorted(halo[order], plan.recv_ptr)
        wanted = comm.all_to_all([halo[order[a:b]] - start for (a, b), start in zip(pairwise(bounds), plan.recv_ptr[:-1], strict=True)])
        known, rows = [], []
        for start, positions in zip(plan.send_ptr[:-1], wanted, strict=True):
            lines = history.find(plan.rows[start + positions])
            known.append(lines >= 0)
            rows.append(np.zeros((len(lines), *like.shape[1:]), like.dtype))
            if known[-1].any():
                rows[-1][known[-1]] = history.read(lines[known[-1]])
        values, found = np.empty((len(mirrors), *like.shape[1:]), like.dtype), np.empty(len(mirrors), bool)
        values[order], found[order] = np.concatenate(comm.all_to_all(rows)), np.concatenate(comm.all_to_all(known))
        return values, found

    # ---- between steps

    def settle(self) -> None:
        return

    def held(self) -> Held:
        parts = {f"{kind}/{number}": history.state() for kind, held in (("cache", self._cache), ("own", self._own))
                 for number, history in held.items()}
        state = {f"{path}/{name}": x for path, held in parts.items() for name, x in held.items()}
        for j, m in enumerate(self._waiting):
            state |= {f"waiting/{j}/{m.step}/{m.number}/mirrors": m.mirrors, f"waiting/{j}/{m.step}/{m.number}/values": m.values}
        return {**state, KNOBS: np.array([self.ls, self.nc, self.d, self.fetch], np.int64)}

    def hold(self, held: Mapping[str, np.ndarray]) -> None:
        for kind, histories in (("cache", self._cache), ("own", self._own)):
            for number, history in histories.items():
                path = f"{kind}/{number}/"
                history.load_state({name.removeprefix(path): x for name, x in held.items() if name.startswith(path)})
        self._waiting = []
        for name in sorted((name for name in held if name.endswith("/mirrors")), key=lambda name: int(name.split("/")[1])):
            _, _, step, layer, _ = name.split("/")
            self._waiting.append(_Message(int(step), int(layer), held[name], held[name.removesuffix("mirrors") + "values"]))
        if KNOBS in held:
            self.ls, self.nc, self.d, fetch = held[KNOBS].tolist()
            self.fetch = bool(fetch)

    def figures(self) -> dict[str, float]:
        return self._reads.figures(self._whole)

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
