"""All operations against NumPy and finite differences, from one table: see ``table.py``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from table import KINKS, OTHERS, TABLE, VECTOR, Case, Rows, Whole

import graphtheta.ops as gt
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.graph.data.graph import Graph
from graphtheta.inspect.checking.forward import forward, gradients
from graphtheta.inspect.checking.gradients import check_vjp
from graphtheta.ops import Parameter, RowSpace, Tape, Var
from graphtheta.ops.autodiff import fusion
from graphtheta.ops.edge.backend import fused
from graphtheta.ops.functions import comparison

FLOATS = {"float32": 2e-5, "float64": 1e-12}
INTEGERS = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -2.5, 0.75])
# rows of which three numbers each are more than lazy fusion computes at once
MANY = 70_000
NAMES = list(TABLE)


def arrays(case: Case, n: int, dtype: str, seed: int = 0) -> list[np.ndarray]:
    """Arguments for n rows; floats of a type."""
    rng = np.random.default_rng(seed)
    made = [a.draw(rng, ((n,) if isinstance(a, Rows) else ()) + a.shape) for a in case.args]
    return [np.asarray(x, dtype if np.asarray(x).dtype.kind == "f" else None) for x in made]


def variables(case: Case, given: list[np.ndarray], space: RowSpace | None = None) -> list[Any]:
    """Row values and parameters, into which gradients flow if they are floats."""
    n = next((len(x) for x, a in zip(given, case.args, strict=True) if isinstance(a, Rows)), 0)
    space = space or RowSpace(np.arange(n) * 7)
    return [
        (
            Var(x, space, x.dtype.kind == "f")
            if isinstance(a, Rows)
            else Parameter(x)
            if x.dtype.kind == "f"
            else Var(x)
        )
        for x, a in zip(given, case.args, strict=True)
    ]


def expected(case: Case, given: list[np.ndarray]) -> np.ndarray:
    """What the twin gives, computed in float64."""
    wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in given]
    if case.aligned:
        axes = max(len(a.shape) for a in case.args)
        wide = [
            x.reshape(x.shape + (1,) * (axes + 1 - x.ndim)) if isinstance(a, Rows) and axes else x
            for x, a in zip(wide, case.args, strict=True)
        ]
    with np.errstate(all="ignore"):
        return np.asarray(case.twin(*wide))


def spoiled(given: list[np.ndarray]) -> list[np.ndarray]:
    """Arguments with infinity, NaN and both zeros in place of most floats."""
    rng = np.random.default_rng(0)
    return [
        (
            np.where(rng.random(x.shape) < 0.7, rng.choice(SPECIAL, x.shape), x)
            if x.dtype.kind == "f"
            else x
        )
        for x in given
    ]


def check(case: Case, made: Any, given: list[np.ndarray], tolerance: float) -> None:
    """The value is that of the twin, and infinite or NaN where that is."""
    want = expected(case, given)
    assert made.value.shape == want.shape
    np.testing.assert_allclose(made.value.astype(want.dtype), want, rtol=tolerance, atol=tolerance)


def test_every_operation_is_in_the_table():
    functions = {
        name
        for name in gt.__all__
        if not isinstance(getattr(gt, name), type) and callable(getattr(gt, name))
    }
    assert functions - OTHERS <= TABLE.keys(), "add an operation to table.py"
    # comparisons and functions of masks are operators alone
    assert all(hasattr(comparison, name) for name in TABLE.keys() - functions - {"unequal"})


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", NAMES)
def test_values(name, dtype):
    for k, case in enumerate(TABLE[name]):
        for n in (case.n,) if case.n else (0, 1, 5):
            given = arrays(case, n, dtype, k)
            space = RowSpace(np.arange(n) * 7)
            with Tape(training=False):
                made = case.ours(*variables(case, given, space))
            check(case, made, given, FLOATS[dtype])
            kind = {"masks": "bool"}.get(case.types, case.types)
            assert made.dtype == (kind if kind in (*INTEGERS, *FLOATS) else dtype), k
            assert made.dtype.kind == "f" or not made.needs_grad
            if case.gather and any(isinstance(a, Rows) for a in case.args):
                assert made.space is space


@pytest.mark.parametrize("name", [n for n in NAMES if any(c.slope for c in TABLE[n])])
def test_gradients(name):
    for k, case in enumerate(TABLE[name]):
        if case.slope and case.types != "float32":
            given = variables(case, arrays(case, case.n or 5, "float64", k))
            check_vjp(case.ours, *given)


@pytest.mark.parametrize("name", [n for n in NAMES if any(c.special for c in TABLE[n])])
def test_infinity_and_nan(name):
    for k, case in enumerate(TABLE[name]):
        if not case.special:
            continue
        given = spoiled(arrays(case, case.n or 40, "float64", k))
        with np.errstate(all="ignore"), Tape(training=False):
            check(case, case.ours(*variables(case, given)), given, 1e-12)


def large(name):
    """The cases of an operation with rows of three numbers, or the first one."""
    cases = [c for c in TABLE[name] if not c.n and isinstance(c.args[0], Rows)]
    return [c for c in cases if c.args[0].shape == (3,)] or cases[:1]


@pytest.mark.one_in(13)
@pytest.mark.parametrize("name", [n for n in NAMES if large(n)])
def test_many_rows(name, monkeypatch):
    """Values and gradients of rows that are deferred and divided among threads, NaN among them."""
    for k, case in enumerate(large(name)):
        given = arrays(case, MANY, "float64", k)
        if case.special:
            given = [
                x if isinstance(a, Whole) else y
                for x, y, a in zip(given, spoiled(given), case.args, strict=True)
            ]
        found = []
        for smallest in (fusion.SMALLEST, 1 << 60):
            monkeypatch.setattr(fusion, "SMALLEST", smallest)
            leaves = variables(case, given)
            with np.errstate(all="ignore"), Tape(training=name != "batch_norm") as tape:
                made = case.ours(*leaves)
                check(case, made, given, 1e-9)
                grads = tape.backward(made, np.ones(made.shape))
            found.append([grads.of(x) for x in leaves])
        for a, b in zip(*found, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.one_in(5, 3)
@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(
    "name", [n for n in NAMES if any(c.types not in ("floats", "masks") for c in TABLE[n])]
)
def test_integers_and_masks(name, dtype):
    """Types by NumPy's rule, and fractions in the float type of the pass."""
    for k, case in enumerate(TABLE[name]):
        if case.types in ("floats", "masks"):
            continue
        drawn = arrays(case, case.n or 5, "float64", k)
        rng = np.random.default_rng(k)
        given = [
            rng.integers(1, 4, x.shape).astype(dtype) if x.dtype.kind == "f" else x for x in drawn
        ]
        with np.errstate(all="ignore"), Tape(training=False) as tape:
            tape.dtype = np.dtype("float32")
            made = case.ours(*variables(case, given))
            counted = given
            if case.types == "float":
                # codes stay what they are
                counted = [
                    x.astype(np.float64) if d.dtype.kind == "f" else x
                    for d, x in zip(drawn, given, strict=True)
                ]
            elif case.types == "arithmetic":
                counted = [x.astype(np.int32) if x.dtype == bool else x for x in given]
            want = expected(case, counted)
        assert made.dtype == result_type(case, given, want), (k, made.dtype)
        np.testing.assert_allclose(made.value, want.astype(made.dtype), rtol=2e-6, err_msg=str(k))


