"""Predictions for links and triples from a file: those of held-out links where both have them, in
the order of the file, on any number of workers; what is wrong in a file is named.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.cli.links import link_rows
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError, DataError, FormatError

pytestmark = pytest.mark.reference

KEYS = {"epochs": 1, "hidden": 4, "dtype": "float64", "backend": "reference", "keep": 0}
DRAWN = np.random.default_rng(0)
ENDS = DRAWN.integers(0, 30, (2, 120))
PEOPLE = gt.Graph(ENDS, x=DRAWN.normal(size=(30, 3)), node_ids=[f"p{i}" for i in range(30)])
FACTS = gt.Graph(
    ENDS,
    x=DRAWN.normal(size=(30, 3)),
    edge_columns={"relation": DRAWN.integers(0, 3, 120)},
    node_ids=np.arange(30) * 7,
)
SHOP = gt.Graph(
    {
        ("user", "buys", "item"): DRAWN.integers(0, 12, (2, 60)),
        ("user", "knows", "user"): DRAWN.integers(0, 12, (2, 20)),
    },
    x={"user": DRAWN.normal(size=(12, 3)), "item": DRAWN.normal(size=(12, 2))},
    node_ids={kind: [f"{kind[0]}{i}" for i in range(12)] for kind in ("user", "item")},
)
TASKS: dict[str, tuple[gt.Graph, str, dict[str, Any]]] = {
    "link": (PEOPLE, "sage", {"task": "link"}),
    "hadamard": (PEOPLE, "sage", {"task": "link", "decoder": "hadamard"}),
    "triple": (FACTS, "mlp", {"task": "triple", "decoder": "complex"}),
    "reciprocal": (FACTS, "mlp", {"task": "triple", "decoder": "distmult", "reciprocal": True}),
    "types": (SHOP, "rgcn", {"task": "link", "link_relation": "buys"}),
}


def trained(comm: Any, name: str, **keys: Any) -> gt.Trainer:
    graph, model, task = TASKS[name]
    trainer = gt.Trainer(model, graph, comm=comm, **{**KEYS, **task, **keys})
    trainer.fit()
    return trainer


def write(path: Path, rows: Any) -> str:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return str(path)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", TASKS)
def test_the_file_has_the_scores_of_held_out_links(name: str, tmp_path: Path) -> None:
    """Its rows are in reverse order and twice, on one to three workers."""
    titles = ("head", "relation", "tail") if "r" in name[:2] else ("src", "dst")

    def program(comm: Any) -> Any:
        trainer = trained(comm, name)
        held = trainer.predictions()
        path = tmp_path / f"{comm.size}.csv"
        if held is not None:
            rows = held.ids[::-1].tolist()
            write(path, [titles, *rows, *rows])
        # the file is there
        comm.all_sum(np.zeros(1))
        return held, link_rows(trainer, str(path), True), link_rows(trainer, str(path), False)

    first = None
    for size in (1, 2, 3):
        found = run_simulated(size, program)
        held, given, _ = found[0]
        both = np.concatenate((held.values[::-1], held.values[::-1]))
        np.testing.assert_allclose(given.values, both, rtol=1e-9)
        assert given.ids.astype(str).tolist() == 2 * held.ids[::-1].astype(str).tolist()
        parts = [part for _, _, part in found]
        assert sum(len(part.ids) for part in parts) == len(both)
        assert ((given.values > 0) & (given.values < 1)).all()
        first = given.values if first is None else first
        np.testing.assert_allclose(given.values, first, rtol=1e-9)


def test_ids_of_one_type_need_no_name(tmp_path: Path) -> None:
    trainer = trained(None, "types")
    full = trainer.predict_links(["user:u1", "user:u2"], ["item:i3", "item:i0"])
    np.testing.assert_array_equal(trainer.predict_links(["u1", "u2"], ["i3", "item:i0"]), full)
    logits = trained(None, "types", scores="logits").predict_links(["u1", "u2"], ["i3", "i0"])
    np.testing.assert_allclose(expit(logits), full, rtol=1e-12)
    with pytest.raises(ConfigError, match=r"src\[0\]: the graph has no node 'user:i3'"):
        trainer.predict_links(["i3"], ["u1"])
    with pytest.raises(ConfigError, match=r"dst\[0\]: no links lead .* exchange the ends"):
        trainer.predict_links(["item:i3"], ["user:u1"])


def test_pairs_of_types_without_links_are_refused() -> None:
    trainer = gt.Trainer("rgcn", SHOP, **KEYS, task="link")
    assert trainer.predict_links(["u1", "u1"], ["item:i3", "user:u2"]).shape == (2,)
    with pytest.raises(ConfigError, match=r"dst\[0\]: no links lead .* exchange the ends"):
        trainer.predict_links(["item:i3"], ["user:u1"])
    with pytest.raises(ConfigError, match=r"dst\[1\]: no links lead .* give ends of such types"):
        trainer.predict_links(["user:u1", "item:i3"], ["item:i3", "item:i1"])


@pytest.mark.parametrize(
    "name, text, error, message",
    [
        ("link", "src,dst\np1,p2\np3,q9\n", ConfigError, "line 3, field 'dst': .* no node 'q9'"),
        ("link", "p1,p2\n", FormatError, "line 1: the titles are p1,p2; expected src,dst"),
        ("link", "", FormatError, "the file is empty; expected the titles src,dst"),
        ("link", "src,dst\np1\n", DataError, "line 2: 1 fields, expected src,dst"),
        ("link", "src,dst\np1,\n", DataError, "line 2, field 'dst': there is no value"),
        ("link", "src,dst\n\n", DataError, "line 2: 0 fields, expected src,dst"),
        ("triple", "src,dst\n0,7\n", FormatError, "expected head,relation,tail"),
        ("triple", "head,relation,tail\n0,9,7\n", ConfigError, "line 2, field 'relation': "),
        ("triple", "head,relation,tail\n0,1,8\n", ConfigError, "line 2, field 'tail': .*no node 8"),
        ("triple", "head,relation,tail\n0,1,x\n", DataError, "field 'tail': 'x' is not a whole"),
        ("triple", f"head,relation,tail\n{1 << 70},1,7\n", DataError, "field 'head': .*64 bits"),
    ],
)
@pytest.mark.parametrize("size", [1, 2])
def test_what_is_wrong_in_a_file(
    size: int, name: str, text: str, error: type[Exception], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "asked.csv"
    path.write_text(text)

    def program(comm: Any) -> bool:
        graph, model, task = TASKS[name]
        trainer = gt.Trainer(model, graph, comm=comm, **{**KEYS, **task})
        with pytest.raises(error, match=f"asked.csv.*{message}"):
            link_rows(trainer, str(path), True)
        return True

    assert run_simulated(size, program) == [True] * size


def test_a_file_without_rows_and_other_tasks(tmp_path: Path) -> None:
    path = write(tmp_path / "none.csv", [("src", "dst")])
    found = link_rows(trained(None, "link"), path, True)
    assert found is not None and found.ids.shape == (0, 2) and found.values.shape == (0,)
    nodes = gt.Trainer("gcn", gt.load("sbm:n_nodes=40,n_edges=90"), **KEYS)
    with pytest.raises(ConfigError, match="task=node, which does not score given links"):
        link_rows(nodes, path, True)
    with pytest.raises(ConfigError, match="src has 2 ids and dst 1"):
        trained(None, "link").predict_links(["p1", "p2"], ["p1"])


def test_through_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = "--dataset ring:n=20 --task link --epochs 1 --hidden 4 --backend reference --out run"
    assert main(["train", *words.split()]) == 0
    write(Path("pairs.csv"), [("src", "dst"), (3, 5), (0, 19), (3, 5)])
    for _ in range(2):
        assert main(["predict", "run", "--links", "pairs.csv", "--to", "scores.csv"]) == 0
    lines = Path("scores.csv").read_text().splitlines()
    assert [line.rpartition(",")[0] for line in lines] == ["id_0,id_1", "3,5", "0,19", "3,5"]
    words = ["predict", "run", "--links", "pairs.csv", "--format", "npy", "--to", "parts"]
    assert main([*words, "--scores", "logits"]) == 0
    logits = np.load("parts/part-00000-of-00001.prediction.npy")
    given = [float(line.rpartition(",")[2]) for line in lines[1:]]
    np.testing.assert_allclose(expit(logits), given, rtol=1e-5)
    capsys.readouterr()
    for other in (["--top", "3"], ["--embed"], ["--nodes", "all"], ["--columns", "scores"]):
        assert main(["predict", "run", "--links", "pairs.csv", *other]) == 2
        assert "drop one" in capsys.readouterr().err
