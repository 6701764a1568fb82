"""What the tests of timelines share: reading one, and what must hold of all."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

Event = dict[str, Any]


def read_timeline(path: Path, ranks: int) -> list[Event]:
    """The events of a file, after checking that they make a timeline of so many ranks."""
    record = json.loads(path.read_text(encoding="utf-8"))
    assert "clock" in record["otherData"]
    events = record["traceEvents"]
    named = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert named == {rank: f"rank {rank}" for rank in range(ranks)}
    rows = [(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"]
    assert len(set(rows)) == len(rows)
    assert {(e["pid"], e["tid"]) for e in events} == set(rows)
    for rank in range(ranks):
        own = [e for e in events if e["pid"] == rank and e["ph"] != "M"]
        assert [e["ts"] for e in own] == sorted(e["ts"] for e in own)
        check_moves(own)
    for row in rows:
        check_nesting([e for e in events if (e["pid"], e["tid"]) == row and e["ph"] == "X"])
    return events


def check_nesting(spans: list[Event]) -> None:
    """Spans of a row lie inside each other or apart, and waits lie inside the stage they are booked
    under.
    """
    open_spans: list[Event] = []
    for e in spans:
        assert e["dur"] >= 0
        while open_spans and nanoseconds(open_spans[-1])[1] <= nanoseconds(e)[0]:
            open_spans.pop()
        assert not open_spans or nanoseconds(e)[1] <= nanoseconds(open_spans[-1])[1]
        if e["cat"] == "wait":
            inside = [outer["name"] for outer in open_spans if outer["cat"] == "stage"]
            assert e["args"]["stage"] == (inside[-1] if inside else "other")
        open_spans.append(e)


def check_moves(events: list[Event]) -> None:
    """Every move that begins ends, later."""
    begun = {e["id2"]["local"]: e for e in events if e["ph"] == "b"}
    ended = {e["id2"]["local"]: e for e in events if e["ph"] == "e"}
    assert set(begun) == set(ended)
    assert len(begun) == sum(e["ph"] == "b" for e in events)
    assert all(
        begun[i]["ts"] <= ended[i]["ts"] and begun[i]["name"] == ended[i]["name"] for i in begun
    )


def nanoseconds(span: Event) -> tuple[int, int]:
    """When a span begins and ends."""
    begin = round(span["ts"] * 1000)
    return begin, begin + round(span["dur"] * 1000)


def booked(spans: list[Event]) -> dict[tuple[str, str], float]:
    """Seconds by stage and "seconds" or "wait", as a ledger books them: without inner stages."""
    total: dict[tuple[str, str], float] = defaultdict(float)
    outer: list[Event] = []
    for e in spans:
        if e["cat"] not in ("stage", "wait"):
            continue
        while outer and nanoseconds(outer[-1])[1] <= nanoseconds(e)[0]:
            outer.pop()
        total[key_of(e)] += e["dur"] / 1e6
        if outer:
            total[key_of(outer[-1])] -= e["dur"] / 1e6
        outer.append(e)
    return total


def key_of(span: Event) -> tuple[str, str]:
    return (span["args"]["stage"], "wait") if span["cat"] == "wait" else (span["name"], "seconds")