def result_type(case: Case, given: list[np.ndarray], want: np.ndarray) -> Any:
    """The type of the result by the rule of a case; ``want`` is the twin's."""
    if case.types in ("arithmetic", "weak", "sum"):
        return want.dtype
    of = {
        "exact": "int64",
        "float": "float32",
        "same": given[0].dtype,
        "first": given[0].dtype,
        "branches": given[-1].dtype,
    }
    return of.get(case.types, case.types)


# ---- types


@pytest.mark.parametrize("first", INTEGERS)
def test_two_types(first):
    """NumPy's type of two integers or masks; where that is a float, the float type of the pass."""
    x = np.array([1, 0, 1]).astype(first)
    space = RowSpace(np.arange(3))
    for second in (*INTEGERS, "float32"):
        y = np.array([0, 1, 1]).astype(second)
        counted = [z.astype(np.int32) if first == second == "bool" else z for z in (x, y)]
        for ours, twin in ((gt.add, np.add), (gt.mul, np.multiply), (gt.maximum, np.maximum)):
            want = twin(*counted)
            with Tape() as tape:
                tape.dtype = np.dtype("float32")
                made = ours(Var(x, space), Var(y, space))
            assert made.dtype == (want.dtype if want.dtype.kind != "f" else "float32"), second
            np.testing.assert_array_equal(made.value, want)


