"""What reaches a terminal or a page cannot command it, and what is no file is not read."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.base.console import complain, printable, say
from graphtheta.base.logger import logger, start_logging
from graphtheta.errors import GraphThetaError

SMALL = [
    "--dataset",
    "sbm:n_nodes=120,n_edges=700,classes=3,features=4",
    "--hidden",
    "4",
    "--epochs",
    "1",
    "--backend",
    "reference",
]
EVIL = "\x1b[31m\x07\x9b2J\u202e\udc80\r"
TAGS = "<b>&\"'</b><script>"


@pytest.fixture(autouse=True)
def logs() -> Iterator[None]:
    """What commands in this process change of the log is restored, and pytest records none of it:
    it could not send it.
    """
    before = list(logger.handlers)
    level = logger.level
    propagate = logger.propagate
    logger.propagate = False
    yield
    logger.handlers[:] = before
    logger.level = level
    logger.propagate = propagate


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["train", *SMALL, "--out", "run"]) == 0
    return Path("run")


def test_no_character_commands_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    start_logging("warning")
    say(EVIL)
    complain(EVIL)
    logging.getLogger("graphtheta").warning(EVIL)
    main(["evaluate", EVIL])
    for text in capsys.readouterr():
        assert "\\x1b[31m\\x07\\x9b2J\\u202e\\udc80\\r" in text or text == ""
        assert printable(text) == text


def test_plain_text_stays_as_it_is() -> None:
    text = "Zürich 東京\t1\n√ π"
    assert printable(text) == text


def test_names_are_escaped_in_a_report(run: Path) -> None:
    path = run / "result.json"
    record = json.loads(path.read_text())
    splits = record["classes"]["splits"]
    some = dict(next(iter(splits.values())))
    record["classes"]["splits"] = {TAGS: some, **splits}
    path.write_text(json.dumps(record))
    rows = run / "metrics.jsonl"
    rows.write_text(
        "".join(
            json.dumps({**json.loads(line), f"val_{TAGS}": 0.5}) + "\n"
            for line in rows.read_text().splitlines()
        )
    )
    assert main(["report", "run"]) == 0
    page = (run / "report.html").read_text()
    assert "<script>" not in page and "<b>&" not in page and "&lt;script&gt;" in page


@pytest.mark.one_in(3)
@pytest.mark.usefixtures("without_charts")
@pytest.mark.parametrize(
    "name", ["result.json", "profile.json", "metrics.jsonl", "job.yaml", "weights.safetensors"]
)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_file_is_not_read(
    run: Path,
    name: str,
    kind: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (run / name).unlink()
    if kind == "pipe":
        os.mkfifo(run / name)
    else:
        (run / name).symlink_to("/dev/zero")
    for command in ("report", "evaluate"):
        code = main([command, "run"])
        error = capsys.readouterr().err
        assert code == 0 or (error.count("\n") == 1 and name in error)
    if name == "weights.safetensors":
        with pytest.raises(GraphThetaError, match="no regular file"):
            gt.Trainer(job=gt.Job.from_yaml(run / "job.yaml")).load(run / name)


@pytest.mark.one_in(8, 3)
@pytest.mark.parametrize(
    ("words", "code"), [(["evaluate", "nowhere"], 2), (["train", *SMALL, "--out", "other"], 0)]
)
@pytest.mark.parametrize("streams", ["2>&-", "2>/dev/full", ">&- 2>&-", "<&-"])
def test_streams_may_be_closed(run: Path, streams: str, words: list[str], code: int) -> None:
    # a process of its own: the streams of one that is kept warm are open
    python = str(Path(sys.prefix, "bin", "python"))
    line = " ".join([python, "-m", "graphtheta", *words, streams])
    done = subprocess.run(["bash", "-c", line], stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == code


@pytest.mark.parametrize(
    "words",
    [
        ["train", *SMALL, "--out", "x" * 300],
        ["predict", "run", "--to", "x" * 300 + ".csv"],
        ["report", "run", "--to", "x" * 300],
        ["import", "sbm", "--to", "x" * 300],
        ["import", "sbm", "--to", "x" * 252],
        ["evaluate", "x" * 300],
        ["report", "x" * 300],
        ["train", *SMALL, "--out", "run/job.yaml/deep"],
        ["predict", "run", "--to", "run/job.yaml/p.csv"],
        ["evaluate", "run/job.yaml"],
        ["predict", "run", "--format", "csv", "--to", "x" * 300],
        ["predict", "run", "--keep-layers", "x" * 300],
        ["info", "--dataset", "x" * 300],
        ["train", "--config", "x" * 300],
        ["plan", "--json", "x" * 300],
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_impossible_names_are_told_in_a_line(
    run: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(words) != 0
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "Traceback" not in error and ";" in error


@pytest.mark.parametrize(
    "text", ["src,dst\r1,2\r2,3\r", "src\tdst\r1\t2\r", '"src","dst"\r1,2\r', "# a\rsrc,dst\r1,2\r"]
)
def test_line_ends_of_old_macs(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cr.csv").write_bytes(text.encode())
    for header in ([], ["--no-header", "--src", "0", "--dst", "1"]):
        assert (
            main(
                [
                    "import",
                    "--edges",
                    str(tmp_path / "cr.csv"),
                    "--to",
                    str(tmp_path / "s"),
                    *header,
                ]
            )
            != 0
        )
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and "cr.csv" in error and "Traceback" not in error


# a command whose files may not be larger than the first word says
LIMITED = """
import resource, sys
from graphtheta.__main__ import main
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("kib", [1, 4, 64])
def test_a_full_disk_is_told_in_a_line(tmp_path: Path, kib: int) -> None:
    """A limit of the size of files fails as a full disk does: at the job, at a row of the metrics,
    and at the timeline.
    """
    program = tmp_path / "limited.py"
    program.write_text(LIMITED)
    words = ["train", *SMALL, "--epochs", "40", "--trace", "--out", str(tmp_path / "run")]
    done = subprocess.run(
        [sys.executable, str(program), str(kib << 10), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (
        done.returncode == 1 and done.stderr.count("\n") == 1 and "cannot be written" in done.stderr
    )
    written = [path.stat().st_size for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert max(written, default=0) <= kib << 10


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "change",
    [
        lambda mark: mark.update(parts=[]),
        lambda mark: mark["parts"][0].pop("own"),
        lambda mark: mark["parts"][0]["ids"].update(dtype="x"),
        lambda mark: mark["parts"][0]["ids"].update(dtype=r"\ud800"),
        lambda mark: mark["parts"][0]["ids"].update(shape=[10**30]),
        lambda mark: mark.update(n_nodes=None),
    ],
)
def test_a_damaged_list_of_layers_is_told_in_a_line(
    run: Path, change: Callable[[Any], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", "run", "--keep-layers", "layers"]) == 0
    mark = json.loads(Path("layers/layers.json").read_text())
    change(mark)
    Path("layers/layers.json").write_text(json.dumps(mark))
    capsys.readouterr()
    assert main(["predict", "run", "--since", "layers", "--to", "p.csv"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "layers" in error and "again" in error


@pytest.mark.usefixtures("without_charts")
def test_names_that_are_no_text_work(run: Path, tmp_path: Path) -> None:
    """Python reads a byte of a name that is no UTF-8 as half a character."""
    half = "\udc80"
    Path(f"e{half}.csv").write_text("src,dst\n0,1\n1,2\n")
    for words in (
        ["import", "--edges", f"e{half}.csv", "--to", f"s{half}"],
        ["info", "--dataset", f"s{half}"],
        ["train", *SMALL, "--out", f"r{half}"],
        ["train", *SMALL, "--out", f"r{half}", "--resume", "--epochs", "2"],
        ["report", f"r{half}"],
        ["predict", f"r{half}", "--to", f"p{half}.csv"],
    ):
        assert main(words) == 0, words
    assert any(Path(f"r{half}", "checkpoints").iterdir())


def test_without_the_compiler_a_line_says_so() -> None:
    words = [str(Path(sys.prefix, "bin", "python")), "-m", "graphtheta", "train", *SMALL]
    done = subprocess.run(
        words,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "NUMBA_DISABLE_JIT is set" in done.stderr


PLACES = [
    ["train", *SMALL, "--out", "shut/run"],
    ["evaluate", "shut/run"],
    ["predict", "run", "--to", "shut/p.csv"],
    ["predict", "run", "--format", "csv", "--to", "shut/p"],
    ["predict", "run", "--keep-layers", "shut/l"],
    ["predict", "run", "--since", "shut/l", "--to", "p.csv"],
    ["import", "sbm", "--to", "shut/s"],
    ["import", "--edges", "shut/e.csv", "--to", "s"],
    ["info", "--dataset", "shut/s"],
    ["report", "shut/run"],
    ["report", "run", "--to", "shut/r.html"],
    ["train", "--config", "shut/job.yaml"],
    ["train", "--model", "shut/m.py:Net"],
    ["transform", "shut/s", "--to", "t"],
    ["analyse", "degree", "--dataset", "sbm", "--to", "shut/d.csv"],
    ["plan", *SMALL, "--json", "shut/p.json"],
]


# runs commands in turns, and writes the exit code and the errors of each
IN_TURNS = """
import contextlib, io, json, sys
from graphtheta.__main__ import main
for words in json.load(sys.stdin):
    errors = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
        code = main(words)
    print(json.dumps([code, errors.getvalue()]))
"""


def without_rights() -> None:
    """Take from root the right to enter and read everything; others do not have it."""
    prctl = ctypes.CDLL(None).prctl
    drop = 24
    for right in (1, 2):
        prctl(drop, right)


@pytest.mark.second
def test_a_folder_that_may_not_be_entered_is_told_in_a_line(run: Path) -> None:
    Path("shut").mkdir(mode=0)
    done = subprocess.run(
        [str(Path(sys.prefix, "bin", "python")), "-c", IN_TURNS],
        input=json.dumps(PLACES),
        preexec_fn=without_rights,
        capture_output=True,
        text=True,
        check=True,
    )
    for words, line in zip(PLACES, done.stdout.splitlines(), strict=True):
        code, errors = json.loads(line)
        assert code != 0, words
        assert errors.count("\n") == 1 and "shut" in errors, (words, errors)
