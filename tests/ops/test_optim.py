import numpy as np
import pytest

from graphtheta.errors import ConfigError, FormatError, ShapeError
from graphtheta.ops import SGD, Adam, AdamW, Parameter, RMSprop
from graphtheta.ops.optimisers.optim import COMPILED
from graphtheta.ops.parallel.buffers import BLOCK

MAKERS = {
    "sgd_momentum": lambda p: SGD(p, 0.1, momentum=0.9, weight_decay=0.01),
    "sgd_nesterov": lambda p: SGD(p, 0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: Adam(p, 0.05, weight_decay=0.01),
    "adamw": lambda p: AdamW(p, 0.05, weight_decay=0.1),
}
RMS = {
    "plain": {},
    "decay": {"weight_decay": 0.02, "alpha": 0.9},
    "momentum": {"momentum": 0.8},
    "centered": {"centered": True, "eps": 1e-4},
    "all": {"momentum": 0.9, "centered": True, "weight_decay": 0.1, "alpha": 0.5},
}


@pytest.mark.second
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", RMS)
def test_rmsprop_agrees_with_pytorch(rng, name, dtype):
    torch = pytest.importorskip("torch")
    start = rng.normal(size=(3, 4)).astype(dtype)
    theirs = torch.tensor(start, requires_grad=True)
    reference = torch.optim.RMSprop([theirs], 0.05, **RMS[name])
    p = Parameter(start)
    ours = RMSprop([p], 0.05, **RMS[name])
    for g in rng.normal(size=(8, 3, 4)).astype(dtype):
        theirs.grad = torch.tensor(g)
        reference.step()
        ours.step([g])
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(p.value, theirs.detach().numpy(), rtol=0, atol=tolerance)


def test_rmsprop_of_equal_gradients_stays_finite():
    """Their deviation is a difference of equal numbers, which may round below 0."""
    p = Parameter(np.full(50, 0.1, np.float32))
    optimiser = RMSprop([p], 1e-3, centered=True)
    for _ in range(3000):
        optimiser.step([np.linspace(0.1, 0.7, 50, dtype=np.float32)])
    assert np.isfinite(p.value).all()


@pytest.mark.parametrize("name", MAKERS)
def test_optimiser_agrees_with_pytorch(golden, name):
    ref = golden("optimisers")
    p = Parameter(ref["start"])
    optimiser = MAKERS[name]([p])
    for g, expected in zip(ref["grads"], ref[name], strict=True):
        optimiser.step([g])
        assert np.allclose(p.value, expected, rtol=0, atol=1e-10)


RESUMED = {
    **MAKERS,
    **{f"rmsprop {n}": lambda p, keys=keys: RMSprop(p, 0.05, **keys) for n, keys in RMS.items()},
}


@pytest.mark.parametrize("name", RESUMED)
def test_optimiser_resumed_goes_on_as_if_never_stopped(rng, name):
    start = rng.normal(size=(2, 3))
    grads = rng.normal(size=(6, 2, 3))
    p = Parameter(start, name="w")
    q = Parameter(start, name="w")
    whole = RESUMED[name]([p])
    first = RESUMED[name]([q])
    for i, g in enumerate(grads):
        if i == 3:
            state = first.state()
            first = RESUMED[name]([q])
            first.load_state(state)
        whole.step([g])
        first.step([g])
    assert np.array_equal(p.value, q.value)


@pytest.mark.parametrize("make", [lambda p: SGD(p, 0.1), *RESUMED.values()])
def test_optimiser_keeps_old_versions_and_types(make):
    p = Parameter(np.ones((2, 2), np.float32))
    old = p.value
    optimiser = make([p])
    optimiser.step([np.ones((2, 2), np.float32)], np.float64(0.5))
    assert np.array_equal(old, np.ones((2, 2)))
    assert p.dtype == np.float32
    assert not np.array_equal(p.value, old)


def test_optimiser_decay_is_scaled_per_parameter():
    parameters = [Parameter(np.ones(1), decay=d, name=str(d)) for d in (0, 0.5, True)]
    SGD(parameters, 0.1, weight_decay=0.2).step([np.zeros(1)] * 3)
    assert np.allclose([p.value[0] for p in parameters], [1, 0.99, 0.98])


def test_optimiser_state_is_named_and_checked():
    p = Parameter(np.ones(2), name="layers.0.weight")
    optimiser = Adam([p], 0.1)
    state = optimiser.state()
    assert set(state) == {"steps", "mean/layers.0.weight", "square/layers.0.weight"}
    with pytest.raises(FormatError, match="missing entries: mean/layers"):
        optimiser.load_state({k: v for k, v in state.items() if not k.startswith("mean")})
    with pytest.raises(FormatError, match="unknown entries: momentum"):
        optimiser.load_state({**state, "momentum/w": np.ones(2)})
    with pytest.raises(FormatError, match=r"is float32\[2\], expected float64\[2\]"):
        optimiser.load_state({**state, "mean/layers.0.weight": np.ones(2, np.float32)})


def test_optimiser_refuses_what_does_not_fit():
    p = Parameter(np.ones(2), name="w")
    with pytest.raises(ShapeError, match=r"gradient of w has shape \[3\], the parameter \[2\]"):
        SGD([p], 0.1).step([np.ones(3)])
    with pytest.raises(ShapeError, match="0 gradients were given for 1"):
        SGD([p], 0.1).step([])
    with pytest.raises(ConfigError, match="the same name: w"):
        SGD([p, Parameter(np.ones(1), name="w")], 0.1)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: SGD(p, -1),
        lambda p: SGD(p, 0.1, momentum=1),
        lambda p: SGD(p, 0.1, nesterov=True),
        lambda p: Adam(p, float("nan")),
        lambda p: Adam(p, 0.1, betas=(1, 0.9)),
        lambda p: AdamW(p, 0.1, eps=0),
        lambda p: RMSprop(p, 0.1, alpha=1),
        lambda p: RMSprop(p, 0.1, momentum=-0.1),
        lambda p: Adam(p, 0.1, weight_decay=-1),
    ],
)
def test_optimiser_refuses_settings_out_of_range(make):
    with pytest.raises(ConfigError):
        make([Parameter(np.ones(2))])