@pytest.mark.parametrize("dtype", [d for d in INTEGERS if d != "bool"])
@pytest.mark.parametrize(
    "name", ["embedding", "typed_matmul", "pick", "softmax_cross_entropy", "mean_squared_error"]
)
def test_codes_of_any_integer_type(name, dtype):
    for k, case in enumerate(TABLE[name]):
        given = arrays(case, 5, "float64", k)
        found = []
        for kind in ("int64", dtype):
            leaves = variables(case, [x if x.dtype.kind == "f" else x.astype(kind) for x in given])
            with Tape() as tape:
                made = case.ours(*leaves)
            grads = tape.backward(made)
            found.append([made.value, *(grads.of(x) for x in leaves if x.dtype.kind == "f")])
        for a, b in zip(*found, strict=True):
            np.testing.assert_array_equal(a, b)


# ---- gradients where a function has none


@pytest.mark.parametrize("name", KINKS)
@pytest.mark.parametrize("rows", [False, True])
def test_kinks(name, rows):
    if rows and name in ("repeated index", "segment_max, NaN", "segment_min, NaN"):
        pytest.skip("it is called without rows")
    ours, _, points, slopes = KINKS[name]
    x = Var(np.array([points] if rows else points), RowSpace(np.arange(1)) if rows else None, True)
    with np.errstate(all="ignore"), Tape() as tape:
        out = ours(x)
        found = tape.backward(out).of(x)
    np.testing.assert_allclose(found.ravel(), slopes)


@pytest.mark.second
@pytest.mark.parametrize("name", [n for n, (_, twin, *_) in KINKS.items() if twin is not None])
def test_kinks_are_those_of_pytorch(name):
    torch = pytest.importorskip("torch")
    _, twin, points, slopes = KINKS[name]
    x = torch.tensor(points, dtype=torch.float64, requires_grad=True)
    twin(x).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), slopes)


# ---- the stages of a layer, on both back ends

STAGES = ("transform", "gather", "apply")
NODES = 12
# node v gets one message, on the edge that has the same columns
SENDERS, RECEIVERS = np.roll(np.arange(NODES), 1), np.random.default_rng(0).permutation(NODES)
IN_GATHER = [
    (name, k)
    for name in NAMES
    for k, c in enumerate(TABLE[name])
    if c.gather and any(isinstance(a, Rows) for a in c.args)
]


def stored(case: Case, dtype: str, seed: int) -> list[np.ndarray]:
    """Arguments that are columns of a graph, which are float32."""
    given = arrays(case, NODES, "float32", seed)
    return [x.astype(dtype) if x.dtype.kind == "f" else x for x in given]


