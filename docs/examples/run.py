"""Runs the examples: ``python docs/examples/run.py [PAGE...]``.

The command of an example is the first ``graphtheta train`` of its page, and a Python block that
begins with ``# file: NAME`` is that file. Results are kept in ``results``, from which the pages
quote and ``docs/figures/draw.py`` draws the curves.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from statistics import mean, stdev
from tempfile import TemporaryDirectory
from typing import Any

import graphtheta as gt

HERE = Path(__file__).resolve().parent
# the metric of each page
EXAMPLES = {
    "citation": "accuracy",
    "molecules": "auc",
    "traffic": "r2",
    "trust": "mrr",
    "recommend": "ndcg20",
    "deep": "accuracy",
    "words": "mrr",
}
# pages whose picture shows the metric of each relation
BY_RELATION = ("words",)
COMMAND = re.compile(r"^graphtheta train ((?:.*\\\n)*.*)$", re.MULTILINE)
FILE = re.compile(r"^```python\n# file: (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def words_of(name: str, folder: Path) -> list[str]:
    """The words of the command of a page, whose files are written to a folder."""
    page = (HERE / f"{name}.md").read_text(encoding="utf-8")
    for file, code in FILE.findall(page):
        (folder / file).write_text(code, encoding="utf-8")
    found = COMMAND.search(page)
    assert found, name
    return ["train", *shlex.split(found[1].replace("\\\n", " "))]


def run(name: str) -> dict[str, Any]:
    """Metrics of all seeds on the test set, and curves on the validation set."""
    metric = EXAMPLES[name]
    with TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "graphtheta", *words_of(name, Path(folder)), "--out", "run"]
        subprocess.run(words, cwd=folder, check=True)
        found = found_in(Path(folder) / "run", metric)
        return found | (
            {"relations": by_relation(Path(folder) / "run", metric)} if name in BY_RELATION else {}
        )


def found_in(folder: Path, metric: str) -> dict[str, Any]:
    """The results in the folder of a run with several seeds."""
    test = json.loads((folder / "result.json").read_text(encoding="utf-8"))["metrics"][
        f"test_{metric}"
    ]
    curves = []
    for seed in seeds_of(folder):
        rows = [
            json.loads(line)
            for line in (seed / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        ]
        curves.append(
            [
                (row["epoch"], round(row[f"val_{metric}"], 5))
                for row in rows
                if f"val_{metric}" in row
            ]
        )
    return {
        "metric": metric,
        "test": test,
        "mean": mean(test),
        "deviation": stdev(test),
        "val": curves,
    }


def seeds_of(folder: Path) -> list[Path]:
    """The folders of the seeds of a run."""
    return sorted(folder.glob("seed-*"), key=lambda path: int(path.name.partition("-")[2]))


def by_relation(folder: Path, metric: str) -> list[dict[str, Any]]:
    """For each relation the number of test triples, and a metric of its tails and of its heads,
    means over the seeds.
    """
    reports = [gt.relation_report(gt.open_run(seed)) for seed in seeds_of(folder)]
    return [
        {
            "relation": relation,
            "triples": report["triples"],
            **{end: mean(of[relation, end][metric] for of in reports) for end in ("tail", "head")},
        }
        for (relation, end), report in reports[0].items()
        if end == "tail"
    ]


def main(names: list[str]) -> int:
    for name in names or EXAMPLES:
        found = run(name)
        (HERE / "results" / f"{name}.json").write_text(json.dumps(found) + "\n", encoding="utf-8")
        print(f"{name}: test {found['metric']} {found['mean']:.3f} +- {found['deviation']:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
