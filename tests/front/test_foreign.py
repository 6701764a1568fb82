"""Whatever lies where a command would write: each byte that GraphTheta did not write is as it was
afterwards.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from speed import IDEAL

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.base.atomic import BEGINNINGS, NotOurs, check_replaceable

GRAPH = "sbm:n_nodes=120,n_edges=700,classes=3,features=4"
SMALL = ["--dataset", GRAPH, "--hidden", "4", "--epochs", "2", "--backend", "reference"]
TRAIN = ["train", *SMALL, "--save-predictions", "--trace", "--checkpoint-every", "1", "--out"]
# names that a run, a store, an output and values of layers have, beside or below the target of a
# command
IN_RUN = (
    "job.yaml",
    "metrics.jsonl",
    "result.json",
    "profile.json",
    "weights.safetensors",
    "predictions.npz",
    "trace.json",
    "trace-rank-0.json",
    ".lock",
    "report.html",
    "embeddings.npz",
    "checkpoints",
    "checkpoints/step-00000001",
    "checkpoints/step-00000001/manifest.msgpack",
    "checkpoints/step-00000001/model.pt",
    "checkpoints/step-00000002/arrays.safetensors",
    "checkpoints/.part-step-00000003-1/arrays.safetensors",
    "checkpoints/notes",
    "notes.txt",
    "result.json.part",
    "predictions",
)
IN_PART = (
    "",
    "thesis.tex",
    ".lock",
    "store.json",
    "edge.src.npy",
    "node.x.npy",
    "_SUCCESS",
    "part-00000-of-00001.csv",
    "part-00000",
    "part-00000/ids",
    "layers.json",
    "waiting-00000/edges",
    "waiting-00000",
)
PLACES = [
    *(f"run/{name}" for name in IN_RUN),
    *(
        f"{folder}/{name}".rstrip("/")
        for folder in ("out", "out.part", "out.replaced")
        for name in IN_PART
    ),
    "out.csv",
    "out.json",
    "out.csv.part",
]
KINDS = (
    "file",
    "link to a file",
    "link to a folder",
    "dangling link",
    "pipe",
    "folder",
    "folder of files",
    "read-only file",
    "file without permissions",
)
COMMANDS: dict[str, list[str]] = {
    "train": [*TRAIN, "run", "--overwrite"],
    "resume": [*TRAIN, "run", "--resume", "--epochs", "3"],
    "evaluate": ["evaluate", "run"],
    "report": ["report", "run"],
    "predict": ["predict", "run"],
    "embed": ["predict", "run", "--embed"],
    "to a file": ["predict", "run", "--to", "out.csv"],
    "parts": ["predict", "run", "--format", "csv", "--to", "out"],
    "parts in the run": ["predict", "run", "--format", "csv"],
    "layers": ["predict", "run", "--keep-layers", "out"],
    "import": ["import", GRAPH, "--to", "out"],
    "import tables": ["import", "--edges", "edges.csv", "--to", "out"],
    "transform": ["transform", "store", "--to", "out"],
    "report to": ["report", "run", "--to", "out.csv"],
    "warmup": ["warmup", *SMALL],
    "analyse": ["analyse", "pagerank", "--dataset", GRAPH, "--to", "out.csv"],
    "analyse parts": ["analyse", "pagerank", "--dataset", GRAPH, "--format", "csv", "--to", "out"],
}
MINE = b"of somebody else\n"
ONE = ["--dataset", GRAPH, "--hidden", "4", "--backend", "reference", "--workers", "1"]
# commands that write the file whose name follows, and the ending of the name
OUTPUTS: dict[str, tuple[list[str], str]] = {
    "plan": (["plan", *ONE, "--strategies", "global", "--json"], ".json"),
    "simulate": (["simulate", *ONE, "--json"], ".json"),
    "plot": (["simulate", *ONE, "--plot"], ".svg"),
    "runs": (["runs", ".", "--json"], ".json"),
    "report": (["report", "run", "--to"], ".html"),
    "predict": (["predict", "run", "--to"], ".csv"),
    "embed": (["predict", "run", "--embed", "--to"], ".npz"),
    "analyse": (["analyse", "degree", "--dataset", GRAPH, "--to"], ".npz"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, a store and a table of edges."""
    folder = tmp_path_factory.mktemp("made")
    before = os.getcwd()
    os.chdir(folder)
    try:
        assert main([*TRAIN, "run"]) == 0
        assert main(["import", GRAPH, "--to", "store"]) == 0
        Path("edges.csv").write_text("src,dst\n1,2\n2,3\n3,1\n")
    finally:
        os.chdir(before)
    return folder


