"""Random jobs for ``equality.py --draws values``: the jobs of the other draws, with ``values`` of
bfloat16 and columns that are wide enough to be rounded.

Jobs train with plain SGD, as steps of Adam have the size of the learning rate however small a
gradient is, so that a rounding error of one decides a whole step.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import equality_jobs
import equality_typed
import numpy as np
from equality_jobs import Plan, one

from graphtheta.base.bfloat16 import WIDE
from graphtheta.graph.data.graph import Graph

DRAWS = {"plain": equality_jobs.draw, "typed": equality_typed.draw}
PLANS = {"plain": Plan, "typed": equality_typed.TypedPlan}


@dataclass(frozen=True)
class ValuesPlan(Plan):
    """A job whose values of nodes are bfloat16.

    Attributes:
        of: The draws that its graph is of.
    """

    of: str = "plain"

    draws: ClassVar[str] = "values"
    # sums in another order round some numbers to their neighbours
    allowed: ClassVar[float] = 2**-10

    def made_graph(self) -> Graph:
        plan = {f.name: getattr(self, f.name) for f in fields(Plan)}
        return widened(PLANS[self.of](**plan).made_graph(), self.seed)

    def exact(self) -> ValuesPlan:
        """The same job with all values in float64."""
        return replace(self, keys={**self.keys, "values": "float32", "dtype": "float64"})


def draw(seed: int, number: int, attempt: int = 0, fused: float = 0.85) -> ValuesPlan:
    """The job of these numbers; arguments as in ``equality_jobs.draw``."""
    rng = np.random.default_rng((seed, number, attempt, 3))
    of = "typed" if number % 3 == 2 else "plain"
    plan = DRAWS[of](seed, number, attempt, fused)
    keys: dict[str, Any] = {
        **plan.keys,
        "dtype": "float32",
        "values": "bfloat16",
        "hidden": one(rng, WIDE, WIDE + 1, 24),
        "optimiser": "sgd",
        "lr": 0.01,
    }
    keys.pop("momentum", None)
    if "embedding" in keys:
        keys |= {"embedding": WIDE, "embedding_optimiser": "sgd"}
    return ValuesPlan(
        number=plan.number,
        attempt=plan.attempt,
        graph=plan.graph,
        targets=plan.targets,
        ranks=plan.ranks,
        keys=keys,
        seed=plan.seed,
        of=of,
    )


def widened(graph: Graph, seed: int) -> Graph:
    """The graph with wide dense features, if it has dense ones of nodes of one type."""
    if not isinstance(graph.x, np.ndarray) or graph.node_types is not None:
        return graph
    shift = np.random.default_rng((seed, 4)).standard_normal(WIDE * graph.x.shape[1])
    return graph.replace(x=np.tile(graph.x, WIDE) + shift)
