"""An operation with a scalar form runs in compiled gathers and in lazy fusion, with the meaning of
its NumPy function.
"""

from __future__ import annotations

import numpy as np
import pytest
from plugins import fused_edge_operator as plugin
from plugins import training

import graphtheta as gt
from graphtheta.errors import UserFunctionError
from graphtheta.ops import RowSpace, Tape, Var
from graphtheta.ops.autodiff import fusion
from graphtheta.ops.edge.backend.fused import backend_scope

pytestmark = pytest.mark.fused


def test_it_passes_the_checks():
    report = gt.check(plugin.Gated(4, 3))
    assert report.gradients < 1e-6 and report.backends < 1e-9 and not report.notes


@pytest.mark.parametrize("keys", training.STRATEGIES, ids=lambda keys: keys["strategy"])
def test_it_is_fused_and_ranks_agree(keys):
    one, three = (training.trained(plugin.Net, ranks, **keys) for ranks in (1, 3))
    assert one[2] == three[2] == []
    training.assert_same(one, three)
    with backend_scope("reference"):
        training.assert_same(one, training.trained(plugin.Net, 1, backend="reference", **keys))


def test_lazy_fusion_runs_it(monkeypatch):
    x = np.random.default_rng(0).standard_normal((50, 4))
    found = []
    for smallest in (1 << 40, 0):
        monkeypatch.setattr(fusion, "SMALLEST", smallest)
        given = Var(x, RowSpace(np.arange(50)), True)
        with Tape() as tape:
            out = plugin.softsign(given * 2.0) + plugin.swish(given, beta=1.5)
            assert isinstance(out, fusion.Deferred) == (smallest == 0)
            found.append((out.value, tape.backward(out, np.ones_like(x)).of(given)))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize(
    "value, grads, message",
    [
        ("{0} / (1 + absolute({0}))", ("{g}",), "holds 1; write it with"),
        ("{0} ** {0}", ("{g}",), r"holds \{0\} \*\* \{0\}; write"),
        ("tan({0})", ("{g}",), "calls tan, which kernels do not support; they support absolute, "),
        ("{1}", ("{g}",), r"reads \{1\}; it may read \{0\}"),
        ("{y}", ("{g}",), r"reads \{y\}; it may read \{0\}"),
        ("{0} +", ("{g}",), "is not an expression over"),
        ("{0}", ("{z}",), r"reads \{z\}; it may read"),
        ("{0} if {0} else {0}", ("{g}",), "holds"),
        ("np.sin({0})", ("{g}",), "holds"),
        ("other", ("{g}",), "holds other;"),
        ("{0} * T({0})", ("{g}",), r"holds T\(\{0\}\);"),
        ("{0}", ("g * {0}",), "holds g;"),
    ],
)
def test_a_form_that_kernels_cannot_run_is_refused(value, grads, message):
    with pytest.raises(UserFunctionError, match=message):
        gt.Scalar(value, grads)


def test_a_form_needs_a_gradient_text_for_each_argument():
    with pytest.raises(
        UserFunctionError, match=r"has 1 gradient texts for the arguments x, y; give one for each"
    ):
        gt.primitive("test_two", scalar=gt.Scalar("{0}", ("{g}",)))(lambda x, y: x)