@pytest.mark.one_in(4)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("make", [Adam, AdamW])
def test_large_parameters_move_as_small_ones_do(rng, make, dtype):
    """In one compiled pass, with the same numbers; a transposed gradient takes several."""
    n = BLOCK + 70
    pieces = 2 * BLOCK // COMPILED
    value = rng.normal(size=n).astype(dtype)
    old = rng.normal(size=(3, n)).astype(dtype)
    large = make([Parameter(value)], lr=0.1, weight_decay=0.3)
    parts = make(
        [Parameter(part, name=str(i)) for i, part in enumerate(np.array_split(value, pieces))],
        lr=0.1,
        weight_decay=0.3,
    )
    across = make([Parameter(value.reshape(-1, 11))], lr=0.1, weight_decay=0.3)
    for g in old:
        before = large.parameters[0].value
        kept = large.parameters[0].value.copy()
        large.step([g])
        parts.step(np.array_split(g, pieces))
        across.step([np.asfortranarray(g.reshape(-1, 11))])
        assert np.array_equal(before, kept) and large.parameters[0].value.dtype == dtype
    tolerance = (
        {"rtol": 1e-6, "atol": 1e-6} if dtype == "float32" else {"rtol": 1e-13, "atol": 1e-13}
    )
    np.testing.assert_allclose(
        np.concatenate([p.value for p in parts.parameters]), large.parameters[0].value, **tolerance
    )
    np.testing.assert_allclose(
        across.parameters[0].value.ravel(), large.parameters[0].value, **tolerance
    )
    for slot in ("mean", "square"):
        joined = np.concatenate([parts.state()[f"{slot}/{i}"] for i in range(pieces)])
        np.testing.assert_allclose(joined, large.state()[f"{slot}/0"], **tolerance)


NUMBER = np.float64
OF_NUMPY = {
    "sgd": lambda p: SGD(p, NUMBER(0.1), NUMBER(0.01), momentum=NUMBER(0.9)),
    "adam": lambda p: Adam(p, NUMBER(0.1), betas=(NUMBER(0.9), NUMBER(0.99)), eps=NUMBER(1e-8)),
    "rmsprop": lambda p: RMSprop(p, 0.1, alpha=NUMBER(0.9), momentum=NUMBER(0.5), centered=True),
}


@pytest.mark.parametrize("n", [3, COMPILED])
@pytest.mark.parametrize("name", OF_NUMPY)
def test_numbers_of_numpy_and_wider_gradients_change_no_type(name, n):
    """A slot of another type than its parameter could not be loaded."""
    p = Parameter(np.ones(n, np.float32))
    optimiser = OF_NUMPY[name]([p])
    for g in (np.ones(n, np.float32), np.ones(n), [1.0] * n):
        optimiser.step([g], NUMBER(0.5))
    state = optimiser.state()
    assert {p.dtype, *(x.dtype for slot, x in state.items() if slot != "steps")} == {
        np.dtype(np.float32)
    }
    OF_NUMPY[name]([Parameter(np.ones(n, np.float32))]).load_state(state)
