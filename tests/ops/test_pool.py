"""The pool of threads."""

from __future__ import annotations

from threading import Event, Thread, get_ident

import pytest

from graphtheta.ops.parallel import pool

several = pytest.mark.skipif(pool.threads() < 2, reason="one thread")


@pytest.fixture(autouse=True)
def _alone():
    before = pool.helpers().computing
    pool.helpers().share(1)
    yield
    pool.helpers().share(before)


@pytest.mark.parametrize("n", [0, 1, 7, 100])
def test_each_block_runs_once(n):
    found = []
    pool.run_blocks(found.append, n)
    assert sorted(found) == list(range(n))


def test_a_short_operation_stays_on_the_calling_thread():
    found = []
    pool.run_blocks(lambda b: found.append((b, get_ident())), 50, pool.WORTH / 2)
    assert found == [(b, get_ident()) for b in range(50)]


def test_the_number_of_threads_is_that_of_the_calling_thread():
    before = pool.threads()
    others = []
    pool.set_threads(before + 1)
    other = Thread(target=lambda: others.append(pool.threads()))
    other.start()
    other.join()
    assert pool.threads() == before + 1 and before + 1 not in others
    pool.set_threads(before)


@several
def test_an_idle_thread_takes_part():
    joined = Event()

    def work(place):
        if place == 0:
            assert joined.wait(30)
        else:
            joined.set()

    pool.run_threads(work, 2)


@several
def test_an_exception_of_another_thread_is_raised():
    begun = Event()

    def work(place):
        if place == 0:
            assert begun.wait(30)
        else:
            begun.set()
            raise ValueError("of a block")

    with pytest.raises(ValueError, match="of a block"):
        pool.run_threads(work, 2)


@several
def test_other_threads_have_ended_when_an_exception_is_raised():
    begun = Event()
    ended = []

    def work(place):
        if place == 0:
            assert begun.wait(30)
            raise ValueError("of this thread")
        begun.set()
        ended.append(True)

    with pytest.raises(ValueError, match="of this thread"):
        pool.run_threads(work, 2)
    assert ended


def test_blocks_may_run_blocks():
    found = []
    pool.run_blocks(lambda b: pool.run_blocks(lambda i: found.append((b, i)), 3), 5)
    assert sorted(found) == [(b, i) for b in range(5) for i in range(3)]
