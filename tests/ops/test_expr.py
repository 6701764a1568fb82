import numpy as np
import pytest

from graphtheta.errors import MissingRuleError, ShapeError, UserFunctionError
from graphtheta.ops import PRIMITIVES, Parameter, RowSpace, Var, defvjp, exp, primitive
from graphtheta.ops.autodiff.expr import Tracer, build, keywords, tracing


def test_tracer_makes_equal_expressions_once():
    w = Parameter(np.ones(3, np.float32))
    with Tracer() as tracer:
        h = tracer.leaf("src", "h", (3,), np.float32)
        assert tracer.leaf("src", "h", (3,), np.float32) is h
        assert h * w is h * w
        assert h * w is not w * h
    assert tracer.operands == [w]


@pytest.mark.parametrize(
    ("first", "second"), [(2, 2.0), (1, True), (0.0, -0.0), ((1, 2), (1.0, 2)), ("1", 1)]
)
def test_keywords_are_equal_in_type_and_value(first, second):
    """Types of results depend on that of a keyword: i ** 2 is an integer and i ** 2.0 a float."""
    assert (
        keywords({"a": first, "b": 0})
        == keywords({"b": 0, "a": first})
        != keywords({"a": second, "b": 0})
    )
    assert keywords({"a": np.nan}) == keywords({"a": float("nan")})


def test_powers_of_integers_have_the_type_of_their_exponent():
    for exponents in ((2, 2.0), (2.0, 2)):
        with Tracer() as tracer:
            i = tracer.leaf("edge", "type", (), np.int64)
            kinds = [(i**e).dtype.kind for e in exponents]
        assert kinds == ["i" if isinstance(e, int) else "f" for e in exponents]


def test_tracer_knows_what_requires_a_gradient():
    with Tracer() as tracer:
        a = tracer.leaf("edge", "weight", (), np.float32, requires_grad=False)
        assert not (a * 2).requires_grad
        assert (a * Parameter(np.ones((), np.float32))).requires_grad


def test_tracer_computes_parameters_without_rows():
    with Tracer():
        e = exp(Parameter(np.ones((2, 3), np.float32)))
    assert (e.rows, e.dims, e.requires_grad) == (False, (2, 3), True)


def test_tracer_refuses_node_values_used_directly():
    with Tracer() as tracer, pytest.raises(UserFunctionError, match="one row per node directly"):
        tracer.leaf("src", "h", (3,), np.float64) * Var(np.ones((2, 3)), RowSpace(np.arange(2)))


def test_tracer_names_shapes_that_do_not_fit():
    with (
        Tracer() as tracer,
        pytest.raises(ShapeError, match=r"mul cannot take \[edges, 3\], \[edges, 2\]"),
    ):
        tracer.leaf("src", "h", (3,), np.float32) * tracer.leaf("dst", "h", (2,), np.float32)


def test_tracer_asks_for_missing_rules_at_once():
    if "test_no_edge_rule" not in PRIMITIVES:
        primitive("test_no_edge_rule")(lambda x, y: x + y)
        defvjp(PRIMITIVES["test_no_edge_rule"], x=None)
    with Tracer() as tracer:
        h = tracer.leaf("src", "h", (3,), np.float32)
        PRIMITIVES["test_no_edge_rule"](h, 1.0)
        with pytest.raises(MissingRuleError, match="argument 'y'"):
            PRIMITIVES["test_no_edge_rule"](h, h)


def test_expression_kept_outside_of_gather_is_refused():
    with Tracer() as tracer:
        h = tracer.leaf("src", "h", (3,), np.float32)
    assert not tracing()
    with pytest.raises(UserFunctionError, match="outside of gather"):
        exp(h)
    with pytest.raises(UserFunctionError, match="outside of gather"):
        build(PRIMITIVES["exp"], (h,), {})
