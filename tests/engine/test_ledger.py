from __future__ import annotations

import pytest

from graphtheta.engine.comm import ledger as module
from graphtheta.engine.comm.ledger import FIELDS, STAGES, Ledger


@pytest.fixture
def clock(monkeypatch):
    """A clock that only moves when told."""
    now = [0.0]
    monkeypatch.setattr(module, "perf_counter", lambda: now[0])

    def tick(seconds):
        now[0] += seconds

    return tick


def test_inner_time_is_taken_out_of_the_outer(clock):
    ledger = Ledger()
    clock(1)
    with ledger.stage("gather"):
        clock(10)
        with ledger.stage("move"):
            clock(100)
            with ledger.stage("gather"):
                clock(1000)
        clock(10000)
    clock(100000)
    seconds = {
        stage: book["seconds"] for stage, book in ledger.snapshot().items() if book["seconds"]
    }
    assert seconds == {"other": 100001, "gather": 11010, "move": 100}


def test_waiting_is_apart_but_under_its_stage(clock):
    ledger = Ledger()
    with ledger.stage("move"):
        clock(1)
        with ledger.waiting():
            clock(2)
        clock(4)
    books = ledger.snapshot()
    assert (books["move"]["seconds"], books["move"]["wait"]) == (5, 2)


def test_since_and_snapshots_do_not_change(clock):
    ledger = Ledger()
    with ledger.stage("apply"):
        ledger.sent(100, 2)
        clock(1)
        first = ledger.snapshot()
        ledger.sent(10)
        clock(5)
        assert ledger.since(first)["apply"] == {"seconds": 5, "wait": 0, "bytes": 10, "messages": 1}
    assert first["apply"] == {"seconds": 1, "wait": 0, "bytes": 100, "messages": 2}
    assert set(first) == set(STAGES) and set(first["other"]) == set(FIELDS)


def test_an_error_closes_its_stage(clock):
    ledger = Ledger()
    with pytest.raises(ValueError, match="x"), ledger.stage("apply"), ledger.waiting():
        raise ValueError("x")
    clock(3)
    assert ledger.current == "other" and ledger.snapshot()["other"]["seconds"] == 3


def test_no_such_stage():
    with pytest.raises(KeyError):
        Ledger().stage("lunch")
