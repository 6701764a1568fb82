"""Every script of bench/ runs: each at its smallest size, so that a change that breaks one is seen.

What the numbers of a script must be is tested elsewhere, if anywhere.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from graphs import papers, random_graph
from speed import IDEAL

import graphtheta as gt
from graphtheta.ops import PRIMITIVES

TESTS = Path(__file__).resolve().parent
BENCH = TESTS.parent / "bench"
SMALL = "rmat:scale=8,edge_factor=4,features=4,classes=3"
# scripts that other tests run, by file
ELSEWHERE = {
    "front/test_fuzz.py": {"fuzz", "fuzz_runs"},
    "front/test_ingest_kinds.py": {"fuzz_tables"},
    "front/test_from_libraries.py": {"fuzz_objects"},
    "front/test_kill.py": {"kills"},
    "front/test_rewriting.py": {"fuzz_transforms"},
    "ops/test_tapes.py": {"fuzz_tapes"},
    "test_bench.py": {"bits"},
    "test_bench_tables.py": {"tables"},
}
RUN = re.compile(r'(?:run_bench|rows_of)\(\s*"(\w+)"')


class Script(NamedTuple):
    """Words of a script, and what makes its jobs smaller than its flags can.

    ``codes`` has 1 where a graph is too small for what the script checks.
    """

    words: str = ""
    change: Callable[[Any, pytest.MonkeyPatch], None] = lambda bench, patch: None
    codes: tuple[int, ...] = (0,)


def loads(graph: Callable[..., gt.Graph]) -> Callable[[Any, pytest.MonkeyPatch], None]:
    """The change after which ``gt.load`` returns a small graph."""
    return lambda bench, patch: patch.setattr(gt, "load", graph)


def of_two_kinds(name: str) -> gt.Graph:
    """Classes of nodes, or values of edges for the graph of roads."""
    node = name == "mol_tox21"
    return random_graph(**{"edge_y": None} if node else {"y": None, "n_classes": None})


def triples(name: str) -> gt.Graph:
    """Triples without features of nodes."""
    relation = np.random.default_rng(1).integers(0, 3, 90)
    return random_graph(x=None, y=None, edge_y=None, edge_columns={"relation": relation})


def molecules(name: str, fold: int) -> gt.Graph:
    """Whole graphs of two classes."""
    part = np.arange(12) % 3
    ring = (np.arange(4), (np.arange(4) + 1) % 4)
    rings = [gt.Graph(ring, 4, x=np.full((4, 3), float(i % 2))) for i in range(12)]
    return gt.whole_graphs(rings, np.arange(12) % 2, train=part == 0, val=part == 1, test=part == 2)


def ratings(name: str) -> gt.Graph:
    """Ratings of movies by users."""
    rates = ("user", "rates", "movie")
    rng = np.random.default_rng(0)
    ends = {rates: (rng.integers(0, 20, 200), rng.integers(0, 15, 200))}
    return gt.Graph(
        ends, {"user": 20, "movie": 15}, edge_attr={rates: rng.integers(1, 6, (200, 1))}
    )


def ablation(bench: Any, patch: pytest.MonkeyPatch) -> None:
    """Its operation is not one of the package, for tests that follow."""
    del PRIMITIVES["noted"]


def accuracy(bench: Any, patch: pytest.MonkeyPatch) -> None:
    bench.ROWS["cora-gcn"] = ("cora-gcn", {"dataset": SMALL, "epochs": 1}, "")


def edge_attributes(bench: Any, patch: pytest.MonkeyPatch) -> None:
    bench.STRATEGIES["mini"].update(batch_size=8, epochs=1)
    bench.TRAFFIC.update(epochs=1)
    patch.setattr(gt, "load", of_two_kinds)


def facebook100(bench: Any, patch: pytest.MonkeyPatch) -> None:
    bench.MOST["mini"] = 1
    of_disk = bench.store_of
    bench.store_of = lambda name, *where: of_disk(SMALL, *where)


def layerwise(bench: Any, patch: pytest.MonkeyPatch) -> None:
    of_disk = bench.store_of
    bench.store_of = lambda name, *where: of_disk(SMALL, *where)


def graph_accuracy(bench: Any, patch: pytest.MonkeyPatch) -> None:
    bench.FOLDS = 2
    bench.TU["mutag"].update(epochs=1, hidden=4)
    patch.setattr(gt, "load", molecules)


def histories(bench: Any, patch: pytest.MonkeyPatch) -> None:
    bench.TASKS["photo"].update(dataset=SMALL)
    for keys, _ in bench.MECHANISMS.values():
        keys.update(epochs=4)


def knowledge(bench: Any, patch: pytest.MonkeyPatch) -> None:
    bench.CHECKED = 5
    keys = {"embedding": 8, "batch_size": 32, "epochs": 1, "eval_every": 1}
    bench.RUNS = {"wn18rr distmult": {**bench.RUNS["wn18rr distmult"], **keys}}
    patch.setattr(gt, "load", triples)


def links(bench: Any, patch: pytest.MonkeyPatch) -> None:
    bench.JOB.update(dataset="rmat:scale={},features=4,classes=3")


def relational_accuracy(bench: Any, patch: pytest.MonkeyPatch) -> None:
    bench.MODELS["rgcn"].update(epochs=1)
    bench.MOVIELENS.update(epochs=1)
    patch.setattr(gt, "load", ratings)
    trainer, tested = gt.Trainer, papers()
    part = np.where(tested.y >= 0, np.arange(tested.n_nodes) % 3, 3)
    tested = tested.with_masks(part == 0, part == 1, part == 2)
    patch.setattr(
        gt,
        "Trainer",
        lambda *args, dataset=None, **keys: trainer(
            *args, **keys, **({"graph": tested} if dataset else {})
        ),
    )


def sampler_accuracy(bench: Any, patch: pytest.MonkeyPatch) -> None:
    bench.TASKS["photo"].update(dataset=SMALL)
    bench.MINI.update(epochs=1)


def plan(bench: Any, patch: pytest.MonkeyPatch) -> None:
    """It calls itself in this process, and measures neither the machine nor for long."""
    bench.GRAPHS["cora"] = (SMALL, {"hidden": 4})
    bench.STRATEGIES = {"mini": {"batch_size": 8, "fanout": "3,2"}}
    bench.EPOCHS, bench.LEAST_SECONDS = 1, 0.0
    bench.machine = lambda again=False: IDEAL

    def answer(*words: object) -> Any:
        said = io.StringIO()
        with pytest.MonkeyPatch.context() as context, contextlib.redirect_stdout(said):
            context.setattr(sys, "argv", ["plan.py", *map(str, words)])
            assert bench.main() == 0
        return json.loads(said.getvalue().removeprefix(bench.BEGIN))

    bench.answer = answer


def simulate(bench: Any, patch: pytest.MonkeyPatch) -> None:
    bench.GRAPH, bench.SLOWED, bench.LEAST_SECONDS = SMALL, bench.SLOWED[:1], 0.0
    bench.machine = lambda again=False: IDEAL


def typed_features(bench: Any, patch: pytest.MonkeyPatch) -> None:
    bench.SIZES.update(paper=40, author=30, institution=5)
    bench.EDGES.update(dict.fromkeys(bench.EDGES, 50))


def values(bench: Any, patch: pytest.MonkeyPatch) -> None:
    bench.GRAPHS["cora"] = bench.Case(SMALL)


TINY = f"--graph {SMALL}"
FEW = f"--graphs {SMALL} --workers 2 --fanout 3,2 --targets 8"
# by script, or by script and what is run of it
SCRIPTS: dict[str, Script] = {
    "accuracy": Script("--only cora-gcn --seeds 1", accuracy),
    "appended": Script("--rounds 1 --scale 7 --hidden 8 --models gcn --share 0.02"),
    "disk": Script(f"--rounds 1 {TINY} --features int8 --epochs 1"),
    "distributed": Script(
        f"--rounds 1 {TINY} --cases sampled --hidden 4 --targets 8 --batches 1 --peers"
    ),
    "edge_attributes": Script("--strategies mini --models blind", edge_attributes),
    "edge_attributes widths": Script("--widths 0 2 --edges 40"),
    "facebook100": Script("--cases mini --epochs 1 --colleges 1 --workers 1", facebook100),
    "facebook100 converge": Script("--cases mini --converge --colleges 1", facebook100),
    "faults": Script("--faults sys.exit --ranks 2"),
    "fused": Script(f"--rounds 1 --rows 64 {TINY} --times 1 --peers"),
    "gradient_sums": Script("--ranks 2 --sizes 256"),
    "graph_accuracy": Script("--tasks mutag --seeds 1", graph_accuracy),
    "graph_algorithms": Script("--rounds 1 --graphs small --peers --times 1"),
    "histories": Script(
        "--tasks photo --mechanisms hec --seeds 1 --workers 2", histories, codes=(0, 1)
    ),
    "import": Script("--scale 6 --workers 2 --kinds csv.gz parquet"),
    "knowledge": Script("--seeds 1", knowledge),
    "layerwise": Script("", layerwise),
    "links": Script("--rounds 1 --scale 6 --hidden 4 --fanout 3,2 --epochs 1 --only lru", links),
    "machines": Script(f"{FEW.replace('--workers', '--per-machine')} --sizes 10 --epochs 1"),
    "mirrors": Script(f"{TINY} --widths 4 8", codes=(0, 1)),
    "ordered": Script(f"--rounds 1 {TINY} --cases lstm_16 --times 1 --peers"),
    "papers/ablation": Script(f"{TINY} --epochs 2", ablation),
    "pipeline": Script("--rounds 1 --scale 6 --epochs 1 --cases contention"),
    "plan": Script("--graphs cora --workers 2 --rounds 1", plan),
    "products": Script("--rounds 1 --rows 64 --shapes 16x16 --times 1"),
    "relational_accuracy": Script("--tasks acm-20-rgcn movielens --seeds 1", relational_accuracy),
    "sampler_accuracy": Script(
        "--tasks photo --samplers labor ladies --seeds 1", sampler_accuracy, codes=(0, 1)
    ),
    "simulate": Script(
        "--rounds 1 --parts check scaling clusters --checked global --hidden 4 --epochs 1"
        " --scale 10 --cases global mini --cluster-scale 11 --workers 2",
        simulate,
    ),
    "together": Script(f"{FEW} --epochs 1 --kappa 2", codes=(0, 1)),
    "traffic": Script(f"{FEW} --masters hash block --steps 1"),
    "typed_features": Script("--form sparse", typed_features),
    "values": Script("--graphs cora --models gcn --epochs 2 --seeds 2", values),
    "versions": Script(
        f"--rounds 1 {TINY} --before HEAD --models gcn --epochs 1 --minibatch sage --steps 1"
    ),
}


@pytest.mark.second
@pytest.mark.reference
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script, (words, change, codes) = name.split()[0], SCRIPTS[name]
    if script == "versions" and not (TESTS.parent / ".git").exists():
        pytest.skip("no earlier version here")
    monkeypatch.syspath_prepend(BENCH)
    path = BENCH / f"{script}.py"
    spec = spec_from_file_location(f"bench_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    bench = module_from_spec(spec)
    spec.loader.exec_module(bench)
    change(bench, monkeypatch)
    folder = ["--folder", str(tmp_path)] * hasattr(bench, "parser")
    words = [word.replace("_16", " 16") for word in words.split()]
    monkeypatch.setattr(sys, "argv", [path.name, *words, *folder])
    assert bench.main() in codes
    # a contender that failed is a note in the table
    said = capsys.readouterr().out
    assert "Error" not in said and "ended with status" not in said


def test_every_script_is_run() -> None:
    scripts = {
        path.relative_to(BENCH).with_suffix("").as_posix()
        for path in [*BENCH.glob("*.py"), BENCH / "papers" / "ablation.py"]
        if "__main__" in path.read_text(encoding="utf-8")
    }
    run = {name.split()[0] for name in SCRIPTS}
    run |= set(RUN.findall((TESTS / "test_bench.py").read_text(encoding="utf-8")))
    for file, names in ELSEWHERE.items():
        text = (TESTS / file).read_text(encoding="utf-8")
        assert all(name in text for name in names), file
        run |= names
    assert scripts - run == set()
