"""Decoders of triples and losses of links, against the formulas of the papers."""

from __future__ import annotations

from functools import partial
from typing import get_args

import numpy as np
import pytest
from graphs import fill

import graphtheta as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.partition.partition import build_partition
from graphtheta.engine.strategy.strategy import whole
from graphtheta.engine.strategy.task import Seeds
from graphtheta.engine.view.scored_pairs import PairPlan, ScoredPairs
from graphtheta.errors import ConfigError
from graphtheta.inspect.checking.gradients import check_gradients
from graphtheta.models.triples import TRIPLE_DECODERS, ComplEx, DistMult, RotatE, TransE
from graphtheta.ops import dtype_scope
from graphtheta.ops.autodiff.init import init_scope
from graphtheta.ops.autodiff.space import RowSpace
from graphtheta.ops.autodiff.tape import Tape, Var
from graphtheta.ops.functions.losses.link_loss import LINK_LOSSES, adversarial_loss, softmax_loss
from graphtheta.ops.functions.losses.loss import mean_squared_error
from graphtheta.ops.functions.losses.row_loss import RowLoss
from graphtheta.run.job.keys import FIELDS

N = 12
WIDTH = 6
RELATIONS = 4
RNG = np.random.default_rng(0)
HEAD, TAIL, RELATION = RNG.integers(0, N, (3, 40)) % np.array([[N], [N], [RELATIONS]])
GRAPH = fill(HEAD, TAIL, N).replace(
    x=RNG.standard_normal((N, WIDTH)), edge_columns={"relation": RELATION}
)


def halves(x: np.ndarray) -> np.ndarray:
    return x[..., : WIDTH // 2] + 1j * x[..., WIDTH // 2 :]


def by_formula(made, h, t):
    if isinstance(made, DistMult):
        return np.einsum("ni,ni,ni->n", h, made.relation.value[RELATION], t)
    if isinstance(made, TransE):
        off = h + made.relation.value[RELATION] - t
        return made.margin - np.linalg.norm(off, made.norm, axis=1)
    if isinstance(made, ComplEx):
        r = made.real.value[RELATION] + 1j * made.imaginary.value[RELATION]
        return np.real(np.sum(halves(h) * r * np.conj(halves(t)), axis=1))
    return made.margin - np.abs(
        halves(h) * np.exp(1j * made.phase.value[RELATION]) - halves(t)
    ).sum(axis=1)


class Scorer(gt.Model):
    def __init__(self, decoder):
        self.decoder = decoder
        self.scale = gt.Parameter(np.ones(WIDTH))

    def forward(self, graph):
        return self.decoder(graph, graph.x * self.scale)


@pytest.mark.parametrize(
    "make",
    [DistMult, TransE, lambda w, r: TransE(w, r, margin=2, norm=2), ComplEx, RotatE],
    ids=["distmult", "transe", "transe 2", "complex", "rotate"],
)
def test_scores_and_gradients_are_those_of_the_papers(make):
    def program(comm, check):
        part = build_partition(GRAPH, comm, "vertex-cut", dtype=np.float64)
        own = np.arange(comm.rank, len(HEAD), comm.size)
        pairs = ScoredPairs(
            src=HEAD[own],
            dst=TAIL[own],
            gid=own,
            stored=None,
            label=np.zeros(len(own)),
            columns={"relation": RELATION[own].astype(np.int32)},
        )
        plan = PairPlan(part, pairs)
        view = whole(part, [], Seeds(plan.needed, plan))
        with dtype_scope("float64"), init_scope(3):
            model = Scorer(make(WIDTH, RELATIONS))
        with Tape(record=False, all_sum=comm.all_sum):
            out = model(view).value
        wanted = by_formula(
            model.decoder, *(GRAPH.x[end].astype(np.float64) for end in (HEAD, TAIL))
        )
        np.testing.assert_allclose(out, wanted[own][view.pairs.order], rtol=1e-12, atol=1e-12)
        if check:
            check_gradients(
                lambda: mean_squared_error(model(view), np.zeros(len(own))), model.parameters()
            )
        return len(out)

    assert run_simulated(1, program, True) == [40]
    assert run_simulated(2, program, False) == [20, 20]


def test_equal_ends_have_a_gradient():
    part = build_partition(GRAPH.replace(x=np.zeros((N, WIDTH))), SerialComm(), dtype=np.float64)
    plan = PairPlan(
        part,
        ScoredPairs(
            src=HEAD,
            dst=TAIL,
            gid=np.arange(40),
            stored=None,
            label=np.zeros(40),
            columns={"relation": RELATION.astype(np.int32)},
        ),
    )
    with dtype_scope("float64"):
        model = Scorer(RotatE(WIDTH, RELATIONS))
    with Tape() as tape:
        loss = mean_squared_error(model(whole(part, [], Seeds(plan.needed, plan))), np.zeros(40))
    grads = tape.backward(loss)
    assert all(np.isfinite(grads.of(p)).all() for p in model.parameters())


@pytest.mark.parametrize("make", [ComplEx, RotatE])
def test_complex_numbers_need_an_even_width(make):
    with pytest.raises(ConfigError, match="width is 5, give an even one"):
        make(5, 2)
    with pytest.raises(ConfigError, match="norm is 3"):
        TransE(5, 2, norm=3)


@pytest.mark.parametrize("temperature", [1.0, 0.5, 0.0])
def test_losses_are_those_of_the_papers(temperature):
    out = RNG.standard_normal((7, 5))
    y = np.tile([1.0, 0, 0, 0, 0], (7, 1))
    weights = np.exp(temperature * out[:, 1:]) / np.exp(temperature * out[:, 1:]).sum(
        axis=1, keepdims=True
    )
    adversarial = partial(adversarial_loss, temperature=temperature)
    log_sigmoid = lambda x: -np.log1p(np.exp(-x))
    wanted = {
        softmax_loss: -np.log(np.exp(out[:, 0]) / np.exp(out).sum(axis=1)),
        adversarial: (
            -(log_sigmoid(out[:, 0]) + (weights * log_sigmoid(-out[:, 1:])).sum(axis=1)) / 2
        ),
    }
    for loss, values in wanted.items():
        x = Var(out, RowSpace(np.arange(7), "edge"), needs_grad=True)
        with Tape() as tape:
            found = RowLoss(loss)(x, y, None)
        np.testing.assert_allclose(found.value, values.mean(), rtol=1e-12)
        at = tape.backward(found).of(x)
        if loss is softmax_loss:
            np.testing.assert_allclose(
                at, (np.exp(out) / np.exp(out).sum(axis=1, keepdims=True) - y) / 7, rtol=1e-10
            )
        else:
            slope = np.concatenate(
                (-1 / (1 + np.exp(out[:, :1])), weights / (1 + np.exp(-out[:, 1:]))), axis=1
            )
            np.testing.assert_allclose(at, slope / 14, rtol=1e-10)


def test_the_names_of_jobs_are_those_of_the_decoders():
    assert list(TRIPLE_DECODERS.values()) == [DistMult, TransE, ComplEx, RotatE]
    assert {"auto", "dot", "hadamard", *TRIPLE_DECODERS} == set(
        get_args(FIELDS["decoder"].annotation)
    )
    assert set(LINK_LOSSES) == set(get_args(FIELDS["link_loss"].annotation))
