"""Neighbour sampling by relation: a fixed number of in-edges of every node in each relation.

The edges of a node in one relation are sampled as ``NeighbourSampler`` samples all of its edges, so
that a relation with few edges is not lost among those of one with many, as in DGL and PyG. Edges
without a relation, such as the self loops that a job adds, are all kept.

Source: DGL, https://www.dgl.ai/dgl_docs, ``dgl.dataloading.NeighborSampler``; PyG,
https://pytorch-geometric.readthedocs.io, ``torch_geometric.loader.NeighborLoader``
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from graphtheta.base.rng import Purpose, key
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.partition.relation import RELATION
from graphtheta.engine.sampling.bottom_k import BottomK
from graphtheta.engine.sampling.candidates import Candidates, Chosen, Frontier, Sample
from graphtheta.engine.sampling.columns import check_mask, in_block, masked
from graphtheta.engine.sampling.priority import EdgePriority
from graphtheta.errors import ConfigError
from graphtheta.graph.data.typed import relation_code
from graphtheta.ops.kernels.sampling.by_code import join, split
from graphtheta.samplers.neighbour import Fanouts


@dataclass(frozen=True)
class PerRelationSampler(Fanouts):
    """Keeps ``fanout`` in-edges of every receiving node in each relation.

    Attributes:
        fanouts: Edges per node and relation for each hop, the one furthest from the targets first;
            -1 keeps all.
        replace: Draw with replacement; an edge drawn twice counts twice.
        seed: Seed of the draws.
        relation_names: The relations in the order of their codes, as ``gt.per_relation`` takes
            them.
        of: Other numbers for some relations: "NAME=5/3;NAME=0", from the targets outwards, or one
            number for all hops. A name may be a code; 0 keeps no edge of a relation.
        mask: An edge column of True and False; only edges with True take part. Empty for all.
        name: Name in a job.

    Raises:
        ConfigError: A fanout is neither positive nor -1, the graph has no relations, a relation of
            ``of`` is not known or named twice, or its numbers do not fit the hops.
    """

    name: ClassVar[str] = "per_relation"

    replace: bool = False
    seed: int = 0
    relation_names: Sequence[Any] = ()
    of: str = ""
    mask: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.relation_names:
            raise ConfigError(
                "sampler=per_relation: the graph has no relations; give their codes with"
                " gt.Graph(..., edge_columns={'relation': codes}), or choose --sampler neighbour"
            )
        self.by_code()

    def by_code(self) -> list[tuple[int, ...]]:
        """The fanouts of each relation, as ``fanouts``."""
        fanouts_of: dict[int, tuple[int, ...]] = {}
        for text in filter(None, self.of.split(";")):
            name, _, numbers = text.partition("=")
            code = relation_code(self.relation_names, name, f"sampler=per_relation: of={self.of}")
            if code in fanouts_of:
                raise ConfigError(
                    f"sampler=per_relation: of={self.of} names the relation {name} twice; drop one"
                    " of them"
                )
            fanouts_of[code] = self._numbers(name, numbers)
        return [fanouts_of.get(code, self.fanouts) for code in range(len(self.relation_names))]

    def _numbers(self, name: str, text: str) -> tuple[int, ...]:
        try:
            numbers = tuple(map(int, text.split("/")))
        except ValueError:
            numbers = ()
        if len(numbers) not in (1, self.hops) or min(numbers) < -1:
            raise ConfigError(
                f"sampler=per_relation: of={self.of}: {name} has {text or 'no number'!r}; expected"
                f" {self.hops} number(s) from -1 with a slash between them, from the targets"
                " outwards, or one for all hops"
            )
        return numbers * self.hops if len(numbers) == 1 else numbers[::-1]

    def check(self, partition: Partition) -> None:
        """Check the mask.

        Raises:
            ConfigError, DataError: As ``check_mask``.

        Collective: all ranks of the partition.
        """
        check_mask(partition, self.mask)

    def choose(self, frontier: Frontier, *, hop: int, step: int) -> Sample:
        """Choose edges of one pass; see ``Sampler.choose``.

        Collective: all ranks of the frontier's partition.
        """
        frontier = masked(frontier, self.mask)
        parts = [self._split(frontier, c) for c in frontier.candidates]
        samples = []
        for code, fanouts in enumerate((*self.by_code(), (-1,) * self.hops)):
            own = replace(frontier, candidates=[part[code] for part in parts], complete=False)
            k = fanouts[hop]
            if k < 0:
                samples.append(Sample([c.listed() for c in own.candidates]))
            elif k:
                words = (step, hop, int(frontier.reverse), code)
                draws = key(self.seed, Purpose.SAMPLE, *words)
                samples.append(
                    BottomK(
                        frontier=own, priority=EdgePriority(), key=draws, k=k, replace=self.replace
                    ).choose()
                )
        return Sample(
            [
                _joined(c, [sample.chosen[i] for sample in samples])
                for i, c in enumerate(frontier.candidates)
            ]
        )

    def _split(self, frontier: Frontier, c: Candidates) -> list[Chosen]:
        """The edges of each relation, then those without one."""
        codes = in_block(frontier.partition.edge.read(RELATION), c.block)
        bounds, edges, senders = split(
            begin=c.begin,
            end=c.end,
            edges=c.edges,
            others=c.senders,
            codes=codes,
            n_codes=len(self.relation_names),
        )
        return [
            c.of(ptr - ptr[0], edges[ptr[0] : ptr[-1]], senders[ptr[0] : ptr[-1]]) for ptr in bounds
        ]


def _joined(c: Candidates, lists: list[Chosen]) -> Chosen:
    """Edges that were chosen from the same rows as one list."""
    weights = [np.ones(len(x.edges)) if x.weight is None else x.weight for x in lists]
    ptr, edges, senders, weight = join(
        np.stack([x.ptr for x in lists]),
        *map(np.concatenate, ([x.edges for x in lists], [x.senders for x in lists], weights)),
    )
    return c.of(ptr, edges, senders).weighted(weight)
