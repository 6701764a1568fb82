"""Jobs in which something goes wrong end on all ranks, and say where; jobs that are only slow go
on.
"""

from __future__ import annotations

import gc
import os
import re
import sys
import time
from pathlib import Path
from threading import Event, RLock, Thread, get_ident
from types import FrameType, SimpleNamespace
from weakref import ref

import numpy as np
import pytest
from ranks import MPIEXEC, needs_mpi, run

from graphtheta.engine.comm.channel import Tag
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.runtime import stacks
from graphtheta.engine.runtime.control import Control, Kind
from graphtheta.engine.runtime.liveness import Liveness
from graphtheta.engine.runtime.watchdog import (
    BETWEEN,
    FACTOR,
    LEAST,
    SLOWEST,
    TICK,
    WORKING,
    Pace,
    Watchdog,
    meanwhile,
    report,
)
from graphtheta.errors import CommError

PROGRAM = str(Path(__file__).with_name("fault_program.py"))
# seconds; long enough for ranks that share a core with other tests, for these faults are of ranks
# that never go on
PATIENCE = "4"


def spend(pace: Pace, seconds: float, alive: bool = False, stepping: bool = True) -> None:
    """Let time pass without progress, tick by tick."""
    for _ in range(round(seconds / TICK)):
        pace.update(TICK, False, lambda: alive, lambda: stepping)


def progress(pace: Pace) -> None:
    pace.update(TICK, True, lambda: False, lambda: True)


def test_looking_at_stacks_keeps_no_values_in_memory():
    class Value:
        pass

    def look():
        value = Value()
        watchdog = Thread(target=Watchdog._workers, args=(SimpleNamespace(waits={}),))
        watchdog.start()
        watchdog.join()
        return ref(value)

    gc.disable()
    try:
        assert look()() is None
    finally:
        gc.enable()


class TestPace:
    def test_a_rank_that_sleeps_in_a_step_is_late_first(self):
        pace = Pace()
        spend(pace, LEAST - 1)
        assert not pace.late(False, 0)
        spend(pace, 2.5)
        assert pace.late(False, 0) and pace.late(True, 0)

    def test_one_that_works_has_more_time(self):
        pace = Pace()
        spend(pace, LEAST * WORKING - 1, alive=True)
        assert not pace.late(False, 0)
        spend(pace, 3, alive=True)
        assert pace.late(False, 0)

    def test_and_code_between_steps_still_more(self):
        pace = Pace()
        spend(pace, LEAST * BETWEEN - 1, stepping=False)
        assert not pace.late(False, 0)
        spend(pace, 4, stepping=False)
        assert pace.late(False, 0)
        pace = Pace()
        spend(pace, LEAST * BETWEEN * WORKING - 1, alive=True, stepping=False)
        assert not pace.late(False, 0)

    def test_the_limit_follows_the_longest_pause_of_its_kind(self):
        pace = Pace()
        spend(pace, 40, alive=True)
        progress(pace)
        assert pace.pause == 0 and pace.limit() == pytest.approx(FACTOR * 40, rel=0.02)
        spend(pace, 50, stepping=False)
        assert pace.limit() == pytest.approx(
            LEAST
        )  # loading was slow, and says nothing about steps
        progress(pace)
        spend(pace, 2)
        assert pace.limit() == pytest.approx(FACTOR * 40, rel=0.02)

    def test_a_sign_of_life_begins_anew(self):
        pace = Pace()
        spend(pace, LEAST - 1)
        spend(pace, 1, alive=True)
        spend(pace, LEAST - 1)
        assert not pace.late(False, 0) and pace.pause > LEAST
        assert (
            pace.asleep > 1.8 * pace.idle > LEAST
        )  # a report says that it slept nearly all of the time

    def test_large_messages_take_time(self):
        pace = Pace()
        spend(pace, LEAST + 5)
        assert pace.late(True, 0) and not pace.late(True, int(10 * SLOWEST))

    @pytest.mark.parametrize("alive", [True, False])
    def test_a_user_who_knows_better(self, alive):
        pace = Pace(patience=3)
        spend(pace, 2.5, alive, stepping=False)
        assert not pace.late(False, 0)
        spend(pace, 2, alive, stepping=False)
        assert pace.late(False, 0) == pace.late(True, 0) == True  # noqa: E712
        never = Pace(patience=0)
        spend(never, 10_000)
        assert not never.late(False, 0) and not never.late(True, 0)


