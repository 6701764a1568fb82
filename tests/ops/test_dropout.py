import numpy as np
import pytest
import scipy.sparse as sp

from graphtheta.errors import ConfigError
from graphtheta.inspect.checking.gradients import check_vjp
from graphtheta.ops import PRIMITIVES, Parameter, RowSpace, Tape, Var, dropout
from graphtheta.ops.autodiff.expr import Tracer

GID = np.random.default_rng(0).permutation(1000)[:200] * 10**9
SPACE = RowSpace(GID)


def drop(x, rate=0.4, *, space=SPACE, seed=1, step=0, training=True):
    with Tape(seed=seed, step=step, training=training):
        return dropout(Var(x, space), rate).value


def test_dropout_keeps_the_expected_share_and_scale():
    y = drop(np.ones((200, 50)))
    assert set(np.unique(y)) == {0.0, 1 / 0.6}
    assert abs((y > 0).mean() - 0.6) < 4 * (0.24 / y.size) ** 0.5


def test_dropout_depends_on_ids_not_on_rows():
    y = drop(np.ones((200, 3)))
    order = np.random.default_rng(1).permutation(200)[:70]
    assert np.array_equal(drop(np.ones((70, 3)), space=RowSpace(GID[order])), y[order])


def test_dropout_differs_by_seed_step_call_and_column():
    x = np.ones((200, 2))
    y = drop(x)
    assert not np.array_equal(y[:, 0], y[:, 1])
    assert not np.array_equal(y, drop(x, seed=2))
    assert not np.array_equal(y, drop(x, step=1))
    with Tape(seed=1):
        first = dropout(Var(x, SPACE), 0.4)
        second = dropout(Var(x, SPACE), 0.4)
    assert np.array_equal(first.value, y)
    assert not np.array_equal(second.value, y)


def test_dropout_of_wide_rows_equals_rows_one_by_one():
    x = np.ones((5, 40_000), np.float32)
    y = drop(x, space=RowSpace(GID[:5]))
    assert np.array_equal(y[3:4], drop(x[3:4], space=RowSpace(GID[3:4])))


def test_dropout_of_sparse_rows_equals_dense_at_stored_entries(rng):
    dense = (rng.normal(size=(200, 30)) * (rng.random((200, 30)) < 0.2)).astype(np.float32)
    sparse = drop(sp.csr_array(dense))
    assert isinstance(sparse, sp.csr_array)
    assert sparse.dtype == np.float32
    assert np.array_equal(sparse.toarray(), drop(dense))
    assert sparse.nnz == np.count_nonzero(drop(dense))


@pytest.mark.parametrize("rate", [1e-30, 1 - 1e-16, 0.999999, np.float32(0.1)])
@pytest.mark.parametrize("n", [200, 70_000])
def test_dropout_at_any_rate_below_one(rate, n):
    """Also where it is deferred: the kept elements are scaled, and there are about as many as
    expected.
    """
    y = drop(np.ones((n, 3)), rate, space=RowSpace(np.arange(n)))
    kept = 1 - float(rate)
    assert set(np.unique(y)) <= {0.0, 1 / kept}
    assert abs((y > 0).sum() - kept * y.size) <= 5 * (kept * (1 - kept) * y.size) ** 0.5 + 1e-9


@pytest.mark.parametrize("dtype", [bool, np.int8, np.int64])
def test_dropout_of_integers_gives_floats(dtype):
    x = np.ones((200, 3), dtype)
    assert np.array_equal(drop(x), drop(x.astype(float))) and drop(x).dtype == float
    assert drop(x, training=False).dtype == drop(x, 0.0).dtype == float


def test_dropout_does_nothing_in_evaluation_or_at_rate_zero():
    x = Var(np.ones((200, 3)), SPACE)
    with Tape(training=False):
        assert dropout(x, 0.5) is x
    with Tape():
        assert dropout(x, 0) is x
    assert dropout(x, 0.5) is x


def test_dropout_of_values_without_rows_is_the_same_everywhere():
    y = [drop(np.ones((3, 4)), space=None) for _ in range(2)]
    assert np.array_equal(*y)
    assert drop(np.ones(()), space=None).shape == ()


@pytest.mark.parametrize("rate", [-0.1, 1, 1.5, float("nan")])
def test_dropout_rate_outside_zero_to_one_is_refused(rate):
    with pytest.raises(ConfigError, match="dropout rate"):
        dropout(np.ones(3), rate)


def test_dropout_gradient_uses_the_same_mask(rng):
    check_vjp(lambda x: dropout(x, 0.5), Var(rng.normal(size=(200, 3)), SPACE, True))


def test_dropout_inside_gather_reads_edge_ids_and_the_key():
    with Tracer() as tracer:
        h = tracer.leaf("src", "h", (3,), np.float32)
        first = dropout(h, 0.4)
        second = dropout(h, 0.4)
        assert first is not second
        assert dropout(Parameter(np.ones((2, 3))), 0.4).rows is False
    assert [a.leaf for a in first.args] == [("src", "h"), ("edge", "gid"), ("key", "run")]
    assert [a.requires_grad for a in first.args] == [True, False, False]
    x = np.ones((200, 3), np.float32)
    forward = PRIMITIVES["dropout"].forward
    assert forward(x, GID, None, **first.static) is x
    assert not np.array_equal(
        forward(x, GID, 5, **first.static), forward(x, GID, np.array(5, np.uint64), **second.static)
    )
