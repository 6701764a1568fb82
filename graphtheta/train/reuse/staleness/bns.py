"""Boundary node sampling: each epoch a worker reads a random part of its halo rows.

For each worker and owner, ``rate`` of the rows are drawn. Edges from the others are left out of the
epoch, in all layers, and edges from those drawn have the inverse of the share as importance
weight: their values and gradients are divided by it, and means and softmax are weighted by it.

Draws are keyed by seed, epoch and node, so both sides know them and no message tells them.

Source: BNS-GCN, https://arxiv.org/abs/2203.10983
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from graphtheta.base.arguments import checked
from graphtheta.base.rng import Purpose, key, uniform
from graphtheta.engine.partition.exchange import NOTHING, Exchange
from graphtheta.engine.partition.partition import MIRROR
from graphtheta.engine.view.level import Level, Pass
from graphtheta.engine.view.view import GraphView
from graphtheta.errors import ConfigError
from graphtheta.train.reuse.staleness.exchange import HaloExchange
from graphtheta.train.reuse.staleness.selections import from_senders


class Bns(HaloExchange):
    """A sample of the halo rows in each epoch.

    Args:
        rate: Share of the rows of each pair of workers, rounded down but at least one; 1 is exact,
            0 sends nothing.
        seed: Seed of the draws.

    Raises:
        ConfigError: The rate is out of range.
    """

    name = "bns"
    knobs = ("rate",)

    @checked
    def __init__(self, rate: float = 0.1, *, seed: int):
        if not 0 <= rate <= 1:
            raise ConfigError(f"exchange=bns: rate is {rate}; expected a number from 0 to 1")
        self.rate = rate
        self._seed = seed
        # global ids of the halo rows, by pass
        self._halo: dict[int, np.ndarray] = {}

    def view(self, exact: GraphView, epoch: int) -> GraphView:
        if self.rate == 1:
            return exact
        masters = exact.partition.masters
        levels = {id(level): level for level in exact.levels}
        sampled = {
            i: self._level(level, masters, key(self._seed, Purpose.HALO, epoch))
            for i, level in levels.items()
        }
        return replace(exact, levels=[sampled[id(level)] for level in exact.levels])

    def _level(self, level: Level, masters: np.ndarray, draw: int) -> Level:
        return replace(level, passes=[self._pass(p, masters, draw) for p in level.passes])

    def _pass(self, p: Pass, masters: np.ndarray, draw: int) -> Pass:
        plan = p.senders.plan
        if not plan.anywhere:
            return p
        if id(p) not in self._halo:
            self._halo[id(p)] = p.senders.to_mirrors({"gid": masters})["gid"]
        sent, _ = self._lowest(uniform(draw, masters[plan.rows]), plan.send_ptr)
        halo, weight = self._lowest(uniform(draw, self._halo[id(p)]), plan.recv_ptr)
        keep = np.zeros(plan.n_halo, bool)
        keep[halo] = True
        number = np.cumsum(keep, dtype=np.int32) - 1
        some = [
            (
                from_senders(s, keep, number=number, n_senders=len(halo), weight=weight)
                if s.kinds[0] == MIRROR
                else s
            )
            for s in p.selections
        ]
        return replace(
            p,
            selections=[s for s in some if s.n_edges],
            senders=Exchange(p.senders.comm, plan.subset(sent, halo)),
        )

    def _lowest(self, draws: np.ndarray, ptr: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows of the lowest draws in each group, ascending, and for all rows the inverse share
        of their group.
        """
        chosen = [NOTHING]
        weight = np.ones(len(draws))
        for a, b in pairwise(ptr):
            n = max(int(self.rate * (b - a)), min(1, b - a)) if self.rate else 0
            if n:
                chosen.append(a + np.sort(np.argsort(draws[a:b], kind="stable")[:n]))
                weight[a:b] = (b - a) / n
        return np.concatenate(chosen), weight

    def figures(self) -> dict[str, float]:
        return {"sent_share": self.rate}

    def tighten(self) -> str:
        if self.rate == 1:
            return ""
        self.rate = min(1.0, 2 * self.rate or 0.1)
        return f"rate={self.rate:g}"