class TestLiveness:
    def test_one_that_computes(self):
        life = Liveness(os.getpid())
        stop = Event()
        other = Thread(target=lambda: all(sum(range(100_000)) for _ in iter(stop.is_set, True)))
        other.start()
        try:
            end = time.monotonic() + 5
            while not (seen := life.check()) and time.monotonic() < end:
                time.sleep(0.01)
        finally:
            stop.set()
            other.join()
        assert seen

    def test_who_looks_shows_no_sign_of_life(self):
        counters = Liveness(os.getpid())._counters
        before = counters()[0]
        began = time.thread_time()
        while time.thread_time() - began < 0.3:
            sum(range(100_000))
        assert counters()[0] - before < 0.1

    def test_one_that_has_ended(self):
        gone = run([sys.executable, "-c", "import os; print(os.getpid())"])
        assert Liveness(int(gone.stdout)).describe() == "its process has ended"
        assert (
            not Liveness(int(gone.stdout)).check()
            and Liveness(int(gone.stdout)).ended
            and not Liveness(os.getpid()).ended
        )

    def test_one_that_ends_while_its_threads_are_listed(self, tmp_path):
        process = Liveness(os.getpid())
        process._folder = tmp_path
        (tmp_path / "task").mkdir()
        assert process.ended and not process.traced
        assert process.describe() == "its process has ended"


class Transport:
    """Control messages between ranks of one process."""

    def __init__(self, rank, boxes):
        self.rank = rank
        self.size = len(boxes)
        self.lock = RLock()
        self._boxes = boxes

    def send(self, to, kind, data):
        self._boxes[to].append((self.rank, kind, data))

    def receive(self):
        found = list(self._boxes[self.rank])
        self._boxes[self.rank][:] = []
        return found

    def all_sent(self):
        return True


def test_control_messages():
    boxes = [[], []]
    one, other = (
        Control(
            Transport(rank, boxes), lambda channel, rank=rank: {"rank": rank, "channel": channel}
        )
        for rank in range(2)
    )
    other.send_all(Kind.LEFT, np.array([3, 4]).tobytes())
    other.send_all(Kind.FAILED)
    one.receive()
    assert one.left[1][0].tolist() == [3, 4] and one.failed == {1}
    assert list(one.query(7)) == [0]  # the other one does not respond
    other.receive()
    assert list(other.queried) == [0]
    one.receive()
    assert one._answers[1][1] == {"rank": 1, "channel": 7}
    one.send_all(Kind.REPORTS)
    assert not other.first_to_report()


def test_threads_may_start_while_a_position_is_read():
    """The thread of the watchdog would end with an error, and nothing would end a hang."""

    class AnotherThreadStarts(str):
        def __bool__(self):
            watchdog.waits[-len(watchdog.waits)] = None
            return False

    watchdog = Watchdog(
        transport=Transport(0, [[]]),
        activity=lambda channel: ("barrier()", 1, "other"),
        end=print,
        pids={},
    )
    # of a thread that has ended, and of this one
    watchdog.waits = {-7: AnotherThreadStarts(), get_ident(): "all_sum()"}
    position = watchdog.position()
    assert position["waits"] and position["what"] == "all_sum()" and len(watchdog.waits) == 3


# ---- text of reports


def at(**more):
    return {
        "waits": False,
        "left": False,
        "what": "",
        "operation": "barrier()",
        "number": 7,
        "stage": "gather",
        "late": True,
        "where": "my_model.py:33 in gather",
        "pause": 12.3,
        "asleep": 12.0,
        "stacks": [["MainThread", ["my_model.py:33"]]],
        **more,
    }


