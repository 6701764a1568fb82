"""The worked examples: their commands run, at reduced size, and their pages quote the results."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.run.checkpoints.weights import WEIGHTS, read_saved
from tests.front.test_dataset import FOLDER, data

pytestmark = pytest.mark.reference

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "docs" / "examples"
# their time is that of evaluations, which is in proportion to the width
LARGE = ("molecules", "recommend")
# of the reduced WN18RR
SENSES = 1000
PAGES = sorted(page.stem for page in EXAMPLES.glob("*.md") if page.stem != "index")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script docs/examples/run.py."""
    monkeypatch.syspath_prepend(EXAMPLES)
    import run

    yield run
    sys.modules.pop("run")


def folder_of(page: str, tmp_path: Path) -> Path:
    """The folder of the data of a page: facts of the first senses only, since an evaluation scores
    each with all.
    """
    if page != "words":
        return FOLDER
    with np.load(FOLDER / "wn18rr.npz") as file:
        arrays = dict(file)
    kept = (arrays["edge_index"] < SENSES).all(axis=0)
    arrays |= {
        "edge_index": arrays["edge_index"][:, kept],
        "entity_names": arrays["entity_names"][:SENSES],
        "edge_type": arrays["edge_type"][kept],
        "edge_split": arrays["edge_split"][kept],
    }
    np.savez(tmp_path / "wn18rr.npz", **arrays)
    return tmp_path


@data
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.second if page in LARGE else pytest.mark.reference)
        for page in PAGES
    ],
)
def test_commands_run(page: str, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAPHTHETA_DATA", str(folder_of(page, tmp_path)))
    assert (
        main(
            [
                *run.words_of(page, tmp_path),
                "--epochs",
                "1",
                "--steps",
                "1",
                "--seeds",
                "1",
                "--out",
                "run",
                *(["--hidden", "8"] if page in LARGE else []),
            ]
        )
        == 0
    )
    metrics = json.loads((tmp_path / "run" / "result.json").read_text(encoding="utf-8"))["metrics"]
    assert f"test_{run.EXAMPLES[page]}" in metrics


@data
def test_a_knowledge_graph_is_asked_for_tails(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAPHTHETA_DATA", str(folder_of("words", tmp_path)))
    monkeypatch.syspath_prepend(tmp_path)
    words = run.words_of("words", tmp_path)
    assert (
        main(
            [
                *words,
                "--epochs",
                "1",
                "--steps",
                "20",
                "--seeds",
                "1",
                "--embedding",
                "8",
                "--out",
                "run",
            ]
        )
        == 0
    )
    from ask import answers  # type: ignore[import-not-found]

    sys.modules.pop("ask")
    graph = gt.load("wn18rr:features=0,relations=none")
    ids = np.asarray(graph.original_ids)
    relations = graph.edge_columns["relation"]
    fact = np.flatnonzero(graph.edge_train)[0]
    head = ids[graph.src[fact]]
    code = relations[fact]
    found = answers("run", graph, head, graph.meta["relation_names"][code], n=50)
    scores = [score for _, score in found]
    assert len({tail for tail, _ in found}) == 50 and scores == sorted(scores, reverse=True)
    values = read_saved(tmp_path / "run" / WEIGHTS).weights
    vectors = values["embedding/x"].astype(float)
    phase = values["decoder.phase"][code].astype(float)
    z = vectors[:, :4] + 1j * vectors[:, 4:]
    at = {
        tail: 6 - np.abs(z[ids == head][0] * np.exp(1j * phase) - z[ids == tail][0]).sum()
        for tail, _ in found
    }
    np.testing.assert_allclose(scores, [at[tail] for tail, _ in found], rtol=1e-4)
    known = graph.dst[graph.edge_train & (graph.src == graph.src[fact]) & (relations == code)]
    assert graph.dst[fact] in known and not set(ids[known]) & set(at)


@pytest.mark.parametrize("page", PAGES)
def test_pages_quote_the_results(page: str, run: Any) -> None:
    found = json.loads((EXAMPLES / "results" / f"{page}.json").read_text(encoding="utf-8"))
    scale, digits = (100, 1) if found["metric"] in ("accuracy", "auc") else (1, 3)
    figure = f"{scale * found['mean']:.{digits}f} +- {scale * found['deviation']:.{digits}f}"
    text = (EXAMPLES / f"{page}.md").read_text(encoding="utf-8")
    assert f"**{figure}**" in text and f"../figures/example-{page}.svg" in text


def test_index_and_runner_have_every_page(run: Any) -> None:
    index = (EXAMPLES / "index.md").read_text(encoding="utf-8")
    assert (
        sorted(run.EXAMPLES) == PAGES
        and [page for page in PAGES if f"({page}.md)" not in index] == []
    )