def put(path: Path, kind: str, others: Path) -> bool:
    """Put something of somebody else's at a path, in the place of what is there; False if that is
    not possible.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)
    elsewhere = others / f"at-{len(list(others.iterdir()))}"
    if kind == "file" or kind.endswith(("only file", "permissions")):
        path.write_bytes(MINE)
        path.chmod({"file": 0o644, "read-only file": 0o444}.get(kind, 0))
    elif kind == "link to a file":
        elsewhere.write_bytes(MINE)
        path.symlink_to(elsewhere)
    elif kind == "link to a folder":
        elsewhere.mkdir()
        (elsewhere / "letter.txt").write_bytes(MINE)
        path.symlink_to(elsewhere)
    elif kind == "dangling link":
        path.symlink_to(elsewhere)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
        if kind == "folder of files":
            (path / "letter.txt").write_bytes(MINE)
    return True


def foreign(folder: Path, before: dict[str, object] | None = None) -> dict[str, object]:
    """Files that hold ``MINE``, and pipes, by path below a folder, with their content or kind."""
    found: dict[str, object] = {}
    for above, _, names in os.walk(folder):
        for name in names:
            path = Path(above, name)
            mode = os.lstat(path).st_mode
            if stat.S_ISFIFO(mode):
                found[str(path)] = "pipe"
            elif stat.S_ISREG(mode) and MINE in path.read_bytes():
                found[str(path)] = path.read_bytes(), stat.S_IMODE(mode)
    return found


def attempt(made: Path, folder: Path, words: list[str], places: list[tuple[str, str]]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(made, folder / "here")
    others = folder / "others"
    others.mkdir()
    before = os.getcwd()
    os.chdir(folder / "here")
    try:
        for place, kind in places:
            put(Path(place), kind, others)
        kept = foreign(folder)
        main(words)
        assert {path: what for path, what in foreign(folder).items() if path in kept} == kept
        assert not any(
            name.endswith(".part") and name.startswith(".graphtheta")
            for _, _, names in os.walk(folder)
            for name in names
        )
        assert all(not path.name.startswith("at-") or path.exists() for path in others.iterdir())
    finally:
        os.chdir(before)


@pytest.mark.usefixtures("without_charts")
@pytest.mark.second
def test_the_commands_work_where_nothing_is_in_the_way(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, words in COMMANDS.items():
        shutil.copytree(made, tmp_path / name)
        monkeypatch.chdir(tmp_path / name)
        if name == "resume":
            shutil.rmtree("run")
        assert main(words) == 0, name


@pytest.mark.usefixtures("without_charts")
@pytest.mark.one_in(4)
@pytest.mark.second
@pytest.mark.parametrize("command", COMMANDS)
@settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(
    places=st.lists(
        st.tuples(st.sampled_from(PLACES), st.sampled_from(KINDS)), min_size=1, max_size=3
    )
)
def test_what_others_wrote_is_left(
    made: Path, tmp_path: Path, command: str, places: list[tuple[str, str]]
) -> None:
    attempt(made, tmp_path / "draw", COMMANDS[command], places)


@pytest.mark.parametrize("key", ["job", "checksum", "checksums", "format"])
def test_weights_of_all_versions_are_known(key: str, tmp_path: Path) -> None:
    """0.1.0 wrote the texts of its weights in any order; those of other libraries have others."""
    path = tmp_path / "weights.safetensors"
    header = b'{"__metadata__":{"%s":"{}"}}' % key.encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    if key == "format":
        with pytest.raises(NotOurs):
            check_replaceable(path, BEGINNINGS["weights"])
    else:
        check_replaceable(path, BEGINNINGS["weights"])


@pytest.mark.usefixtures("without_charts")
@pytest.mark.second
def test_an_output_replaces_nothing_but_an_earlier_one(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(made, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    for command in ("plan", "simulate"):
        monkeypatch.setattr(f"graphtheta.cli.{command}.machine", lambda again=False: IDEAL)
    monkeypatch.setattr("graphtheta.cli.plan.recorded_speed", lambda: IDEAL)
    # a plan would run again in a process of its own
    monkeypatch.setattr("graphtheta.ops.compile.jit.n_compiled", lambda: 0)
    assert main(["report", "run"]) == 0
    own = {name: Path(f"{name}{ending}") for name, (_, ending) in OUTPUTS.items()}
    for name, (words, _) in OUTPUTS.items():
        for _ in range(2):
            assert main([*words, str(own[name])]) == 0, name
    files = {path: path.read_bytes() for path in [*own.values(), *Path("run").glob("*.*")]}
    # an earlier output of the same kind
    of_run = {"report": Path("run/report.html"), "predict": Path("run/predictions.npz")}
    commands = {name: words for name, (words, _) in OUTPUTS.items()}
    commands["doctor"] = ["doctor", "--measure"]
    # each command meets every fifth file, and each file several commands
    for i, (name, words) in enumerate(commands.items()):
        for path in list(files)[i % 5 :: 5]:
            if path not in (own.get(name), of_run.get(name)):
                assert main([*words, str(path)]) != 0, (name, path)
    trainer = gt.Trainer(dataset=GRAPH, hidden=4, backend="reference")
    for path in files:
        if path.name != "weights.safetensors":
            with pytest.raises(gt.GraphThetaError, match=f"{path}: the weights cannot be written"):
                trainer.save(path)
    assert {path: path.read_bytes() for path in files} == files
