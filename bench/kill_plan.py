"""The runs of ``kills.py``: jobs with drawn keys, and when one of their ranks is killed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

FIXED = (
    "--dataset",
    "sbm:n_nodes=600,n_edges=4800,classes=4,features=16",
    "--hidden",
    "16",
    "--dtype",
    "float64",
    "--eval-every",
    "2",
)
STRATEGIES = {
    "global": (),
    "mini": ("--batch-size", "10", "--fanout", "8,all"),
    "cluster": ("--clusters-per-batch", "1"),
}
PARTITIONERS = ("1d-src", "1d-dst", "vertex-cut")
AUDIT = ("--audit", "9", "--audit-limit", "0.3")
OWN = ("--mode", "independent")
# the same on any number of ranks
STEP = ("--views-per-step", "2")
# what jobs reuse: strategy, keys, and whether they may resume with another partition
REUSES: dict[str, tuple[str, tuple[str, ...], bool]] = {
    "bns": ("global", ("--exchange", "bns:rate=0.3"), False),
    "pipegcn": ("global", ("--exchange", "pipegcn:feat_corr=0.9"), False),
    "skip": ("global", ("--exchange", "skip:threshold=0.5", *AUDIT), False),
    "gas": ("cluster", ("--history", "gas", *AUDIT), False),
    "hec": ("mini", ("--history", "hec:nc=50,cs=200,d=2,features=copied", *AUDIT), False),
    "fresh": ("mini", ("--history", "fresh:ls=9", *AUDIT), False),
    "own hec": ("mini", ("--history", "hec:nc=50,cs=200", *OWN, *AUDIT), False),
    "lru": (
        "mini",
        (*OWN, *STEP, "--feature-cache", "20%", "--cache-policy", "lru", "--macrobatch", "4"),
        True,
    ),
    "belady": (
        "mini",
        (*OWN, *STEP, "--feature-cache", "20%", "--macrobatch", "3", "--cache-policy", "belady"),
        True,
    ),
}
# every reused row is read at the workers of receiving nodes
SENDERS = frozenset({"bns", "pipegcn", "skip", "hec", "own hec"})
AIMS = ("start", "training", "training", "training", "writing", "writing")
# between the ranks of the job that is killed: none, or one on which most of the time goes by in
# moves
LINKS = ("", "2ms,1Gbit/s")


@dataclass
class Plan:
    """What is drawn for a run."""

    strategy: str
    partitioner: str
    staleness: int
    in_flight: int
    ranks: int
    every: int
    aim: str
    moment: float
    within: float
    rank: int
    link: str
    then_ranks: int
    then_partitioner: str
    reuse: str = ""

    @classmethod
    def draw(cls, run: int, seed: int, reuses: bool = False) -> Plan:
        """The same plan for the same numbers; with ``reuses``, of a job that reuses something."""
        rng = np.random.default_rng((seed, run))
        strategy = str(rng.choice(list(STRATEGIES)))
        partitioner = str(rng.choice(PARTITIONERS))
        staleness, in_flight = (
            (0, 1)
            if strategy == "global"
            else (int(rng.choice([0, 0, 1, 2])), int(rng.choice([1, 2, 4])))
        )
        ranks = int(rng.integers(2, 4))
        every = int(rng.choice([1, 5, 20]))
        aim = str(rng.choice(AIMS))
        moment = float(rng.random())
        other = [n for n in (1, 2, 3, 4) if n != ranks]
        then = (
            (ranks, partitioner)
            if run % 2 == 0
            else (int(rng.choice(other)), str(rng.choice(PARTITIONERS)))
        )
        # it is rank 0 that writes
        rank = 0 if aim == "writing" and rng.random() < 0.8 else int(rng.integers(ranks))
        within = float(rng.random())
        link = str(rng.choice(LINKS))
        plan = cls(
            strategy,
            partitioner,
            staleness,
            in_flight,
            ranks,
            every,
            aim,
            moment,
            within,
            rank,
            link,
            *then,
        )
        return plan.reusing(list(REUSES)[run % len(REUSES)]) if reuses else plan

    def reusing(self, name: str) -> Plan:
        """The plan with what a job of ``REUSES`` needs."""
        strategy, _, free = REUSES[name]
        partitioner = "1d-dst" if name in SENDERS else self.partitioner
        then = {} if free else {"then_ranks": self.ranks, "then_partitioner": partitioner}
        return replace(
            self,
            reuse=name,
            strategy=strategy,
            partitioner=partitioner,
            staleness=0,
            in_flight=1,
            **then,
        )

    def words(self, folder: Path, steps: int, *more: object) -> list[str]:
        """The training."""
        keys = (
            "--strategy",
            self.strategy,
            *STRATEGIES[self.strategy],
            "--staleness",
            self.staleness,
            "--steps",
            steps,
            "--out",
            folder,
            *(REUSES[self.reuse][1] if self.reuse else ()),
        )
        return ["train", *FIXED, *map(str, (*keys, "--checkpoint-every", self.every, *more))]

    @property
    def goes_on_as_it_was(self) -> bool:
        """Whether the second job must have the same numbers as the first, to the bit."""
        return (self.then_ranks, self.then_partitioner) == (self.ranks, self.partitioner)

    @property
    def numbers(self) -> tuple[object, ...]:
        """What the numbers of the job depend on, to the bit."""
        return self.strategy, self.reuse, self.partitioner, self.staleness, self.ranks
