"""Modules that models are put together from: the cell of a GRU, and parts one after another."""

from __future__ import annotations

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.errors import ConfigError
from graphtheta.models import GCN
from graphtheta.ops import RowSpace, Tape, Var, dtype_scope

N = 5
SPACE = RowSpace(np.arange(N))


def expit(x):
    return 1 / (1 + np.exp(-x))


def filled(module, seed):
    rng = np.random.default_rng(seed)
    for p in module.parameters():
        p.value = rng.normal(size=p.shape)
    return module


def rows(seed, d):
    return Var(np.random.default_rng(seed).normal(size=(N, d)), SPACE, True)


def test_a_cell_is_the_equation_of_the_gru():
    with dtype_scope("float64"):
        cell = filled(gt.GRUCell(3, 4), 0)
    x = rows(1, 3)
    h = rows(2, 4)
    given = np.einsum("nd,dgo->ngo", x.value, cell.weight.value) + cell.bias.value
    before = np.einsum("nd,dgo->ngo", h.value, cell.recurrent.value)
    reset, keep = (expit(given[:, i] + before[:, i]) for i in range(2))
    new = np.tanh(given[:, 2] + reset * (before[:, 2] + cell.inner.value))
    with Tape():
        out = cell(x, h)
    np.testing.assert_allclose(out.value, (1 - keep) * new + keep * h.value, atol=1e-12)


def test_a_cell_has_the_gradients_of_differences():
    with dtype_scope("float64"):
        cell = filled(gt.GRUCell(2, 3), 3)
    x = rows(4, 2)
    h = rows(5, 3)
    y = np.random.default_rng(6).normal(size=(N, 3))
    gt.check_gradients(lambda: gt.ops.mean_squared_error(cell(x, h), y), [*cell.parameters(), x, h])


@pytest.mark.second
@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("float64", 1e-12)])
def test_a_cell_is_that_of_pytorch(dtype, tolerance):
    torch = pytest.importorskip("torch")
    theirs = torch.nn.GRUCell(3, 4).to(getattr(torch, dtype))
    cell = gt.from_torch(theirs)
    x, h = (np.random.default_rng(i).normal(size=(N, d)).astype(dtype) for i, d in ((1, 3), (2, 4)))
    with Tape():
        out = cell(Var(x, SPACE), Var(h, SPACE)).value
    expected = theirs(torch.tensor(x), torch.tensor(h)).detach().numpy()
    np.testing.assert_allclose(out, expected, atol=tolerance)


def test_parts_are_called_in_order():
    with dtype_scope("float64"):
        parts = filled(gt.Sequential(gt.Linear(3, 4), gt.tanh, lambda h: h * 2.0), 6)
    x = rows(7, 3)
    first = parts.parts[0]
    with Tape():
        out = parts(x)
    expected = np.tanh(x.value @ first.weight.value + first.bias.value) * 2
    np.testing.assert_allclose(out.value, expected, atol=1e-12)
    assert [p.name for p in parts.parameters()] == ["parts.0.weight", "parts.0.bias"]


class Stacked(gt.Model):
    def __init__(self, *parts):
        self.layers = gt.Sequential(*parts)

    def forward(self, graph):
        return self.layers(graph, graph.x)


def test_layers_and_parts_of_parts_are_given_the_graph():
    inner = gt.Sequential(GCN(4, 3), gt.relu)
    gt.check(Stacked(GCN(5, 4), gt.LayerNorm(4), inner, gt.Sequential(gt.Linear(3, 2))))


def test_what_cannot_be_a_part_is_refused():
    for parts, words in (
        ((), "there are no parts"),
        ((gt.relu, GCN), "part 2 is GCN"),
        ((Stacked(gt.relu),), "part 1 is Stacked"),
        ((3,), "part 1 is int"),
    ):
        with pytest.raises(ConfigError, match=words):
            gt.Sequential(*parts)
    with pytest.raises(ConfigError, match="GCN reads the graph"), Tape():
        gt.Sequential(GCN(3, 3))(rows(0, 3))
