"""Timelines and reports of runs: what is written, what is said, and what is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from timelines import read_timeline

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.cli import doctor
from graphtheta.cli.command import train_once
from graphtheta.engine.comm.ledger import UPDATE
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import DataError
from graphtheta.graph.store.from_graph import write_store
from graphtheta.inspect.reports import chart
from graphtheta.inspect.reports.page import imbalance, slowest
from graphtheta.inspect.reports.run import read_run
from graphtheta.run.job.job import Job
from graphtheta.run.log.profile import LISTED, Batches, Profile

pytestmark = pytest.mark.reference

TINY = {
    "dataset": "sbm:n_nodes=200,n_edges=1200,classes=3,features=8",
    "epochs": 4,
    "hidden": 8,
    "backend": "reference",
}
WORDS = ("--dataset", TINY["dataset"], "--epochs", "4", "--hidden", "8", "--backend", "reference")
MPIEXEC = doctor.find_mpiexec()
VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """Reads a page; every element that is opened must be closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read_page(path: Path) -> Page:
    """A page that is well formed and needs nothing from outside."""
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert "://" not in text.replace("chrome://tracing", "")
    assert not {tag for tag, _ in page.seen} & {"script", "link", "img", "iframe", "object"}
    links = [
        value
        for _, attrs in page.seen
        for name, value in attrs.items()
        if name in ("href", "xlink:href", "src")
    ]
    assert all(str(value).startswith("#") for value in links)
    clips = [attrs["id"] for tag, attrs in page.seen if tag == "clippath"]
    assert len(clips) == len(set(clips)) and {f"url(#{c})" for c in clips} >= set(
        re.findall(r"url\(#p[^)]*\)", text)
    )
    return page


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(ranks: int, **keys: object) -> Path:
    """Train on simulated ranks; the folder of the run."""
    run_simulated(ranks, lambda comm: train_once(Job(**{**TINY, "out": "run", **keys}), comm))
    return Path(str(keys.get("out", "run")))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_timeline_and_report_of_a_run(here: Path, ranks: int) -> None:
    folder = run(ranks, trace=True, partitioner="vertex-cut")
    events = read_timeline(folder / "trace.json", ranks)
    tasks = [(e["pid"], e["name"]) for e in events if e.get("cat") == "task"]
    for rank in range(ranks):
        for name in ("view 4", "forward", "backward", "reduce", "update"):
            assert tasks.count((rank, name)) == (1 if name == "view 4" else 4)
    assert [e["args"] for e in events if e["name"] == "view 3" and e["ph"] == "X"] == [
        {"step": 3, "version": 2}
    ] * ranks
    assert [e["args"]["version"] for e in events if e["name"] == "update" and e["pid"] == 0] == [
        1,
        2,
        3,
        4,
    ]
    assert [e["name"] for e in events if e["ph"] == "i" and e["pid"] == 0] == [
        f"epoch {i}" for i in (1, 2, 3, 4)
    ]
    assert sum(e["name"] == "evaluate" for e in events) == 4 * ranks
    assert {e["name"] for e in events if e["ph"] == "b"} == (
        {"to_mirrors", "to_masters", "reduce"} if ranks > 1 else set()
    )

    assert main(["report", "run"]) == 0
    page = read_page(folder / "report.html")
    assert (
        "The slowest stage is" in page.text
        and "trace.json: open it in ui.perfetto.dev" in page.text
    )
    assert ("Waiting is" in page.text) == (ranks > 1) and (
        "A run on one worker has no traffic" in page.text
    ) == (ranks == 1)
    assert [attrs["aria-label"] for tag, attrs in page.seen if tag == "svg"] == [
        "loss and metrics by epoch",
        *(f"precision by recall, {split}" for split in ("test", "train", "val")),
        "time of an epoch by rank and stage",
        "memory by rank",
    ]


def test_profile_adds_up(here: Path) -> None:
    folder = run(3, strategy="mini", batch_size=40)
    profile = Profile.read(folder / "profile.json")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert (profile.ranks, profile.epochs, profile.steps, profile.first_left_out) == (
        3,
        3,
        rows[-1]["step"],
        True,
    )
    for stage, book in profile.stages.items():
        for name in ("seconds", "wait", "bytes", "messages"):
            assert np.mean(getattr(book, name)) == pytest.approx(
                sum(row["time"][stage][name] for row in rows[1:])
            ), (stage, name)
    sent = np.array(profile.sent)
    pairs = np.array(profile.largest)
    assert (pairs[:, 0] != pairs[:, 1]).all() and len(pairs) == 6
    for q in range(3):
        assert (
            pairs[pairs[:, 0] == q, 2:].sum(axis=0).tolist() == sent[q].tolist()
            and sent[q].min() > 0
        )
    # moves belong to four stages, of which "move" and "reduce" have no collectives besides
    moves, most = (
        sum(sum(profile.stages[s].bytes) for s in stages)
        for stages in (("move", "reduce"), ("move", "reduce", "batch", "evaluate"))
    )
    assert moves <= sent[:, 0].sum() <= most
    assert all(0 < m < 1 << 40 for m in (*profile.predicted, *profile.measured))


