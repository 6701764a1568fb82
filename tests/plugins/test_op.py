"""An operation of one's own has a gradient and gives the same numbers on any number of ranks."""

from __future__ import annotations

from plugins import op, training

import graphtheta as gt


def test_it_passes_the_checks():
    assert gt.check(op.LogCosh(4, 3)).gradients < 1e-6


def test_ranks_agree():
    training.assert_same(training.trained(op.Net, 1), training.trained(op.Net, 3))
