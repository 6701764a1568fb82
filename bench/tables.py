"""Writes the tables of bench/README.md from bench/results: ``python bench/tables.py``.

A table stands between the lines ``<!-- table: NAME -->`` and ``<!-- end -->``. A test compares the
page with the results, and that every file of results has a table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from string import Formatter
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = HERE / "README.md"
RESULTS = HERE / "results"
# scale and edges of a node of a generated graph
GENERATED = re.compile(r"rmat[:-]scale=?(\d+)[,-]edge_factor=?(\d+)\S*")
PLACE = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
Row = Mapping[str, Any]


class Figure(float):
    """A number that is shown with three digits unless a format is given."""

    def __format__(self, spec: str) -> str:
        if spec:
            return super().__format__(spec)
        size = abs(self)
        if size and size < 1e-3:
            return super().__format__(".1e")
        if size >= 100 or not size:
            return super().__format__(",.0f")
        return super().__format__("#.3g")


@dataclass(frozen=True)
class Table:
    """How rows of results become a table.

    Attributes:
        file: Name of the file of results, without its ending.
        columns: Titles, and templates of ``str.format`` over the keys of a row. A cell is empty if
            its row lacks a key or has None there.
        where: Which rows are shown.
        seeds: Keys that rows of several seeds have in common; such rows become one.
        across: Template of the titles of further columns; rows that agree in the other columns
            are one line. Of two rows for one cell, the later one is shown.
        cell: Template of these further columns.
    """

    file: str
    columns: Mapping[str, str]
    where: Callable[[Row], bool] = lambda row: True
    seeds: Sequence[str] = ()
    across: str = ""
    cell: str = ""

    def text(self) -> str:
        """The table as Markdown."""
        rows = [row for row in results(self.file) if self.where(row)]
        if not rows:
            raise LookupError(f"{self.file}.jsonl has no rows that this table shows")
        if self.seeds:
            rows = together(rows, self.seeds)
        # lines by their first columns, which hold further columns by title
        lines: dict[tuple[str, ...], dict[str, str]] = {}
        further: dict[str, None] = {}
        for i, row in enumerate(rows):
            key = tuple(shown(template, row) for template in self.columns.values())
            if not self.across:
                lines[(*key, str(i))] = {}
                continue
            title = shown(self.across, row)
            further.setdefault(title)
            lines.setdefault(key, {})[title] = shown(self.cell, row)
        titles = [*self.columns, *further]
        text = [titles, ["---"] * len(titles)]
        for key, cells in lines.items():
            first = key[: len(self.columns)]
            text.append([*first, *(cells.get(title, "") for title in further)])
        return "\n".join(f"| {' | '.join(line)} |" for line in text)


def results(file: str) -> list[dict[str, Any]]:
    """The rows of a file of results."""
    path = RESULTS / f"{file}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def shown(template: str, row: Row) -> str:
    """A cell, or nothing if the row lacks what the template reads."""
    values = {name: _value(x) for name, x in row.items() if x is not None}
    try:
        return Formatter().vformat(template, (), values)
    except KeyError:
        return ""


def _value(x: Any) -> Any:
    """How a value is shown: numbers with few digits, generated graphs by their size."""
    if isinstance(x, bool):
        return "yes" if x else "no"
    if isinstance(x, str):
        return GENERATED.sub(r"rmat \1 x \2", x)
    return Figure(x) if isinstance(x, float) else x


def together(rows: Sequence[Row], keys: Sequence[str]) -> list[dict[str, Any]]:
    """One row for all seeds of a setting: means of numbers, and below ``sd KEY`` their deviation.

    Rows whose ``figures`` list the results of several runs count each of them.

    Args:
        rows: Of single seeds, or of several.
        keys: What the rows of a setting have in common.
    """
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    made = []
    for group in groups.values():
        one = dict(group[0])
        for key in set(group[0]) - set(keys):
            column = [row[key] for row in group]
            if all(isinstance(x, int | float) for x in column):
                one[key] = float(mean(column))
                one[f"sd {key}"] = stdev(column) if len(column) > 1 else 0.0
        runs = [x for row in group for x in row.get("figures", ())]
        if runs:
            one["mean"] = mean(runs)
            one["deviation"] = stdev(runs) if len(runs) > 1 else 0.0
        one["runs"] = len(runs) or len(group)
        made.append(one)
    return made


def _has(key: str) -> Callable[[Row], bool]:
    return lambda row: key in row


def _is(**wanted: Any) -> Callable[[Row], bool]:
    return lambda row: all(row.get(key) == value for key, value in wanted.items())


def _part(name: str) -> Callable[[Row], bool]:
    return lambda row: row.get("part") == name


FINDINGS = {"finding": "{finding}", "value": "{value}"}
RACE = {"contender": "{contender}", "seconds": "{seconds}", "least": "{least}"}
LARGE = "rmat:scale=18,edge_factor=40,features=8,classes=8"
WIDE = "rmat:scale=16,edge_factor=40,features=8,classes=8"
REDDIT = "rmat:scale=15,edge_factor=175,features=16,classes=8"
POLICIES = {
    name: f"{{{name}:.0%}}"
    for name in ("fifo", "lru", "lfu", "clock", "s3-fifo", "degree", "probability", "belady")
}
TABLES = {
    # speed beside other libraries
    "values": Table(
        "values",
        {
            "graph": "{graph}",
            "model": "{model}",
            "times faster": "{times faster}",
            "MiB": "{MiB}",
            "bfloat16": "{bfloat16 MiB}",
            "of memory": "{of memory}",
            "loss": "{loss}",
            "bfloat16 loss": "{bfloat16 loss}",
            "accuracy": "{accuracy:.4f}",
            "difference": "{difference:+.4f} +- {+-:.4f}",
        },
    ),
    "epoch": Table(
        "epoch",
        {"graph": "{graph}", "model": "{model}"}
        | RACE
        | {"times as long": "{times faster}", "GiB": "{GiB}", "times the memory": "{times less}"},
    ),
    "relations": Table(
        "relations",
        {"graph": "{graph}", "threads": "{threads}"}
        | RACE
        | {"times as long": "{times faster}", "GiB": "{GiB}", "times the memory": "{times less}"},
    ),
    "minibatch": Table(
        "minibatch",
        {"model": "{model}", "sampler": "{sampler}", "fan-out": "{fanout}"}
        | RACE
        | {"times as long": "{times faster}", "sampling alone": "{sampling}", "GiB": "{GiB}"},
    ),
    "sampling": Table(
        "sampling",
        {
            "sampler": "{sampler}",
            "contender": "{contender}",
            "milliseconds": "{milliseconds}",
            "least": "{least}",
            "times as long": "{times slower}",
        },
    ),
    "distributed": Table(
        "distributed",
        {"graph": "{graph}", "step": "{case}"}
        | RACE
        | {"times as long": "{times faster}", "by least": "{by least}"},
    ),
    "build": Table(
        "build",
        {
            "threads": "{threads}",
            "contender": "{contender}",
            "partition": "{partition}",
            "start": "{start}",
            "first step": "{first}",
            "total": "{total}",
            "least": "{least}",
            "times as long": "{times slower}",
            "GiB": "{GiB}",
        },
    ),
    "graph_algorithms": Table(
        "graph_algorithms",
        {"graph": "{graph}", "algorithm": "{case}"}
        | RACE
        | {"of the fastest peer, by least": "{of the fastest peer}", "GiB": "{GiB}"},
    ),
    "time_to_accuracy": Table(
        "time_to_accuracy",
        {
            "graph": "{graph}",
            "model": "{model}",
            "contender": "{contender}",
            "seconds": "{seconds}",
            "of the best by hand": "{of the best}",
            "highest accuracy": "{highest:.3f}",
            "first measured, seconds": "{start}",
            "chosen": "{note}",
        },
        where=lambda row: "contender" in row,
    ),
    "loader": Table(
        "loader",
        {"made ahead": "{prefetch}"}
        | RACE
        | {
            "times as long": "{times faster}",
            "nodes": "{nodes}",
            "edges": "{edges}",
            "GiB": "{GiB}",
        },
    ),
    "ordered": Table(
        "ordered",
        {
            "case": "{case}",
            "contender": "{contender}",
            "forward": "{forward}",
            "backward": "{backward}",
            "times as long": "{times faster}",
            "backward, times": "{back faster}",
            "peak MiB": "{peak MiB}",
        },
    ),
    "gather": Table(
        "gather",
        {
            "case": "{case}",
            "contender": "{contender}",
            "forward": "{forward}",
            "backward": "{backward}",
            "times as long": "{times faster}",
            "backward, times": "{back faster}",
            "GB/s": "{GB/s}",
        },
        where=_has("case"),
    ),
    "links": Table(
        "links",
        {"contender": "{contender}", "results": "{numbers}"},
        across="{cache}, {link}",
        cell="{least} s, {of plain, least} x",
    ),
    "typed_features": Table(
        "typed_features",
        {
            "form": "{form}",
            "MiB of features": "{features}",
            "GiB at the peak": "{peak}",
            "processor seconds": "{seconds}",
        },
    ),
    # speed of parts
    "dense": Table(
        "dense",
        {
            "stage": "{stage}",
            "shape": "{shape}",
            "direction": "{direction}",
            "GF/s": "{GF/s}",
            "GF/s of BLAS": "{GF/s blas}",
            "share": "{of blas:.0%}",
        },
    ),
    "products": Table(
        "products",
        {
            "product": "{product}",
            "shape": "{shape}",
            "GF/s": "{GF/s}",
            "of the peak": "{of peak:.0%}",
            "times BLAS": "{of blas}",
            "times PyTorch": "{of torch}",
        },
    ),
    "fused": Table(
        "fused",
        {
            "case": "{case}",
            "direction": "{direction}",
            "seconds": "{fused}",
            "of separate": "{of separate}",
            "of torch": "{of torch}",
            "of torch, least": "{least of torch}",
            "of DGL": "{of dgl}",
            "of DGL, least": "{least of dgl}",
            "GB/s": "{GB/s}",
        },
    ),
    "limits": Table(
        "limits",
        {
            "step": "{run}",
            "part": "{part}",
            "ms": "{ms}",
            "limit": "{limit}",
            "of the limit": "{of the limit}",
        },
    ),
    "step": Table(
        "step",
        {
            "graph": "{run}",
            "step, ms": "{step}",
            "kernels": "{kernels}",
            "products": "{products}",
            "arrays": "{arrays}",
            "interpreter": "{other}",
        },
    ),
    "start": Table(
        "start",
        {
            "model": "{model}",
            "start": "{contender}",
            "set-up, s": "{build}",
            "first step, s": "{first}",
            "more than a step, s": "{extra}",
        },
        where=_has("model"),
    ),
    "ranks": Table(
        "ranks",
        RACE
        | {
            "speed of one rank": "{of one rank}",
            "MB sent": "{MB sent}",
            "waiting, s": "{wait}",
        },
    ),
    "overlap": Table("overlap", FINDINGS, where=_has("finding")),
    "uneven": Table(
        "uneven",
        {"case": "{case}"} | RACE | {"idle": "{idle:.0%}"},
        where=_has("case"),
    ),
    "pipeline": Table(
        "pipeline",
        {
            "case": "{case}",
            "views in flight": "{contender}",
            "used": "{chosen}",
            "least, s": "{least}",
            "of the best": "{of best}",
            "idle": "{idle:.0%}",
        },
        where=lambda row: not row.get("loaded"),
    ),
    "totals": Table(
        "totals",
        {
            "graph": "{graph}",
            "workers": "{workers}",
            "processor of a worker, s": "{processor}",
            "of one worker": "{of one}",
            "edges": "{edges:.0%}",
            "MiB sent": "{MiB}",
        },
    ),
    "gradient_sums": Table(
        "gradient_sums",
        {
            "ranks": "{ranks}",
            "link": "{link}",
            "bytes": "{bytes:,}",
            "direct, s": "{direct}",
            "chosen, s": "{chosen}",
            "direct messages": "{direct messages}",
            "chosen messages": "{messages}",
        },
        where=lambda row: row["bytes"] in (4096, 8388608),
    ),
    "ablation": Table(
        "ablation",
        {"stage": "{stage}", "share, %": "{ours}", "published, %": "{paper}"},
    ),
    # memory
    "recompute": Table(
        "recompute",
        {"layers": "{layers}"},
        where=_has("layers"),
        across="{contender}",
        cell="{MiB} MiB, {step} s",
    ),
    "disk": Table(
        "disk",
        {"features": "{features}", "in flight": "{in flight}", "read from": "{contender}"}
        | {"least epoch, s": "{least}", "processor, s": "{processor}", "MiB": "{MiB}"},
    ),
    "facebook100": Table(
        "facebook100",
        {
            "strategy": "{case}",
            "workers": "{contender}",
            "start, s": "{start}",
            "epoch, s": "{epoch}",
            "epochs": "{epochs}",
            "MiB of a worker": "{MiB}",
            "MiB of all": "{all MiB}",
            "accuracy": "{accuracy:.1%}",
        },
        where=lambda row: row["contender"] != "converged",
    ),
    "facebook100-converged": Table(
        "facebook100",
        {
            "strategy": "{case}",
            "seed": "{seed}",
            "evaluated every": "{eval_every}",
            "best epoch": "{best epoch}",
            "epochs": "{epochs}",
            "validation": "{val_accuracy:.1%}",
            "test": "{accuracy:.1%}",
        },
        where=lambda row: row["contender"] == "converged",
    ),
    "layerwise": Table(
        "layerwise",
        {
            "contender": "{contender}",
            "partition, MiB": "{built}",
            "prediction, MiB": "{predicted}",
            "processor, s": "{processor}",
        },
        where=_has("contender"),
    ),
    "import": Table(
        "import",
        {
            "tables, workers": "{contender}",
            "seconds": "{seconds}",
            "edges/s": "{edges/s}",
            "MB of a worker": "{MB}",
            "MB of its share": "{share}",
        },
    ),
    "division": Table(
        "division",
        {
            "masters": "{masters}",
            "workers": "{contender}",
            "MB, assigning": "{MB}",
            "MB, dealing": "{dealing}",
            "MB of a share": "{share}",
            "processor, s": "{processor}",
            "cut": "{cut}",
        },
    ),
    "mirrors": Table(
        "mirrors",
        {
            "edges by": "{partitioner}",
            "width": "{hidden}",
            "between steps, MB": "{held MB}",
            "peak, MB": "{peak MB}",
            "values of mirrors, MB": "{mirrors MB}",
        },
        where=_has("hidden"),
    ),
    # what is read and sent
    "bytes": Table(
        "bytes",
        {"graph": "{graph}", "ranks": "{ranks}", "model": "{model}", "strategy": "{strategy}"},
        across="{partitioner}",
        cell="{MB sent} MB, {times less:.1f} x",
    ),
    "partitioners": Table(
        "partitioners",
        {"masters": "{masters}", "edges by": "{partitioner}"},
        across="{graph}, {workers}",
        cell="{cut}",
        where=lambda row: row["partitioner"] in ("1d-src", "1d-dst"),
    ),
    "partitioners-speed": Table(
        "partitioners",
        {"masters": "{masters}"},
        across="{graph}, {workers}",
        cell="{processor} s, {faster} x",
        # rows of another processor have no DGL beside them
        where=lambda row: row["partitioner"] in ("1d-src", "1d-dst") and row["faster"] is not None,
    ),
    "placements": Table(
        "partitioners",
        {"masters": "{masters}", "edges by": "{partitioner}"},
        across="{graph}, {workers}",
        cell="{replication} copies, {edges} edges, {sent} MB",
        where=lambda row: row["workers"] == 8 and row["partitioner"] != "1d-dst",
    ),
    "traffic": Table(
        "traffic",
        {"masters": "{masters}"},
        across="{graph}",
        cell="{expand} + {values} KiB",
    ),
    "traffic-cuts": Table(
        "traffic",
        {"masters": "{masters}"},
        across="{graph}",
        cell="{cut} of edges, {two hops} of paths, {train} x train",
        where=_has("cut"),
    ),
    "sampled_sizes": Table(
        "sampled_sizes",
        {"graph": "{graph}", "sampler": "{sampler}"}
        | {name: f"{{{name}}}" for name in ("V3", "E2", "V2", "E1", "V1", "E0", "NS / V3")}
        | {"published": "{paper}"},
        where=_has("sampler"),
    ),
    "dependent": Table(
        "sampled_sizes",
        {"graph": "{graph}", "mega-batches": "{mega-batch}"},
        where=_has("kappa"),
        across="{kappa}",
        cell="{distinct:,} rows, {hits:.0%} hits",
    ),
    "caches": Table(
        "caches",
        {"graph": "{graph}", "workers": "{workers}", "order": "{order}", "cache": "{cache}"}
        | POLICIES
        | {"rows, none": "{rows}", "rows, belady": "{fewest}"},
        where=lambda row: row["cache"] in ("5 %", "20 %") and row.get("targets") != 50,
    ),
    "caches-order": Table(
        "caches",
        {"graph": "{graph}", "order": "{order}"},
        across="{cache}",
        cell="{fifo:.0%}, {degree:.0%}, {belady:.0%} of {rows:,.0f}",
        where=_is(targets=50),
    ),
    "together": Table(
        "together",
        {"contender": "{contender}"},
        across="{graph}",
        cell="{rows}, {lru}, {belady}",
    ),
    "machines": Table(
        "machines",
        {
            "workers": "{machines}",
            "cache": "{cache}",
            "merged": "{merged}",
            "lru, own": "{lru, own}",
            "lru, shared": "{lru, shared}",
            "belady, own": "{belady, own}",
            "belady, shared": "{belady, shared}",
        },
    ),
    "macrobatch": Table(
        "macrobatch",
        {"workers": "{workers}", "contender": "{contender}"}
        | {"messages": "{messages:,}", "MiB": "{MiB}", "vectors": "{vectors:,}"},
        where=_is(graph=REDDIT, order="random"),
    ),
    "macrobatch-large": Table(
        "macrobatch",
        {"graph": "{graph}", "workers": "{workers}"},
        across="{contender}",
        cell="{messages:,}; {vectors:,}",
        where=lambda row: row["graph"] in (LARGE, WIDE),
    ),
    "modes": Table(
        "modes",
        {
            "fan-out": "{fanout}",
            "workers": "{workers}",
            "more nodes": "{more nodes:.0%}",
            "more edges": "{more edges:.0%}",
            "MiB, independent": "{MiB}",
            "MiB, one batch": "{MiB together}",
            "MiB, same views": "{MiB same views}",
        },
        where=_is(case="counts"),
    ),
    "modes-time": Table("modes", FINDINGS, where=_has("finding")),
    "hec": Table(
        "hec",
        {"graph": "{graph}", "workers": "{workers}"},
        where=_is(cs="all", nc=2000, d=1),
        across="ls={ls}",
        cell="{L0:.0f}, {L1:.0f}, {L2:.0f} %",
    ),
    # accuracy
    "accuracy": Table(
        "accuracy",
        {
            "setting": "{row}",
            "seeds": "{seeds}",
            "test accuracy": "{mean:.1f} +- {deviation:.1f}",
            "published": "{published}",
        },
    ),
    "sampler_accuracy": Table(
        "sampler_accuracy",
        {"sampler": "{sampler}"},
        across="{task}",
        cell="{mean:.1f} ({of full:+.1f} +- {+-:.1f})",
    ),
    "histories": Table(
        "histories",
        {"mechanism": "{mechanism}"},
        across="{task}",
        cell="{mean:.1f} ({of exact:+.1f} +- {+-:.1f})",
    ),
    "graph_accuracy": Table(
        "graph_accuracy",
        {
            "task": "{task}",
            "runs": "{runs}",
            "test": "{mean:.1f} +- {deviation:.1f}",
            "published": "{published}",
        },
        seeds=("task",),
    ),
    "relational_accuracy": Table(
        "relational_accuracy",
        {
            "task": "{task}",
            "runs": "{runs}",
            "test": "{mean} +- {deviation}",
            "published": "{published}",
        },
        seeds=("task",),
    ),
    "edge_attributes": Table(
        "edge_attributes",
        {
            "task": "{task}",
            "model": "{name}",
            "test accuracy": "{test_accuracy:.3f}",
            "test macro-F1": "{test_f1_macro:.3f}",
            "test MAE": "{test_mae:.3f}",
            "seconds": "{seconds}",
        },
    ),
    "knowledge": Table(
        "knowledge",
        {
            "graph, model": "{run}",
            "seeds": "{runs}",
            "MRR": "{mrr:.3f} +- {sd mrr:.3f}",
            "Hits@1": "{hits1:.3f}",
            "Hits@3": "{hits3:.3f}",
            "Hits@10": "{hits10:.3f}",
            "seconds": "{seconds}",
        },
        seeds=("run",),
    ),
    # what is predicted
    "plan": Table(
        "plan",
        {
            "graph": "{graph}",
            "strategy": "{strategy}",
            "workers": "{workers}",
            "mode": "{mode}",
            "memory": "{MB off}",
            "bytes": "{sent off}",
            "time": "{s off}",
        },
    ),
    "simulate": Table(
        "simulate",
        {"job": "{case}"},
        where=_part("check"),
        across="{link}",
        cell="{simulated} s, {off:+.0%}",
    ),
    "simulate-scaling": Table(
        "simulate",
        {
            "strategy": "{case}",
            "edges inside": "{inside}",
            "workers": "{workers:,}",
            "step, s": "{step}",
            "speed-up": "{of first}",
            "links x 4": "{links x 4}",
            "links / 4": "{links / 4}",
            "limit": "{limit} {share:.0%}",
        },
        where=_part("scaling"),
    ),
    "simulate-alipay": Table(
        "simulate",
        {
            "strategy": "{case}",
            "workers": "{workers:,}",
            "step, s": "{step}",
            "speed-up": "{of first}",
            "links x 4": "{links x 4}",
            "links / 4": "{links / 4}",
            "limit": "{limit} {share:.0%}",
        },
        where=_part("alipay"),
    ),
    "simulate-modes": Table(
        "simulate",
        {"targets": "{case}", "mode": "{mode}"},
        where=_part("modes"),
        across="{workers}",
        cell="{step} s, {limit} {share:.0%}",
    ),
    "simulate-caches": Table(
        "simulate",
        {"rows": "{rows}", "policy": "{policy}"},
        where=lambda row: (
            row["part"] == "caches" and row["case"] == "1,024 each" and row["rows"] in ("", "2M")
        ),
        across="{workers}",
        cell="{hits:.0%}, {step} s",
    ),
    # reliability
    "appended": Table(
        "appended",
        {
            "edges": "{case}",
            "model": "{model}",
            "compared": "{compared}",
            "predicted": "{predicted}",
            "pass, s": "{whole s}",
            "edges run, %": "{edges %}",
            "processor, %": "{processor %}",
        },
    ),
    "guards": Table("guards", FINDINGS, where=_has("finding")),
    "faults": Table(
        "faults",
        {"fault": "{fault}", "seconds": "{seconds:.1f}", "exit code": "{status}"},
    ),
    "fuzz": Table(
        "fuzz",
        {
            "reader": "{reader}",
            "accepted": "{accepted:,}",
            "refused": "{refused:,}",
            "faults": "{faults}",
            "worst time, s": "{worst s}",
            "most memory, MiB": "{worst MiB}",
        },
    ),
    "kills": Table("kills", FINDINGS, where=_has("finding")),
    "kills_reuse": Table("kills_reuse", FINDINGS, where=_has("finding")),
    "soak": Table(
        "soak",
        {"finding": "{finding}"},
        where=_has("finding"),
        across="{mode}",
        cell="{value}",
    ),
    "equality": Table(
        "equality",
        {"finding": "{finding}"},
        where=_has("finding"),
        across="seed {seed}",
        cell="{value}",
    ),
}


def filled(page: str) -> str:
    """The page with its tables as the results are now."""
    return PLACE.sub(lambda place: f"{place[1]}{TABLES[place[2]].text()}\n{place[3]}", page)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