def test_report_says_who_is_stuck_and_who_waits():
    waits = at(
        waits=True,
        what="to_masters from ranks [2]",
        where="engine/partition/exchange.py:150 in end",
        stage="move",
    )
    text = report(
        {0: waits, 1: waits, 2: at()}, {3: "does not respond: its process is stopped"}, Pace()
    )
    assert text.splitlines()[:4] == [
        "graphtheta: timeout: ranks 0 and 1 wait for other ranks that make no progress:",
        "  rank 3/4 does not respond: its process is stopped",
        (
            "  rank 2/4 makes no progress: it is asleep for 12 s at my_model.py:33 in gather, stage"
            " gather, after operation 7, barrier()"
        ),
        (
            "  ranks 0 and 1: to_masters from ranks [2] at engine/partition/exchange.py:150 in end,"
            " stage move"
        ),
    ]
    assert (
        "GRAPHTHETA_PATIENCE" in text
        and "stacks of ranks 0, 1 and 2:\n    MainThread:\n        my_model.py:33" in text
    )
    assert "deadlock: every rank waits for another rank:" in report(
        {0: waits, 1: waits}, {}, Pace()
    )


def test_where_the_others_were():
    places = {0: at(), 2: at(waits=True, what="barrier()"), 3: at(left=True)}
    assert meanwhile(places, [4]).splitlines() == [
        "meanwhile rank 0: busy at my_model.py:33 in gather, stage gather",
        "meanwhile rank 2: in barrier() at my_model.py:33 in gather, stage gather",
        "meanwhile rank 3: has exited",
        "meanwhile rank 4: does not respond",
    ]


def test_a_frame_between_two_lines_is_at_the_beginning_of_its_function():
    """As that of a thread which jumps back to the head of a loop."""

    def between() -> list[FrameType]:
        return stacks.frames(sys._getframe())

    first = between.__code__.co_firstlineno
    between.__code__ = between.__code__.replace(co_linetable=b"")
    stack = between()
    assert stack[0].f_lineno is None
    told = f"engine/test_watchdog.py:{first} in between"
    assert stacks.where(stack) == told
    assert f"{told}: def between() -> list[FrameType]:" in stacks.lines(stack)


def test_stacks_name_lines_of_the_user():
    def here():
        return stacks.frames(sys._getframe())

    stack = sorted([3, 1], key=lambda x: -x) and here()
    assert stacks.where(stack).startswith("engine/test_watchdog.py:") and stacks.where(
        stack
    ).endswith(" in here")
    assert not stacks.in_step(stack) and not stacks.in_debugger(stack)
    assert any(
        "in test_stacks_name_lines_of_the_user: stack = " in line for line in stacks.lines(stack)
    )
    assert any(name == "MainThread" for name, _ in stacks.stacks())


# ---- the verifier


def test_a_skipped_move_is_noticed_by_the_next_collective():
    def program(comm):
        for _ in range(1 + comm.rank % 2):
            comm.move_begin([], [], Tag.TO_MIRRORS).end()
        comm.barrier()

    with pytest.raises(
        CommError,
        match=(
            r"(?s)ranks called.*rank 0: waits in operation 2, barrier\(\) at .*rank 1: operation 3,"
            r" barrier"
        ),
    ):
        run_simulated(2, program)


def test_messages_of_different_moves_do_not_match():
    def program(comm):
        other = 1 - comm.rank
        got = np.empty(2)
        if comm.rank == 0:
            comm.move_begin([], [], Tag.TO_MIRRORS).end()
        comm.move_begin([(other, np.ones(2))], [(other, got)], Tag.TO_MIRRORS).end()

    with pytest.raises(CommError, match="waits for 2 float64 from rank"):
        run_simulated(2, program)


# ---- faults of real ranks


