"""Reports on several partitions of a graph, as a table and a picture."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphtheta.base.arguments import checked
from graphtheta.base.console import amount, table
from graphtheta.base.picture import new_figure, write_picture
from graphtheta.errors import ConfigError
from graphtheta.graph.data.graph import Graph
from graphtheta.partitioners.auto import BALANCED
from graphtheta.partitioners.report import PartitionReport, partition_report

COMPARED = ("pregel", "graphx", "powerlyra", "distgnn", "gemini", "bgl", "armada")
HEADER = (
    "masters",
    "partitioner",
    "cut",
    "replication",
    "nodes",
    "edges",
    "train",
    "halo rows",
    "s",
    "memory",
)


@dataclass(frozen=True)
class Comparison:
    """Reports on partitions of one graph for one number of workers; ``str`` gives a table.

    Attributes:
        reports: One for each pair.
    """

    reports: tuple[PartitionReport, ...]

    @property
    def best(self) -> PartitionReport:
        """The report of the fewest bytes in training on the whole graph, among the balanced ones.

        Balanced are at most 1.25 times the mean nodes and edges on a worker, or the least found.
        """
        least = min(max(one.nodes, one.edges) for one in self.reports)
        balanced = [
            one for one in self.reports if max(one.nodes, one.edges) <= max(BALANCED, least)
        ]
        return min(balanced, key=lambda one: one.bytes["global"])

    def __str__(self) -> str:
        strategies = list(self.reports[0].bytes)
        rows = [
            (
                one.masters,
                one.partitioner,
                f"{one.edge_cut:.4f}",
                f"{one.replication:.2f}",
                f"{one.nodes:.2f}",
                f"{one.edges:.2f}",
                f"{one.train:.2f}",
                f"{one.halo_rows:,}",
                f"{one.seconds:.1f}",
                "" if one.peak_bytes is None else amount(one.peak_bytes),
                *(amount(one.bytes[name]) for name in strategies),
            )
            for one in self.reports
        ]
        best = self.best
        return (
            table((*HEADER, *(f"{name}/epoch" for name in strategies)), rows)
            + f"\nfewest bytes of balanced ones: masters={best.masters} and"
            f" partitioner={best.partitioner}"
        )

    @checked
    def save(self, path: str | os.PathLike[str]) -> None:
        """Draw the bytes of an epoch, the balance and the time of each pair, and save the picture.

        Args:
            path: A file of a type that matplotlib writes, such as .png or .svg.

        Raises:
            ConfigError: matplotlib is not installed, or has no such type.
            FormatError: The file cannot be written, or something else is in its place.
        """
        names = [f"{one.masters} / {one.partitioner}" for one in self.reports]
        fig = new_figure(figsize=(10, 1.2 + 0.35 * len(names)))
        panels = {
            "MB per epoch": {
                name: [one.bytes[name] / 1e6 for one in self.reports]
                for name in self.reports[0].bytes
            },
            "largest of a worker / mean": {
                name: [getattr(one, name) for one in self.reports] for name in ("nodes", "edges")
            },
            "seconds": {"partitioning": [one.seconds for one in self.reports]},
        }
        for axes, (label, series) in zip(
            fig.subplots(1, 3, sharey=True), panels.items(), strict=True
        ):
            for i, (name, values) in enumerate(series.items()):
                axes.barh(
                    np.arange(len(names)) + 0.8 * i / len(series),
                    values,
                    0.8 / len(series),
                    align="edge",
                    label=name,
                )
            axes.set_xlabel(label)
            axes.legend(frameon=False, fontsize="small")
            axes.set_yticks(np.arange(len(names)) + 0.4, names)
        axes.invert_yaxis()
        write_picture(fig, Path(path))


@checked
def compare_partitions(
    graph: Graph,
    n_workers: int,
    pairs: Sequence[str | tuple[str, str]] = COMPARED,
    seed: int = 0,
    **options: Any,
) -> Comparison:
    """Divide a graph in several ways, in this process, and count what each costs.

    Args:
        graph: The graph.
        n_workers: Number of workers.
        pairs: Node partitioner and edge placement each, or the name of a pair.
        seed: Seed of the job.
        **options: ``layers``, ``width``, ``batch_size`` and ``clusters`` of ``partition_report``.

    Raises:
        ConfigError: Unknown name or option, or no pair.
        PartitionError: Fewer nodes than workers.
        CommError: A partitioner communicates.
    """
    if not pairs:
        raise ConfigError(
            "compare_partitions: pairs is empty; give names of pairs, or (masters, partitioner)"
        )
    reports = []
    for pair in pairs:
        masters, partitioner = ("hash", pair) if isinstance(pair, str) else pair
        reports.append(
            partition_report(
                graph=graph,
                n_workers=n_workers,
                masters=masters,
                partitioner=partitioner,
                seed=seed,
                **options,
            )
        )
    return Comparison(tuple(reports))
