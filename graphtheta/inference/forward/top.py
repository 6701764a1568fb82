"""The nodes that score highest: the best ends of links, and the answers to (head, relation, ?) and
(?, relation, tail).

Each worker scores its own nodes for the same block of queries, see ``triples/ranking.py``, and
keeps the k best of each query. The worker that owns the node of a query merges those of all
workers.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.partition.partition import Partition
from graphtheta.engine.partition.table import Route
from graphtheta.errors import ConfigError, DataError
from graphtheta.graph.data.validation import Origin, as_array
from graphtheta.inference.forward.embedding import asked_ids
from graphtheta.inference.outputs.formats import OutputRows
from graphtheta.inference.outputs.predictions import in_order
from graphtheta.tasks.evaluation.evaluate import LinkEvaluator
from graphtheta.tasks.kinds.kind import GraphInfo
from graphtheta.tasks.kinds.link import LinkKind
from graphtheta.tasks.triples.answers import HEAD, TAIL, anchor_of
from graphtheta.tasks.triples.ranking import QueryBlock, RankedQueries, score_blocks

SIDES = {"tail": TAIL, "head": HEAD}


class Asked(NamedTuple):
    """What is asked for.

    Attributes:
        nodes: Original ids, [n]; None for the sources of held-out links, or the queries of held-out
            triples.
        k: Number of answers to each.
        relation: Name or code of the relation of triples, or one for each node.
        side: "tail" if the nodes are sources or heads, "head" if they are the other ends.
        candidates: Original ids of the nodes that may be answers; None for all of the types to
            which links lead.
        keep_known: Whether known links and triples may be answers.
        where: Names a field and the number of its item in messages.
    """

    nodes: Any = None
    k: int = 10
    relation: Any = None
    side: str = "tail"
    candidates: Any = None
    keep_known: bool = False
    where: Callable[[str, int], str] = "{}[{}]".format


class Top(NamedTuple):
    """The best nodes of some queries.

    Attributes:
        queries: Numbers of the queries, see ``triples/answers.py``, [n] int64.
        nodes: Numbers of the nodes, the best first, -1 where there are no more, [n, k] int64.
        scores: Their scores, NaN where there are no more, [n, k].
    """

    queries: np.ndarray
    nodes: np.ndarray
    scores: np.ndarray

    def ids(self, info: GraphInfo) -> np.ndarray:
        """Original ids of the nodes, [n, k]; -1, or an empty text, where there are no more."""
        ids = info.ids(np.maximum(self.nodes, 0))
        return np.where(self.nodes < 0, ids.dtype.type("" if ids.dtype.kind == "U" else -1), ids)

    def rows(self, kind: LinkKind, info: GraphInfo) -> OutputRows:
        """A row for each answer, with the ids of its link or triple."""
        query, place = np.nonzero(self.nodes >= 0)
        return OutputRows(
            "score",
            kind.ids_of(info, self.queries[query], self.nodes[query, place]),
            self.scores[query, place],
        )


def top(setup: Any, asked: Asked, whole: bool = True) -> Top | None:
    """The nodes that score highest in each query, without known answers; equal scores are ordered
    by the number of the node.

    Args:
        setup: A ``Measured``, see ``assembly``.
        asked: What is asked for, the same on all workers.
        whole: The answers to all queries on rank 0, in the order of ``asked.nodes``, and None
            elsewhere; otherwise those of each worker to queries of its own nodes, each once.

    Raises:
        ConfigError: The task has no links, there is no such node or relation, or nothing to choose
            from.
        DataError: A score is not a number.
        Each on all ranks together.

    Collective: all ranks of the partition.
    """
    kind = setup.kind
    evaluator = setup.evaluator
    p = setup.partition
    _check(setup, asked)
    comm = p.halo_comm
    n = p.n_nodes
    side = SIDES[asked.side]
    rows = None
    if asked.nodes is None:
        queries = np.concatenate(
            [kind.held_queries(links, side) for links in evaluator.links.values()]
        )
    else:
        nodes = numbers_of(
            partition=p, info=setup.info, ids=asked.nodes, where=asked.where, field="nodes"
        )
        rows = kind.queries(nodes, asked.relation, side, asked.where)
        if asked.candidates is None:
            _check_types(kind, nodes, side, asked.where)
        queries = rows if comm.rank == 0 else rows[:0]
    parts = Route(p.directory.owner(anchor_of(queries, n)), comm.size).parts(queries)
    mine = np.unique(np.concatenate(comm.all_to_all(parts)))
    number, node = kind.left_out(mine, asked.keep_known)
    ranked = RankedQueries.sent(p, mine, number, node, np.zeros(len(node), bool))
    chosen = None
    if asked.candidates is not None:
        chosen = np.isin(
            p.masters,
            numbers_of(
                partition=p,
                info=setup.info,
                ids=asked.candidates,
                where=asked.where,
                field="candidates",
            ),
        )
    outside = _outside(kind, p, side, chosen)
    best = in_order(
        comm,
        [
            mine,
            *_best(
                evaluator=evaluator, model=setup.model, ranked=ranked, k=asked.k, outside=outside
            ),
        ],
        whole,
    )
    if best is None:
        return None
    at = slice(None) if rows is None or not whole else np.searchsorted(best[0], rows)
    return Top(*(x[at] for x in best))


def numbers_of(
    partition: Partition, info: GraphInfo, ids: Any, where: Callable[[str, int], str], field: str
) -> np.ndarray:
    """Numbers of nodes, [n] int64.

    Args:
        partition: Holds the nodes.
        info: Their original ids.
        ids: Original ids, [n], or a mask of all nodes, [n_nodes] bool; the same on all workers.
        where, field: Name an id in messages.

    Raises:
        ConfigError: There is no such node; on all ranks together.

    Collective: all ranks of the partition.
    """
    asked = as_array(ids, Origin("", field))
    original = asked_ids(np.arange(partition.n_nodes), asked, field)
    if asked.dtype == np.bool_:
        return original
    wanted, at = np.unique(original, return_inverse=True)
    number_of = np.full(len(wanted), -1, np.int64)
    ids_here = info.ids(partition.masters)
    if len(wanted) and (wanted.dtype.kind == "U") == (ids_here.dtype.kind == "U"):
        place = np.minimum(np.searchsorted(wanted, ids_here), len(wanted) - 1)
        here = wanted[place] == ids_here
        number_of[place[here]] = partition.masters[here]
    numbers = np.asarray(partition.halo_comm.all_max(number_of))[at]
    if np.any(numbers < 0):
        i = int(np.argmax(numbers < 0))
        raise ConfigError(
            f"{where(field, i)}: the graph has no node {wanted[at[i]].item()!r}; give original ids,"
            " as predict returns them"
        )
    return numbers


def _check(setup: Any, asked: Asked) -> None:
    if not isinstance(setup.kind, LinkKind) or not isinstance(setup.evaluator, LinkEvaluator):
        raise ConfigError(
            "top finds the best ends of links and triples, but the model has"
            f" task={setup.kind.name}; call predict for its outputs"
        )
    if asked.side not in SIDES:
        raise ConfigError(f"side={asked.side!r}: choose from {', '.join(SIDES)}")
    if asked.nodes is None and not any(links.n_links for links in setup.evaluator.links.values()):
        raise ConfigError(
            "top asks for the ends of held-out links without nodes, but no links are held out; give"
            " nodes (--of FILE)"
        )
    if not isinstance(asked.k, int | np.integer) or asked.k < 1:
        raise ConfigError(f"k={asked.k!r}: expected a whole number, at least 1")


def _check_types(
    kind: LinkKind, nodes: np.ndarray, side: int, where: Callable[[str, int], str]
) -> None:
    """Check that links lead from nodes, or to them.

    Raises:
        ConfigError: None do.
    """
    without = ~np.any(kind.leads(side)[kind.types_of(nodes)], axis=1)
    if without.any():
        other = "head" if side == TAIL else "tail"
        raise ConfigError(
            f"{where('nodes', int(np.argmax(without)))}: no links lead"
            f" {'from' if side == TAIL else 'to'} nodes of its type; give side={other}, or"
            " candidates"
        )


def latest(evaluator: LinkEvaluator) -> Any:
    """The time of the latest held-out link; None without times.

    Raises:
        ConfigError: No links are held out.
    """
    if evaluator.past is None:
        return None
    times = np.concatenate(list(evaluator.times.values()))
    if not len(times):
        raise ConfigError(
            "links are scored by what the latest held-out link sees, but none are held out; give"
            " masks edge_val or edge_test"
        )
    return times.max()


def _outside(
    kind: LinkKind, partition: Partition, side: int, chosen: np.ndarray | None
) -> Callable[[np.ndarray], np.ndarray]:
    """The function from queries to the masters that cannot be their answers, [q or 1, n_masters]
    bool.

    Args:
        kind, partition, side: Of the queries.
        chosen: The masters that were given as candidates, [n_masters] bool; None for those of the
            types to which links lead.
    """
    if chosen is not None:
        return lambda queries: ~chosen[None]
    allowed = kind.leads(side)
    types = kind.types_of(partition.masters)
    return lambda queries: ~allowed[kind.types_of(anchor_of(queries, partition.n_nodes))][:, types]


def _best(
    evaluator: LinkEvaluator,
    model: Any,
    ranked: RankedQueries,
    k: int,
    outside: Callable[[np.ndarray], np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """The best nodes of this worker's queries among the masters of all workers, and their scores,
    [q, k] each; see ``Top``.

    Raises:
        DataError: A score is not a number; on all ranks together.

    Collective: all ranks of the partition.
    """
    partition = evaluator.partition
    comm = evaluator.partition.halo_comm
    bounds = np.cumsum([0, *comm.all_gather(len(ranked.queries))])
    blocks = list[tuple[np.ndarray, np.ndarray]]()
    broken = False

    def take(block: QueryBlock) -> None:
        nonlocal broken
        scores = block.scores
        np.copyto(scores, -np.inf, where=outside(block.queries))
        scores[block.query, block.row] = -np.inf
        missing = np.isnan(scores)
        broken = broken or bool(missing.any())
        scores[missing] = -np.inf
        columns = highest(scores, partition.masters, k)
        cut = np.clip(bounds - block.begin, 0, len(scores))
        nodes, best = (
            _received(comm, x, cut)
            for x in (partition.masters[columns], np.take_along_axis(scores, columns, axis=1))
        )
        blocks.append(merged(nodes, best, k))

    score_blocks(
        evaluator=evaluator,
        view=evaluator.every(latest(evaluator)),
        model=model,
        ranked=ranked,
        take=take,
    )
    if comm.all_max(np.array(broken)):
        raise DataError(
            "scores are not numbers (NaN), so none is highest; check the features, and the weights"
            " of the model"
        )
    nodes, scores = (
        (np.concatenate(x) for x in zip(*blocks, strict=True))
        if blocks
        else (np.zeros((0, k), np.int64), np.zeros((0, k)))
    )
    return nodes, scores


def highest(scores: np.ndarray, nodes: np.ndarray, k: int) -> np.ndarray:
    """Columns of the k highest scores of each row, of equal scores those of the lowest nodes, [n,
    min(k, m)] int64, in no order.

    Args:
        scores: [n, m].
        nodes: Number of the node of each column, [m] int64.
        k: How many.
    """
    n, m = scores.shape
    if m <= k:
        return np.broadcast_to(np.arange(m), (n, m))
    out = np.empty((n, k), np.int64)
    for i, row in enumerate(scores):
        last = np.partition(row, m - k)[m - k]
        above = np.flatnonzero(row > last)
        level = np.flatnonzero(row == last)
        out[i] = np.concatenate((above, level[np.argsort(nodes[level])[: k - len(above)]]))
    return out


def merged(nodes: np.ndarray, scores: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k best of each row in order, [n, k] each, see ``Top``; scores of no candidates are -inf.

    Args:
        nodes, scores: In any order, [n, m] each.
        k: How many.
    """
    order = np.lexsort((nodes, -scores), axis=1)[:, :k]
    shape = len(order), k
    best = np.full(shape, -1, np.int64)
    score = np.full(shape, np.nan, scores.dtype)
    highest_first = np.take_along_axis(scores, order, axis=1)
    none = np.isneginf(highest_first)
    best[:, : order.shape[1]] = np.where(none, -1, np.take_along_axis(nodes, order, axis=1))
    score[:, : order.shape[1]] = np.where(none, np.nan, highest_first)
    return best, score


def _received(comm: Comm, x: np.ndarray, cut: np.ndarray) -> np.ndarray:
    """What all workers have for the queries of this worker, side by side.

    Args:
        comm: The workers.
        x: Values of all queries of a block, [q, m], whose width m may differ by worker.
        cut: Bounds of the queries of each worker, [size + 1].

    Collective: all ranks of comm.
    """
    queries = int(cut[comm.rank + 1] - cut[comm.rank])
    parts = comm.all_to_all([x[a:b].ravel() for a, b in pairwise(cut)])
    return np.concatenate(
        [part.reshape(queries, len(part) // max(queries, 1)) for part in parts], axis=1
    )
