"""Predictions for given links and triples, whether the graph has them or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from graphtheta.engine.strategy.strategy import whole as whole_view
from graphtheta.engine.strategy.task import Seeds
from graphtheta.engine.train.step import QUIET
from graphtheta.engine.view.scored_pairs import PairPlan, ScoredPairs
from graphtheta.errors import ConfigError
from graphtheta.inference.forward.top import latest, numbers_of
from graphtheta.inference.outputs.predictions import check_finite, in_order
from graphtheta.tasks.evaluation.evaluate import LinkEvaluator
from graphtheta.tasks.kinds.link import LinkKind
from graphtheta.tasks.triples.answers import HEAD, TAIL


class Given(NamedTuple):
    """Links or triples.

    Attributes:
        src, dst: Original ids of their ends, [n] each; those of nodes of one type may lack its
            name. The same on all workers.
        relation: Names or codes of the relations of triples, [n], or one for all; None for links.
        where: Names a field and the number of its item in messages.
    """

    src: Any
    dst: Any
    relation: Any = None
    where: Callable[[str, int], str] = "{}[{}]".format


def given_scores(setup: Any, given: Given, whole: bool) -> tuple[np.ndarray, np.ndarray] | None:
    """Positions of links or triples, ascending, and predictions for them, [n] each.

    Args:
        setup: A ``Measured``, see ``assembly``.
        given: The links or triples.
        whole: Those of all workers on rank 0, and None elsewhere; otherwise those of each worker,
            which owns the sources.

    Raises:
        ConfigError: The task has no links, or there is no such node, relation, or pair of types.
        DataError: A prediction is not finite.
        Each on all ranks together.

    Collective: all ranks of the partition.
    """
    kind = setup.kind
    evaluator = setup.evaluator
    p = setup.partition
    if not isinstance(kind, LinkKind) or not isinstance(evaluator, LinkEvaluator):
        raise ConfigError(
            f"the model has task={kind.name}, which does not score given links; train with --task"
            " link or triple"
        )
    src, dst = (
        numbers_of(
            partition=p,
            info=setup.info,
            ids=kind.full_ids(setup.info, ids, side),
            where=given.where,
            field=field,
        )
        for field, ids, side in (("src", given.src, TAIL), ("dst", given.dst, HEAD))
    )
    if len(src) != len(dst):
        raise ConfigError(f"src has {len(src)} ids and dst {len(dst)}; give one of each for a link")
    queries = kind.queries(src, given.relation, TAIL, given.where)
    _check_types(kind, src, dst, given.where)
    at = np.flatnonzero(p.directory.owner(src) == p.halo_comm.rank)
    ends, columns = kind.pairs_of(src[at], dst[at], queries[at])
    pairs = ScoredPairs(
        src=ends[0],
        dst=ends[1],
        gid=np.resize(at, len(ends[0])),
        stored=None,
        label=np.zeros(len(ends[0])),
        columns=columns,
    )
    plan = PairPlan(p, pairs)
    seeds = Seeds(plan.needed, plan)
    view = (
        whole_view(p, evaluator.layers, seeds)
        if evaluator.past is None
        else evaluator.past.view(seeds, latest(evaluator))
    )
    with np.errstate(**QUIET):
        value = evaluator.run(setup.model, view).value.reshape(-1)
    out = np.empty_like(value)
    assert view.pairs is not None
    out[view.pairs.order] = value
    # with reciprocal relations a triple is asked about from both ends
    scores = out.reshape(-1, len(at)).mean(axis=0) if len(at) else out
    check_finite(p.halo_comm, at, scores, "prediction")
    ordered = in_order(p.halo_comm, [at, kind.presented(scores)], whole)
    return None if ordered is None else (ordered[0], ordered[1])


def _check_types(
    kind: LinkKind, src: np.ndarray, dst: np.ndarray, where: Callable[[str, int], str]
) -> None:
    """Check that links lead from sources to nodes of the types of the other ends.

    Raises:
        ConfigError: None do.
    """
    of_src = kind.types_of(src)
    of_dst = kind.types_of(dst)
    leads = kind.leads(TAIL)
    bad = np.flatnonzero(~leads[of_src, of_dst])
    if len(bad):
        i = int(bad[0])
        turned = leads[of_dst[i], of_src[i]]
        raise ConfigError(
            f"{where('dst', i)}: no links lead from nodes of the type of its source to nodes of"
            f" its type; {'exchange the ends' if turned else 'give ends of such types'}"
        )
