from __future__ import annotations

from contextlib import suppress

import pytest

from graphtheta.engine.comm import ledger as module
from graphtheta.engine.comm.ledger import FIELDS, REST, STAGES, UPDATE, Ledger


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


def test_parts_of_a_batch_add_up_to_its_time(clock):
    ledger = Ledger()
    clock(5)
    for number in (3, 4):
        with ledger.batch(number):
            clock(1)
            with ledger.part(("1 GCN", "forward")):
                clock(10)
                with ledger.stage("move"), ledger.waiting():
                    clock(100)
            ledger.switch(("1 GCN", "backward"))
            clock(1000)
            with ledger.part(UPDATE):
                clock(10_000)
            clock(1000)
            ledger.switch(REST)
        clock(7)
    (number, times), (_, again) = ledger.batches()
    assert number == 3 and times == again
    assert times == {
        REST: (1, 0),
        ("1 GCN", "forward"): (10, 100),
        ("1 GCN", "backward"): (2000, 0),
        UPDATE: (10_000, 0),
    }


def test_batches_of_all_channels_are_in_the_order_of_their_numbers(clock, monkeypatch):
    monkeypatch.setattr(module, "MOST_BATCHES", 4)
    ledger = Ledger()
    branch = ledger.branch()
    branch.resume()
    for number in range(7):
        with (branch if number % 3 else ledger).batch(number):
            clock(number)
    # each channel has its latest ones, so that those are complete
    assert [n for n, _ in ledger.batches()] == [3, 4, 5, 6]
    assert [times[REST][0] for _, times in ledger.batches(5)] == [5, 6]


def test_an_error_leaves_a_part(clock):
    ledger = Ledger()
    with ledger.batch(0):
        with suppress(ValueError), ledger.part(UPDATE):
            raise ValueError
        clock(1)
    assert ledger.batches()[0][1][REST] == (1, 0)
