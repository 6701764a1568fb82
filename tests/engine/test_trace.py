"""Timelines: what a rank collects, and the file all ranks leave."""

from __future__ import annotations

import json
import threading
import time
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
from timelines import booked, read_timeline

from graphtheta.engine.comm.channel import Tag
from graphtheta.engine.comm.event_log import MARK, SPAN, EventLog
from graphtheta.engine.comm.ledger import Ledger
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.runtime import timeline
from graphtheta.engine.runtime.timeline import clock_offset, files_of, tracing
from graphtheta.engine.train.step import WorkQueue
from graphtheta.errors import FormatError


def ring(comm, steps=3):
    """Every rank sends to the next and computes meanwhile."""
    for step in range(steps):
        comm.ledger.mark(f"step {step}")
        with comm.ledger.span(f"step {step}", version=step):
            with comm.ledger.stage("move"):
                to = (comm.rank + 1) % comm.size
                source = (comm.rank - 1) % comm.size
                alone = comm.size == 1
                got = np.empty(100 + source)
                move = comm.move_begin(
                    [] if alone else [(to, np.ones(100 + comm.rank))],
                    [] if alone else [(source, got)],
                    Tag.TO_MIRRORS,
                )
            with comm.ledger.stage("gather"):
                sum(range(1000))
                with comm.ledger.stage("move"):
                    move.end()
            comm.all_sum(np.ones(3))


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_timeline_of_all_ranks(ranks, tmp_path):
    path = tmp_path / "deep" / "trace.json"

    def program(comm):
        with tracing(comm, path):
            before = comm.ledger.snapshot()
            ring(comm)
            after = comm.ledger.since(before)
        assert comm.ledger.event_log is None
        return after

    books = run_simulated(ranks, program)
    events = read_timeline(path, ranks)
    for rank, book in enumerate(books):
        seconds = booked([e for e in events if e["ph"] == "X" and e["pid"] == rank])
        for stage, fields in book.items():
            for field in ("seconds", "wait"):
                if (stage, field) != ("other", "seconds"):
                    assert seconds[stage, field] == pytest.approx(fields[field], abs=1e-7), (
                        rank,
                        stage,
                        field,
                    )
    moves = [e for e in events if e["ph"] == "b"]
    assert len(moves) == (3 * ranks if ranks > 1 else 0)
    for e in moves:
        to = (e["pid"] + 1) % ranks
        source = (e["pid"] - 1) % ranks
        assert e["name"] == "to_mirrors"
        assert e["args"] == {
            "to": {str(to): 800 + 8 * e["pid"]},
            "from": {str(source): 800 + 8 * source},
        }
    tasks = [
        (e["pid"], e["name"], e["args"]) for e in events if e["ph"] == "X" and e["cat"] == "task"
    ]
    assert tasks == [(rank, f"step {i}", {"version": i}) for rank in range(ranks) for i in range(3)]
    assert sum(e["ph"] == "i" for e in events) == 3 * ranks