def test_profile_of_views_in_flight(here: Path) -> None:
    one, four = (
        Profile.read(
            run(2, strategy="mini", batch_size=40, views_per_step=4, views_in_flight=n, out=str(n))
            / "profile.json"
        )
        for n in (1, 4)
    )
    assert four.sent == one.sent and four.largest == one.largest
    for profile, part in ((one, 0.5), (four, 1.1)):
        total = np.mean(
            [np.add(book.seconds, book.wait) for book in profile.stages.values()], axis=1
        ).sum()
        assert total > part * profile.elapsed > 0


# how a model of two layers is trained
OF_LAYERS: dict[str, dict[str, object]] = {
    "global": {},
    "mini": {"strategy": "mini", "batch_size": 40},
    "in flight": {"strategy": "mini", "batch_size": 40, "views_in_flight": 3, "staleness": 1},
    "alone": {"strategy": "mini", "batch_size": 40, "mode": "independent"},
    "recomputed": {"strategy": "cluster", "clusters": 6, "recompute": True},
    "one worker": {},
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", OF_LAYERS)
def test_every_layer_has_times_on_every_worker(here: Path, name: str) -> None:
    keys = OF_LAYERS[name]
    ranks = 1 if name == "one worker" else 3
    batches = Profile.read(run(ranks, **keys) / "profile.json").batches
    assert batches is not None and batches.count > 0
    parts = {(p.layer, p.part): p for p in batches.parts}
    assert set(parts) == {
        *((layer, part) for layer in ("1 GCN", "2 GCN") for part in ("forward", "backward")),
        ("", "update"),
        ("", "rest"),
    }
    assert [p.part for p in batches.parts][-2:] == ["update", "rest"]
    for p in (*parts.values(), batches):
        assert 0 <= p.spread.p95 <= p.spread.largest and p.spread.mean <= p.spread.largest
        assert ranks > 1 or p.spread.largest == 0
    for p in parts.values():
        assert len(p.seconds) == len(p.wait) == ranks
    # another thread may update, and a worker may have no view of its own in a batch
    for (_, part), p in parts.items():
        assert sum(p.seconds) > 0, part


def test_batches_are_those_after_the_first_evaluation(here: Path) -> None:
    """All of them in a run with one evaluation, and none of those before it was resumed."""
    keys: dict[str, object] = {"strategy": "mini", "batch_size": 40}
    for more, evaluations in (({"epochs": 4}, 4), ({"eval_every": 4}, 1)):
        folder = run(2, **keys, **more, overwrite=True)
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert len(rows) == evaluations
        batches = Profile.read(folder / "profile.json").batches
        assert batches is not None
        assert batches.count == rows[-1]["step"] - (rows[0]["step"] if evaluations > 1 else 0)


def test_workers_that_are_apart() -> None:
    """The spread of each part, and of whole batches, which need not be the sum."""
    seconds = np.zeros((3, 4, 2, 2))
    seconds[:, :, 0, 0] = [[1, 1, 1, 1], [1, 1, 1, 5], [1, 1, 1, 1]]
    seconds[:, :, 1, 0] = [[6, 2, 2, 6], [2, 2, 2, 2], [2, 2, 2, 2]]
    seconds[2, :, 0, 1] = 8
    batches = Batches.of([("1 GCN", "forward"), UPDATE], seconds)
    forward, update = batches.parts
    assert (forward.spread.mean, forward.spread.largest) == (1, 4)
    assert (update.spread.mean, update.spread.largest) == (2, 4)
    # in the last batch the one that is slow forward is not the one that is slow to update
    assert (batches.spread.mean, batches.spread.largest) == (2, 4)
    assert forward.seconds == [1, 2, 1] and forward.wait == [0, 0, 8]
    titles, rows = batches.table()
    assert [row[0] for row in rows] == ["1 GCN forward", "update"]
    assert all(len(row) == len(titles) for row in rows)
    assert batches.workers()[0] == ("1 GCN forward", "1000.000", "2000.000", "1000.000")
    # one worker is not apart from any other, and has no columns of zeros about it
    alone, rows = Batches.of([("1 GCN", "forward"), UPDATE], seconds[1:2]).table()
    assert [title for title in titles if title not in alone] == [
        "spread ms",
        "spread p95",
        "spread max",
    ]
    assert all(len(row) == len(alone) for row in rows)


@pytest.mark.usefixtures("without_charts")
def test_reports_show_times_of_layers(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run(2, strategy="mini", batch_size=40)
    printed = capsys.readouterr().out
    main(["report", str(folder)])
    page = read_page(folder / "report.html").text
    for text in (printed, page):
        assert "1 GCN backward" in text and "fastest and the slowest worker" in text
    assert "milliseconds on each worker" in page
    # a profile of an earlier version has none
    path = folder / "profile.json"
    record = json.loads(path.read_text())
    del record["batches"]
    path.write_text(json.dumps(record))
    main(["report", str(folder)])
    assert "Time per layer" not in read_page(folder / "report.html").text


def test_bytes_of_moves_are_those_of_the_stage(here: Path) -> None:
    profile = Profile.read(run(2) / "profile.json")
    move, reduce = profile.stages["move"], profile.stages["reduce"]
    sent = np.array(profile.sent).T.tolist()
    assert sent == [
        np.add(move.bytes, reduce.bytes).tolist(),
        np.add(move.messages, reduce.messages).tolist(),
    ]


@pytest.mark.second
@pytest.mark.usefixtures("without_charts")
def test_the_largest_pairs_of_many_ranks(here: Path) -> None:
    profile = Profile.read(run(12) / "profile.json")
    assert (
        len(profile.sent) == 12
        and max(np.bincount([pair[0] for pair in profile.largest])) <= LISTED
    )
    main(["report", "run"])
    text = read_page(here / "run" / "report.html").text
    assert (
        "to 11" not in text and f"rank {max(profile.largest, key=lambda pair: pair[2])[0]}" in text
    )


@pytest.mark.skipif(MPIEXEC is None, reason="MPI is not installed")
def test_mpiexec_timeline_and_report(here: Path) -> None:
    for words in (
        ("train", *WORDS, "--trace", "--out", "run"),
        ("report", "run", "--to", "pages/two.html"),
    ):
        done = subprocess.run(
            [str(MPIEXEC), "-n", "2", sys.executable, "-m", "graphtheta", *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0 and done.stderr == "", done.stderr
    assert done.stdout == "report in pages/two.html\n"
    events = read_timeline(Path("run/trace.json"), 2)
    # the clocks of one machine agree: both ranks leave a sum over both at nearly the same time; it
    # begins and ends in a stage each
    ends = [
        [
            e["ts"] + e["dur"]
            for e in events
            if e["name"] == "reduce" and e["cat"] == "stage" and e["pid"] == rank
        ]
        for rank in range(2)
    ]
    assert len(ends[0]) == 8 and np.abs(np.subtract(*ends)).min() < 1e5
    assert "2 workers" in read_page(Path("pages/two.html")).text


def test_python_writes_the_same_timeline(here: Path) -> None:
    gt.Trainer(**TINY, trace=True, out="mine").fit()
    read_timeline(Path("mine/trace.json"), 1)


@pytest.mark.usefixtures("without_charts")
def test_a_run_that_fails_leaves_timelines_and_a_report(here: Path) -> None:
    run(2, trace=True)
    with pytest.raises(DataError, match="loss of an evaluation"):
        run(2, trace=True, lr=1e38, optimiser="sgd", epochs=50, overwrite=True)
    folder = Path("run")
    assert not {"trace.json", "profile.json", "result.json"} & {
        path.name for path in folder.iterdir()
    }
    assert main(["report", "run"]) == 0
    page = read_page(folder / "report.html")
    assert (
        "trace-rank-0.json, trace-rank-1.json" in page.text
        and "There is no profile.json" in page.text
    )


@pytest.mark.usefixtures("without_charts")
def test_a_later_run_takes_the_timeline_away(here: Path) -> None:
    run(1, trace=True)
    assert main(["report", str(run(1, overwrite=True))]) == 0
    assert (
        not Path("run/trace.json").exists()
        and "train with --trace" in read_page(Path("run/report.html")).text
    )


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "keys",
    [{"epochs": 0}, {"epochs": 1}, {"eval_every": 3}, {"steps": 2}],
    ids=lambda keys: " ".join(keys),
)
def test_short_runs(here: Path, keys: dict[str, object]) -> None:
    run(1, **keys)
    assert main(["report", "run"]) == 0
    page = read_page(Path("run/report.html"))
    assert ("No epoch was run" in page.text) == (keys.get("epochs") == 0)
    assert ("averaged over 1 epochs, without those up to the first evaluation" in page.text) == (
        keys.keys() <= {"eval_every", "steps"}
    )


@pytest.mark.usefixtures("without_charts")
def test_everything_is_escaped(here: Path) -> None:
    name = "<u>&\"'"
    run_simulated(1, lambda comm: train_once(Job(**{**TINY, "out": f"{name}/x"}), comm))
    assert main(["report", f"{name}/x"]) == 0
    page = read_page(Path(name, "x", "report.html"))
    assert "u" not in [tag for tag, _ in page.seen] and f"{name}/x" in page.text


# jobs whose rows or results have entries of their own
ENTRIES: dict[str, dict[str, object]] = {
    "auto": {"strategy": "auto"},
    "modes": {"strategy": "mini", "batch_size": 40, "mode": "auto", "macrobatch": "2"},
    "pipeline": {
        "strategy": "mini",
        "batch_size": 10,
        "views_in_flight": 3,
        "pipeline": "auto",
        "eval_fanout": "5,5",
    },
    "audit": {"strategy": "cluster", "clusters": 4, "history": "gas", "audit": 2},
    "links": {"task": "link", "rank_all": True, "positive": "auto"},
}


@pytest.mark.one_in(2)
@pytest.mark.usefixtures("without_charts")
@pytest.mark.parametrize("name", ENTRIES)
def test_what_a_run_writes_is_read(name: str, here: Path) -> None:
    folder = run(2, **ENTRIES[name])
    assert len(read_run(folder).rows) == 4
    assert main(["report", str(folder)]) == 0 and main(["runs", str(folder)]) == 0


@pytest.mark.usefixtures("without_charts")
def test_a_run_that_goes_on_with_other_caches_is_read(here: Path) -> None:
    write_store(gt.load(str(TINY["dataset"])), Path("tiny.store"), SerialComm())
    keys = {"dataset": "tiny.store", "strategy": "mini", "batch_size": 20, "checkpoint_every": 1}
    run(1, **keys, epochs=2)
    folder = run(1, **keys, epochs=3, resume=True, feature_cache="10%")
    assert ["cache_hits" in line for line in (folder / "metrics.jsonl").open()] == [
        False,
        False,
        True,
    ]
    assert np.isnan([row["cache_hits"] for row in read_run(folder).rows]).tolist() == [1, 1, 0]
    assert main(["report", str(folder)]) == 0 and main(["runs", str(folder)]) == 0


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "change, told",
    [
        (lambda f: (f / "job.yaml").unlink(), "the folder has no job.yaml"),
        (lambda f: (f / "metrics.jsonl").unlink(), "metrics.jsonl is missing; train it again"),
        (lambda f: (f / "job.yaml").write_text("- 1"), "job.yaml: expected lines"),
        (
            lambda f: (f / "metrics.jsonl").write_text('{"epoch": 1'),
            "metrics.jsonl: line 1: damaged",
        ),
        (
            lambda f: (f / "metrics.jsonl").write_text("[]"),
            "metrics.jsonl: line 1: expected a mapping",
        ),
        (
            lambda f: (f / "metrics.jsonl").write_text('{"epoch": 1, "step": 1, "loss": "x"}'),
            "line 1: loss is not a number",
        ),
        (
            lambda f: (f / "metrics.jsonl").write_text('{"epoch": 1, "step": 1, "loss": {}}'),
            "line 1: loss is not a number",
        ),
        (
            lambda f: (f / "metrics.jsonl").write_text('{"epoch": 1.5, "step": 1, "loss": 1}'),
            "line 1: epoch is not a number",
        ),
        (
            lambda f: (f / "metrics.jsonl").write_text(
                '{"epoch": 1, "step": 1, "loss": 1, "x": ' + "[" * 9999
            ),
            "line 1: damaged",
        ),
        (
            lambda f: (f / "result.json").write_text('{"best_epoch": NaN, "seconds": 1}'),
            "result.json: best_epoch is not a number",
        ),
        (
            lambda f: (f / "profile.json").write_text(
                (f / "profile.json").read_text().replace('"epochs": 3', '"epochs": -3')
            ),
            "not the profile",
        ),
        (lambda f: (f / "metrics.jsonl").write_bytes(b"\xff\xfe"), "metrics.jsonl: cannot be read"),
        (
            lambda f: (f / "result.json").write_text("{}"),
            "result.json: expected a mapping with best_epoch",
        ),
        (lambda f: (f / "profile.json").write_text("{}"), "profile.json: not the profile of a run"),
        (
            lambda f: (f / "profile.json").write_bytes(b"\xff"),
            "profile.json: not the profile of a run",
        ),
        (
            lambda f: (f / "profile.json").write_text(
                (f / "profile.json").read_text().replace('"ranks": 1', '"ranks": 2')
            ),
            "each of 2 ranks",
        ),
        (lambda f: (f / "report.html").mkdir(), "report.html: the page cannot be written"),
    ],
)
@pytest.mark.usefixtures("without_charts")
def test_bad_folders_are_one_message(
    here: Path, change: object, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run(1)
    change(folder)  # type: ignore[operator]
    capsys.readouterr()
    assert main(["report", "run"]) != 0
    out, err = capsys.readouterr()
    assert out == "" and told in err and err.startswith("graphtheta: run")
    assert err.count("\n") == 1 and "Traceback" not in err


def test_no_folder_and_several_seeds(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["report", "nowhere"]) == 2
        and "nowhere: the folder has no job.yaml" in capsys.readouterr().err
    )
    run(1, out="many/seed-0", epochs=1)
    capsys.readouterr()
    assert (
        main(["report", "many"]) == 2
        and "many holds runs of several seeds; give one of them, such as many/seed-0"
        in capsys.readouterr().err
    )
    # and of a folder of any runs
    run(1, out="all/mine", epochs=1)
    capsys.readouterr()
    for command in ("report", "evaluate", "predict"):
        assert main([command, "all"]) == 2
        assert "all holds runs; give one of them, such as all/mine" in capsys.readouterr().err


def test_without_matplotlib(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(1, epochs=1)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    capsys.readouterr()
    assert (
        main(["report", "run"]) == 2 and "pip install 'graphtheta[plot]'" in capsys.readouterr().err
    )


def profile_of(elapsed: float, **stages: tuple[list[float], list[float]]) -> Profile:
    """A profile of one epoch from seconds and waiting by stage."""
    n = len(next(iter(stages.values()))[0])
    none = [0] * n
    books = {
        name: {"seconds": s, "wait": w, "bytes": none, "messages": none}
        for name, (s, w) in stages.items()
    }
    return Profile(
        ranks=n,
        epochs=1,
        steps=1,
        elapsed=elapsed,
        first_left_out=False,
        stages=books,
        sent=[(0, 0)] * n,
        largest=[],
        predicted=none,
        measured=none,
    )


def test_what_is_said_of_the_time() -> None:
    told = slowest(
        profile_of(
            12.5,
            gather=([3.0, 1.0], [0.0, 0.0]),
            move=([0.5, 0.5], [0.0, 2.0]),
            other=([9.0, 9.0], [0.0, 0.0]),
        )
    )
    assert (
        told
        == "The slowest stage is gather: 2000.00 ms of the 12500.00 ms of an epoch (16 %). Waiting"
        " is 8 % of the time, mostly in move. The busiest worker, rank 0, works 1.09 times as"
        " long as the mean."
    )
    assert slowest(profile_of(1.0, gather=([0.0], [0.0]))).startswith(
        "The slowest stage is gather: 0.00 ms"
    )
    told = slowest(profile_of(2.0, gather=([1.0], [3.0])))
    assert told.endswith(
        "Times of pipelined mini-batches are summed here: an epoch took 2000.00 ms of wall-clock "
        "time, of which a worker computed 1000.00 ms."
    )
    assert (imbalance([3.0, 1.0]), imbalance([0.0, 0.0])) == (1.5, 1.0)


def test_pictures_of_a_run_are_the_same_when_drawn_again() -> None:
    rows = [
        {"epoch": i, "step": i, "loss": 1.0, "val_loss": float("nan"), "val_accuracy": 0.5}
        for i in (1, 2)
    ]
    run = {"": chart.Curve(rows, 2)}
    assert chart.curves(run, ["loss", "accuracy"]) == chart.curves(run, ["loss", "accuracy"])


def test_audits_are_drawn() -> None:
    rows = [
        {
            "epoch": i,
            "step": i,
            "loss": 1.0,
            "audit_outputs": 0.1,
            "audit_gradients": 0.2,
            "audit_hit_rate": 0.9,
        }
        for i in (1, 2)
    ]
    assert "audits by epoch" in chart.audits(rows)
