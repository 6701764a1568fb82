"""Python files run only if the user names them, or trusts the run that does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.base.userfile import CODE_KEYS
from graphtheta.errors import ConfigError, GraphThetaError
from graphtheta.run.checkpoints.weights import WEIGHTS, read_saved, write_weights
from graphtheta.run.job.keys import FIELDS

ROOT = Path(__file__).resolve().parent.parent.parent
SMALL = [
    "--dataset",
    "sbm:n_nodes=200,n_edges=1200,classes=3,features=4",
    "--hidden",
    "4",
    "--epochs",
    "1",
    "--backend",
    "reference",
]
MINI = [*SMALL, "--strategy", "mini", "--batch-size", "60", "--fanout", "3,3"]
TEXTS = [key for key, field in FIELDS.items() if field.annotation is str]
# what a key is used with
NO_BATCHES = {"batch_size": 0, "fanout": ""}
WITH = {
    "cache_policy": {"feature_cache": "10%"},
    "masters": {"partitioner": "1d-dst"},
    "strategy": NO_BATCHES,
    "exchange": {"strategy": "global", **NO_BATCHES},
}


@pytest.fixture
def marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that leaves a file beside it when it runs."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    return tmp_path / "ran"


def with_key(run: Path, job: str, key: str, value: str) -> None:
    for name, x in {**WITH.get(key, {}), key: value}.items():
        job, n = re.subn(rf"^{name}:.*$", f"{name}: '{x}'", job, flags=re.MULTILINE)
        assert n == 1
    (run / "job.yaml").write_text(job)


@pytest.mark.usefixtures("without_charts")
def test_no_key_of_a_run_runs_a_file(marked: Path) -> None:
    assert main(["train", *MINI, "--out", "run"]) == 0
    run = Path("run")
    job = Path("run", "job.yaml").read_text()
    for key in TEXTS:
        with_key(run, job, key, "mine.py:X")
        for command in ("evaluate", "predict", "report"):
            main([command, "run"])
        with pytest.raises(GraphThetaError):
            gt.open_run("run")
        assert not marked.exists(), key
        if key in CODE_KEYS:
            with pytest.raises(
                ConfigError,
                match=(
                    rf"{key}=mine.py:X would run the file {Path('mine.py').absolute()}.*give"
                    r" --trust"
                ),
            ):
                gt.open_run("run")


@pytest.mark.one_in(5)
@pytest.mark.parametrize("key", CODE_KEYS)
def test_a_file_that_is_trusted_or_given_runs(marked: Path, key: str) -> None:
    """The list has no key that runs nothing, and no other key runs a file:
    ``test_other_keys_run_nothing``.
    """
    plain = key in ("strategy", "exchange")
    assert main(["train", *(SMALL if plain else MINI), "--out", "run"]) == 0
    run = Path("run")
    with_key(run, Path("run", "job.yaml").read_text(), key, "mine.py:X")
    assert main(["evaluate", "run", "--trust"]) != 0 and marked.exists()
    marked.unlink()
    assert (
        main(["evaluate", "run", f"--{key.replace('_', '-')}", "mine.py:X"]) != 0
        and marked.exists()
    )


@pytest.mark.parametrize("key", sorted(set(TEXTS) - set(CODE_KEYS)))
def test_other_keys_run_nothing(marked: Path, key: str) -> None:
    main(["train", *MINI, "--out", "run", f"--{key.replace('_', '-')}", "mine.py:X"])
    assert not marked.exists()


def test_the_weights_name_no_file_that_runs(marked: Path) -> None:
    assert main(["train", *SMALL, "--out", "run"]) == 0
    path = Path("run", WEIGHTS)
    saved = read_saved(path)
    write_weights(
        path,
        saved.job,
        saved.weights,
        trained=re.sub('"task": ?"[a-z]+"', '"task":"mine.py:X"', saved.trained),
    )
    with pytest.raises(ConfigError, match=r"task=mine\.py:X would run the file"):
        gt.open_run("run")
    assert not marked.exists()


def test_the_docs_list_all_keys() -> None:
    section = (
        (ROOT / "docs" / "files.md")
        .read_text()
        .partition("## What runs code")[2]
        .partition("\n## ")[0]
    )
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == set(CODE_KEYS)
