"""grem on graphs with a core and no communities: cuts below those of degrees and METIS, balance,
independence of chunks.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.partition.edge_source import EdgeSource
from graphtheta.engine.partition.partitioner import assign
from graphtheta.partitioners.grem import degree_blocks
from graphtheta.partitioners.report import OneOf
from graphtheta.partitioners.stream import capacity
from graphtheta.partitioners.streaming.blocks import IdBlocks

SIZES = (2, 4, 8)
SLACK = 0.03


@cache
def core():
    return gt.load("rmat:scale=12,edge_factor=16", split="none")


@cache
def owners(size, options="", masters="grem", chunk=1 << 20):
    masters = f"grem:slack={SLACK}{options}" if masters == "grem" else masters
    return assign(EdgeSource(core(), chunk), OneOf(size), "1d-src", masters, 7)[0]


def cut(owner):
    return np.mean(owner[core().src] != owner[core().dst])


@pytest.mark.second
@pytest.mark.parametrize("size", SIZES)
def test_cuts_are_below_those_of_degrees_and_of_clusters(size):
    degree = np.bincount(np.concatenate((core().src, core().dst)), minlength=core().n_nodes)
    found = owners(size)
    blocks = degree_blocks(IdBlocks(SerialComm(), len(degree)), degree, size)
    assert cut(found) < min(cut(blocks), cut(owners(size, ",degrees=no")))
    assert np.bincount(found).max() <= capacity(core().n_nodes, size, SLACK)


@pytest.mark.parametrize("size", SIZES)
def test_cuts_are_at_most_about_those_of_metis(size):
    pytest.importorskip("pymetis")
    assert cut(owners(size)) <= 1.15 * cut(owners(size, masters="metis"))


def test_chunks_do_not_matter_and_repetitions_cut_no_more():
    for options in ("", ",cycles=2"):
        np.testing.assert_array_equal(owners(4, options), owners(4, options, chunk=5000))
    assert cut(owners(4, ",cycles=2")) <= cut(owners(4))


def test_blocks_by_degree():
    np.testing.assert_array_equal(
        degree_blocks(IdBlocks(SerialComm(), 7), np.array([0, 5, 2, 5, 0, 9, 1]), 3),
        [2, 0, 1, 0, 2, 0, 1],
    )
    assert len(degree_blocks(IdBlocks(SerialComm(), 0), np.zeros(0, np.int64), 3)) == 0