@pytest.mark.one_in(6)
@needs_mpi
class TestFaults:
    """Every rank ends with a status that is not 0, and one message says which rank and line."""

    # the stacks of these reports begin with the program's first line
    @pytest.mark.cold
    @pytest.mark.parametrize(
        ("fault", "words"),
        [
            (
                "sleeps in gather",
                r"ranks 0 and 2 wait for other ranks that make no progress:\n  rank 1/3 .* asleep"
                r" .* in sleeps, stage \w+, .*"
                r"(?s:.*)in gather: Faulty.fault\(\"gather\"\)",
            ),
            (
                "sleeps in apply",
                (
                    r"rank 1/3 makes no progress: it is asleep .* in sleeps, stage apply.*\n  ranks"
                    r" 0 and 2: .* stage \w+"
                ),
            ),
            (
                "loops in apply",
                r"rank 1/3 makes no progress: it is busy for .* in loops, stage apply",
            ),
            (
                "holds Python's lock in apply",
                (
                    r"rank 1/3 does not respond: its process runs, but its Python interpreter is"
                    r" blocked"
                ),
            ),
            (
                "stopped",
                (
                    r"rank 1/3 does not respond: its process is stopped\n  ranks 0 and 2:"
                    r" all_sum\(int64, \(3,\)\) at .* in between"
                ),
            ),
            (
                "waits for each other",
                (
                    r"deadlock: every rank waits(?s:.*)rank 1/3 waits .* in to_masters from ranks"
                    r" \[2\], operation \d+, at "
                ),
            ),
        ],
    )
    def test_a_rank_that_makes_no_progress(self, fault, words):
        done = self.job(fault, PATIENCE)
        assert done.returncode == 1 and re.search(words, done.stderr), done.stderr
        assert done.stderr.count("graphtheta:") == 1 and re.search(
            r"stacks of ranks? 0.*:\n    MainThread:\n        engine/", done.stderr
        )

    @pytest.mark.parametrize(
        ("fault", "words"),
        [
            (
                "skips a collective",
                (
                    r"rank 0: operation \d+, all_sum\(int64, \(3,\)\) at .*(?s:.*)rank 1: operation"
                    r" \d+, all_gather\(\) at "
                ),
            ),
            (
                "calls another collective",
                (
                    r"rank 0: operation \d+, all_sum\(int64, \(3,\)\) at .*(?s:.*)rank 1: operation"
                    r" \d+, barrier\(\) at "
                ),
            ),
            (
                "gives another shape",
                # where a library does not wait for the others, the rank has gone on
                r"rank 1: operation \d+, all_sum\(float64, \(5, 7\)\) at .* in <(lambda|module)>",
            ),
        ],
    )
    def test_a_rank_in_another_collective(self, fault, words):
        done = self.job(fault)
        assert done.returncode == 1 and re.search(words, done.stderr), done.stderr
        assert done.stderr.count("ranks called different operations") == 1

    @pytest.mark.parametrize(
        ("fault", "code", "words"),
        [
            (
                "raises in gather",
                1,
                r"^rank 1/3: DataError: gather of Faulty: this gather cannot work\nmeanwhile",
            ),
            (
                "raises in apply",
                1,
                (
                    r"^rank 1/3: Traceback(?s:.*)ZeroDivisionError(?s:.*)\nmeanwhile rank.* in .*"
                    r" stage \w+\n$"
                ),
            ),
            (
                "wrong shape from apply",
                1,
                r"^rank 1/3: ShapeError: transform of Faulty: matmul: .*\nmeanwhile",
            ),
            (
                "returns early",
                1,
                r"^rank 0/3: CommError: rank 1 has exited, but rank 0 waits for it in all_sum",
            ),
            (
                "sys.exit",
                3,
                (
                    r"^rank 1/3: the program ended here with exit status 3\nmeanwhile ranks 0 and"
                    r" 2: in all_sum\(int64, \(3,\)\) at "
                ),
            ),
        ],
    )
    def test_a_rank_that_raises_or_leaves(self, fault, code, words):
        done = self.job(fault)
        assert done.returncode == code and re.search(words, done.stderr), done.stderr

    @pytest.mark.parametrize("fault", ["os._exit", "killed", "segmentation fault"])
    def test_a_rank_that_dies(self, fault):
        assert self.job(fault).returncode != 0

    def job(self, fault, patience="60"):
        """Faults that are no lack of progress are noticed without the limit, which a busy machine
        may exceed by itself.
        """
        assert MPIEXEC is not None
        return run(
            [MPIEXEC, "-n", "3", sys.executable, PROGRAM, fault], GRAPHTHETA_PATIENCE=patience
        )
