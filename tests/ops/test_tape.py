import numpy as np
import pytest

from graphtheta.errors import ShapeError, TapeError
from graphtheta.ops import Parameter, RowSpace, Tape, Var, add, current, mul, square


def test_tape_adds_up_gradients_of_repeated_use():
    p = Parameter(np.array([3.0]))
    with Tape() as tape:
        out = add(square(p), mul(p, p))
    assert tape.backward(out).of(p) == 12


@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
@pytest.mark.parametrize("uses", [2, 3, 4])
def test_tape_adds_up_gradients_of_any_shape(shape, uses):
    """Of a value without axes too, whose sums are numbers in NumPy, which cannot be changed in
    place.
    """
    p = Parameter(np.full(shape, 3.0))
    with Tape() as tape:
        out = p
        for _ in range(uses - 1):
            out = mul(out, p)
    g = tape.backward(out).of(p)
    assert isinstance(g, np.ndarray) and g.shape == shape and np.all(g == uses * 3.0 ** (uses - 1))


def test_tape_records_the_same_nodes_with_and_without_rows():
    def names(n):
        with Tape() as tape:
            square(add(Var(np.ones((n, 2)), RowSpace(np.arange(n))), Parameter(np.ones(2))))
        return [node.name for node in tape.nodes]

    assert names(0) == names(3) == ["add", "square"]


def test_tape_skips_what_the_output_does_not_use():
    p = Parameter(np.ones(2))
    q = Parameter(np.ones(2))
    with Tape() as tape:
        square(q)
        out = square(p)
    grads = tape.backward(out)
    assert grads.of(q) is None
    assert np.array_equal(grads.of(p), [2, 2])


def test_tape_serves_once_and_only_if_it_recorded():
    p = Parameter(np.ones(2))
    with Tape() as tape:
        out = square(p)
    tape.backward(out)
    with pytest.raises(TapeError, match="backward was already called"):
        tape.backward(out)
    with Tape(record=False) as tape:
        out = square(p)
    assert not out.needs_grad
    with pytest.raises(TapeError, match="record=False"):
        tape.backward(out)


def test_tape_random_keys_depend_on_seed_step_and_count():
    def keys(seed, step):
        tape = Tape(seed=seed, step=step)
        return [tape.random_key() for _ in range(2)]

    assert keys(1, 2) == keys(1, 2)
    assert len({*keys(1, 2), *keys(2, 2), *keys(1, 3)}) == 6


def test_current_outside_of_a_tape_neither_records_nor_trains():
    assert not current().record
    assert not current().training
    with Tape() as tape:
        assert current() is tape


def test_var_of_the_wrong_number_of_rows_is_refused():
    with pytest.raises(ShapeError, match="a value has 2 rows, but there are 3 nodes"):
        Var(np.ones((2, 2)), RowSpace(np.arange(3)))


def test_space_prefixes_are_nested():
    space = RowSpace(np.arange(5) * 10)
    inner = space.prefix(3)
    assert np.array_equal(inner.gid, [0, 10, 20])
    assert inner.prefix(2).nested_with(space)
    assert space.prefix(5) is space
    assert not RowSpace(np.arange(5)).nested_with(space)


def test_backward_calls_what_was_put_between() -> None:
    """In the order of backward, whatever parameters are read, and not without a record."""
    called: list[str] = []
    w = Parameter(np.ones(3))
    with Tape() as tape:
        tape.at_this_point(lambda: called.append("begin"))
        y = w * 2.0
        tape.at_this_point(lambda: called.append("middle"))
        total = (y * w).sum()
        tape.at_this_point(lambda: called.append("end"))
    gradients = tape.backward(total, final=lambda p, g: called.append("final"))
    np.testing.assert_array_equal(gradients.of(w), 4 * np.ones(3))
    assert called == ["end", "middle", "final", "begin"]
    with Tape(record=False) as tape:
        tape.at_this_point(lambda: called.append("never"))
    assert tape.nodes == []