class EachStage(Layer):
    """Cases computed in all three stages, each with parameters of its own; results side by side."""

    sum = "sum"

    def __init__(self, cases: list[Case], given: list[list[np.ndarray]], dtype: str):
        self.cases = cases
        self.given = given
        self.dtype = dtype
        self.learned = {
            stage: {
                f"{k}_{j}": Parameter(x if isinstance(a, Whole) else np.ones(a.shape, dtype))
                for k, c in enumerate(cases)
                for j, (a, x) in enumerate(zip(c.args, given[k], strict=True))
                if x.dtype.kind == "f"
            }
            for stage in STAGES
        }

    def spoil(self, rng: np.random.Generator) -> list[list[np.ndarray]]:
        """Multiply the rows of some arguments with special numbers; returns the products."""
        given = [list(x) for x in self.given]
        for k, case in enumerate(self.cases):
            for j, a in enumerate(case.args if case.special else ()):
                if isinstance(a, Rows) and f"{k}_{j}" in self.learned["gather"]:
                    factor = rng.choice(SPECIAL, a.shape).astype(self.dtype)
                    with np.errstate(all="ignore"):
                        given[k][j] = given[k][j] * factor
                    for stage in STAGES:
                        self.learned[stage][f"{k}_{j}"].value = factor
        return given

    def results(self, stage: str, columns: Any) -> Any:
        made = []
        for k, case in enumerate(self.cases):
            args = [self.argument(stage, columns, k, j) for j in range(len(case.args))]
            y = case.ours(*args)
            made.append(gt.flatten(y if y.dtype == self.dtype else gt.cast(y, self.dtype)))
        return gt.concat(made)

    def argument(self, stage: str, columns: Any, k: int, j: int) -> Any:
        a = self.cases[k].args[j]
        p = self.learned[stage].get(f"{k}_{j}")
        if isinstance(a, Whole):
            return self.given[k][j] if p is None else p
        x = gt.reshape(getattr(columns, f"c{k}_{j}"), *a.shape)
        # a graph keeps masks as integers
        return x * p if p is not None else x != 0 if self.given[k][j].dtype == bool else x

    def transform(self, node):
        return {"made": self.results("transform", node)}

    def gather(self, edge):
        return self.results("gather", edge)

    def apply(self, node, total):
        return gt.concat([node.made, total, self.results("apply", node)])


class OneLayer(Model):
    def __init__(self, layer):
        self.layer = layer

    def forward(self, graph):
        return self.layer(graph, graph.x)


def in_stages(
    cases: list[Case],
    given: list[list[np.ndarray]],
    dtype: str,
    odd: np.random.Generator | None = None,
) -> None:
    """Values of all stages are those of the twins, and the stages agree on all gradients.

    Args:
        odd: Draws infinity, NaN and 0, with which arguments are multiplied; values alone are
            compared then.
    """
    columns = {
        f"c{k}_{j}": x.reshape(NODES, -1) if x.ndim > 1 else x
        for k, c in enumerate(cases)
        for j, (a, x) in enumerate(zip(c.args, given[k], strict=True))
        if isinstance(a, Rows)
    }
    graph = Graph(
        np.stack((SENDERS, RECEIVERS)),
        NODES,
        x=np.ones((NODES, 1)),
        y=np.zeros(NODES),
        train=np.ones(NODES, bool),
        node_columns=columns,
        edge_columns={name: x[RECEIVERS] for name, x in columns.items()},
    )
    model = OneLayer(EachStage(cases, given, dtype))
    if odd is not None:
        given = model.layer.spoil(odd)
    want = [expected(c, x) for c, x in zip(cases, given, strict=True)]
    want = np.concatenate([x.reshape(NODES, -1).astype(dtype) for x in want], axis=1)
    np.testing.assert_allclose(
        forward(model, graph), np.tile(want, 3), rtol=FLOATS[dtype], atol=FLOATS[dtype]
    )
    if odd is not None:
        return
    weights = np.tile(np.linspace(-1, 1, want.shape[1], dtype=dtype), 3)
    _, found = gradients(lambda out: gt.sum(out * weights), model, graph)
    for name in (n for n in found if STAGES[0] in n):
        for stage in STAGES[1:]:
            other = found[name.replace(STAGES[0], stage)]
            np.testing.assert_allclose(
                other, found[name], rtol=10 * FLOATS[dtype], atol=10 * FLOATS[dtype], err_msg=name
            )


@pytest.mark.one_in(3)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", dict(IN_GATHER))
def test_stages(name, dtype):
    cases = [TABLE[name][k] for n, k in IN_GATHER if n == name]
    in_stages(cases, [stored(c, dtype, k) for k, c in enumerate(cases)], dtype)


