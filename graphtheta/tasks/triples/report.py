"""Ranks by relation, for heads and for tails."""

from __future__ import annotations

from typing import Any

from graphtheta.base.arguments import checked
from graphtheta.base.console import figure, table
from graphtheta.base.wording import shown
from graphtheta.errors import ConfigError
from graphtheta.ops.functions.metrics.ranking import KS, hits, mrr
from graphtheta.tasks.triples.answers import HEAD, TAIL
from graphtheta.tasks.triples.ranking import TripleEvaluator

SIDE_NAMES = {HEAD: "head", TAIL: "tail"}
Report = dict[tuple[Any, str], dict[str, float]]


@checked
def relation_report(trainer: Any, split: str = "test") -> Report:
    """Ranks of the triples of each relation, of a trainer with the task triple.

    Args:
        trainer: A ``gt.Trainer``.
        split: "val" or "test".

    Returns:
        For each relation (its name, or its code) and what is asked for ("head" or "tail"), the
        number of ``triples``, ``mrr``, ``hits1``, ``hits3`` and ``hits10``. Relations without
        triples in the split are left out.

    Raises:
        ConfigError: The trainer has another task, or there is no such split.

    Collective: all ranks.
    """
    if not hasattr(trainer, "setup"):
        raise ConfigError(f"relation_report: trainer is {shown(trainer)}; expected a gt.Trainer")
    setup = trainer.setup
    if not isinstance(setup.evaluator, TripleEvaluator):
        raise ConfigError(
            "relation_report ranks heads and tails of triples, but the trainer has"
            f" task={setup.kind.name}"
        )
    if split not in setup.evaluator.links:
        raise ConfigError(
            f"relation_report: unknown split {split!r}; choose from"
            f" {', '.join(setup.evaluator.links)}"
        )
    names = setup.kind.relations
    with setup.scope(), setup.evaluator.at(trainer.epoch):
        by_relation = setup.evaluator.by_relation(trainer.model, split, len(names))
    return {
        (name, SIDE_NAMES[side]): {
            "triples": int(sums[0]),
            "mrr": mrr(sums),
            **{f"hits{k}": hits(sums, k) for k in KS},
        }
        for name, sides in zip(names, by_relation, strict=True)
        for side, sums in enumerate(sides)
        if sums[0]
    }


def report_text(report: Report) -> str:
    """A table of a report."""
    columns = ("triples", "mrr", *(f"hits{k}" for k in KS))
    rows = [
        (str(name), side, *(figure(row[c]) for c in columns))
        for (name, side), row in report.items()
    ]
    return table(("relation", "of", *columns), rows)