def test_rows_of_several_threads(tmp_path):
    def program(comm):
        with tracing(comm, tmp_path / "trace.json") as trace:

            def work(row):
                ledger = Ledger()
                ledger.event_log, ledger.row = trace, row
                with ledger.span("forward", version=7), ledger.stage("apply"):
                    time.sleep(0.001)

            threads = [threading.Thread(target=work, args=(f"view {i}",)) for i in (10, 2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    run_simulated(2, program)
    events = read_timeline(tmp_path / "trace.json", 2)
    named = [(e["pid"], e["args"]["name"]) for e in events if e["name"] == "thread_name"]
    assert named == [(rank, row) for rank in range(2) for row in ("main", "view 2", "view 10")]


def test_tasks_in_flight_have_rows_of_their_own(tmp_path):
    def program(comm):
        comm.open_channels("views", 1)
        with tracing(comm, tmp_path / "trace.json"):
            before = comm.ledger.snapshot()
            sent = comm.ledger.receivers(2)
            WorkQueue(comm, 3).run([nullcontext(partial(ring, comm, steps=2)) for _ in range(7)])
            return comm.ledger.since(before), comm.ledger.receivers(2) - sent

    results = run_simulated(2, program)
    events = read_timeline(tmp_path / "trace.json", 2)
    for rank, (book, sent) in enumerate(results):
        own = [e for e in events if e["pid"] == rank]
        rows = {e["tid"]: e["args"]["name"] for e in own if e["name"] == "thread_name"}
        assert set(rows.values()) == {"main", *(f"channel {i}" for i in range(1, 8))}
        total = [booked([e for e in own if e["ph"] == "X" and e["tid"] == row]) for row in rows]
        for stage, field in (
            ("move", "seconds"),
            ("move", "wait"),
            ("gather", "seconds"),
            ("other", "wait"),
        ):
            assert sum(row[stage, field] for row in total) == pytest.approx(
                book[stage][field], abs=1e-6
            )
        assert sent[1 - rank].tolist() == [14 * (800 + 8 * rank), 14]


def test_nothing_is_kept_without_a_trace():
    ledger = Ledger()
    with ledger.span("forward", version=1), ledger.stage("apply"):
        ledger.mark("here")
    assert ledger.event_log is None


def test_a_trace_that_begins_inside_a_stage():
    ledger = Ledger()
    trace = EventLog()
    with ledger.stage("apply"):
        ledger.event_log = trace
    lines = [json.loads(line) for line in trace.encode(0, 0.0).split(",\n")]
    assert [e["name"] for e in lines if e["ph"] == "X"] == ["apply"]


def test_later_events_are_dropped_and_the_file_says_so():
    trace = EventLog(most=2)
    for i in range(5):
        trace.add(SPAN, "main", "task", f"task {i}", i, i + 1)
    lines = [json.loads(line) for line in trace.encode(3, 0.0).split(",\n")]
    assert trace.dropped == 3
    assert [e["name"] for e in lines if e["ph"] == "X"] == ["task 0", "task 1"]
    assert (
        next(e for e in lines if e["name"] == "process_name")["args"]["name"]
        == "rank 3 (3 later events dropped)"
    )


def test_the_outer_of_two_that_begin_together_comes_first():
    trace = EventLog()
    trace.add(SPAN, "main", "task", "inner", 1.0, 2.0)
    trace.add(SPAN, "main", "task", "outer", 1.0, 3.0)
    trace.add(MARK, "main", "mark", "early", 0.5, 0.5)
    lines = [json.loads(line) for line in trace.encode(0, 0.5).split(",\n")]
    assert [(e["name"], e["ts"], e.get("dur")) for e in lines if e["ph"] != "M"] == [
        ("early", 0, None),
        ("outer", 500_000, 2_000_000),
        ("inner", 500_000, 1_000_000),
    ]


def test_an_error_leaves_the_timeline_of_each_rank(tmp_path):
    path = tmp_path / "trace.json"

    def program(comm):
        with tracing(comm, path):
            ring(comm)
            if comm.rank == 1:
                raise ValueError("lost")
            comm.barrier()

    path.write_text('{"displayTimeUnit": "ms", "otherData": {}')
    with pytest.raises(ValueError, match="lost"):
        run_simulated(3, program)
    assert [file.name for file in files_of(path)] == [
        f"trace-rank-{rank}.json" for rank in range(3)
    ]
    for rank, file in enumerate(files_of(path)):
        events = json.loads(file.read_text())["traceEvents"]
        assert {e["pid"] for e in events} == {rank}
        assert sum(e["name"].startswith("step") and e["ph"] == "X" for e in events) == 3


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "taken").write_text("a file")

    def program(comm):
        with (
            pytest.raises(FormatError, match=r"taken.*--out"),
            tracing(comm, tmp_path / "taken" / "trace.json"),
        ):
            pass
        return "raised"

    assert run_simulated(2, program) == ["raised"] * 2


@pytest.mark.parametrize("skew", [0.0, 5.0, -300.0])
def test_clocks_of_other_machines(skew, monkeypatch):
    clock = time.perf_counter
    monkeypatch.setattr(
        timeline,
        "perf_counter",
        lambda: clock() + skew * (threading.current_thread().name == "rank 1"),
    )
    found = run_simulated(3, clock_offset)
    assert found[0][0] == found[2][0] == 0
    assert found[0][1] < 1 and len({doubt for _, doubt in found}) == 1
    # clocks that may agree are left alone
    assert found[1][0] == 0 if skew == 0 else abs(found[1][0] - skew) <= found[1][1]


def test_messages_by_receiver():
    def program(comm):
        ring(comm, steps=2)
        return comm.ledger.receivers(comm.size).tolist()

    assert run_simulated(3, program) == [
        [[0, 0], [1600, 2], [0, 0]],
        [[0, 0], [0, 0], [1616, 2]],
        [[1632, 2], [0, 0], [0, 0]],
    ]