def of_kernels() -> list[Case]:
    """One case of each operation that gather may use, of vectors where it takes them."""
    found = []
    for name in dict(IN_GATHER):
        cases = [TABLE[n][k] for n, k in IN_GATHER if n == name]
        vectors = [c for c in cases if c.args[0] == VECTOR]
        # the cases of a cast are those to other types, which kernels do not have
        found += [] if name == "cast" else (vectors or cases)[:1]
    return found


# so many operations in one kernel, since each takes a second to compile
GROUP = 12


@pytest.mark.second
@pytest.mark.fused
@pytest.mark.parametrize("part", range(-(-len(of_kernels()) // GROUP)))
def test_stages_in_kernels(part, monkeypatch):
    """Values and gradients, and infinity and NaN, by compiled loops."""
    usable = fused.usable

    def used(phase):
        assert usable(phase), fused.obstacle(phase)
        return True

    monkeypatch.setattr(fused, "usable", used)
    cases = of_kernels()[part * GROUP : (part + 1) * GROUP]
    given = [stored(c, "float32", k) for k, c in enumerate(cases)]
    in_stages(cases, given, "float32")
    for seed in range(4):
        in_stages(cases, given, "float32", odd=np.random.default_rng(seed))


# ---- sums over very many rows

MILLIONS = 2_000_000
SUMS = {
    "add": lambda x, p, i: x + p,
    "mul": lambda x, p, i: (x + 1) * p,
    "where": lambda x, p, i: gt.where(i == 2, x, p),
    "concat": lambda x, p, i: gt.concat([x, p])[..., 2:],
    "power": lambda x, p, i: (x + np.e) ** p / np.e,
    "embedding": lambda x, p, i: gt.embedding(gt.stack([p, p], -2), i),
    "matmul": lambda x, p, i: (x + 1)[..., :1] @ gt.reshape(p, 1, 2),
    "sparse": lambda x, p, i: Var(one_entry(len(i.value)), x.space) @ gt.reshape(p, 1, 2),
}


def one_entry(n):
    """Sparse rows of one column of ones."""
    return csr_array((np.ones(n, np.float32), np.zeros(n, np.int64), np.arange(n + 1)))


@pytest.fixture(scope="module")
def very_many():
    """Rows of zeros, numbers 0 and 1, and a gradient of 0.1, in single precision."""
    space = RowSpace(np.arange(MILLIONS))
    x = Var(np.zeros((MILLIONS, 2), np.float32), space)
    slope = np.full((MILLIONS, 2), 0.1, np.float32)
    return x, Var(np.arange(MILLIONS) % 2, space), slope


@pytest.mark.one_in(9)
@pytest.mark.parametrize("name", SUMS)
def test_gradients_of_what_millions_of_rows_share(name, very_many):
    x, i, slope = very_many
    p = Parameter(np.ones(2, np.float32))
    with Tape() as tape:
        out = SUMS[name](x, p, i)
    np.testing.assert_allclose(tape.backward(out, slope).of(p), 0.1 * MILLIONS, rtol=1e-5)


def test_sums_of_millions_of_rows(very_many):
    _, i, slope = very_many
    x = Var(slope, i.space)
    bounds = np.array([0, 3, MILLIONS])
    np.testing.assert_allclose(gt.graph_sum(x).value, 0.1 * MILLIONS, rtol=1e-5)
    np.testing.assert_allclose(gt.graph_mean(x).value, 0.1, rtol=1e-5)
    np.testing.assert_allclose(gt.sum(Var(slope), 0).value, 0.1 * MILLIONS, rtol=1e-5)
    np.testing.assert_allclose(gt.segment_sum(slope, bounds)[1], 0.1 * MILLIONS, rtol=1e-5)
    np.testing.assert_allclose(gt.segment_mean(slope, bounds)[1], 0.1, rtol=1e-5)
    np.testing.assert_allclose(gt.graph_sum(i == 1).value, MILLIONS // 2)
