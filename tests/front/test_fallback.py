"""Falling back to the reference back end is reported: in the log, in explain, in the report."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import graphs
import numpy as np
import pytest

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.layer import superstep
from graphtheta.train.loop.trainer import Trainer

pytestmark = pytest.mark.fused
MINE = """
import numpy as np

import graphtheta as gt


@gt.primitive("softsign")
def softsign(x):
    return x / (1 + np.abs(x))


gt.defvjp(softsign, x=lambda g, y, x: g / np.square(1 + np.abs(x)))


class Slow(gt.Layer):
    def __init__(self, d_in, d_out):
        self.w = gt.Parameter.glorot(d_in, d_out)

    def transform(self, node):
        return {"z": gt.matmul(node.h, self.w)}

    def gather(self, edge):
        return softsign(edge.src.z + edge.dst.z)


class Net(gt.Model):
    def __init__(self, d_in, d_out):
        self.layer = Slow(d_in, d_out)

    def forward(self, graph):
        return self.layer(graph, graph.x)
"""
REASON = (
    "Slow runs on the reference back end, which is many times slower than the fused one: its gather"
    " uses softsign, which has no compiled form"
)
TINY = ("--dataset", "sbm:n_nodes=60,n_edges=200,classes=3,features=4", "--epochs", "2")


@pytest.fixture(autouse=True)
def nothing_reported(monkeypatch):
    monkeypatch.setattr(superstep, "_REPORTED", set())


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE, encoding="utf-8")
    yield "mine.py:Net"
    gt.ops.PRIMITIVES.pop("softsign", None)


def test_it_is_logged_once(mine, caplog):
    with caplog.at_level(logging.WARNING, "graphtheta"):
        for _ in range(2):
            run_simulated(
                2,
                lambda comm: (
                    Trainer(mine, graphs.random_graph(), epochs=2, comm=comm).fit() and None
                ),
            )
    assert [record.message.startswith(REASON) for record in caplog.records] == [True]
    assert (
        "write it with the functions of gt, or compute it in transform" in caplog.records[0].message
    )


def test_it_is_not_logged_where_it_was_asked_for(mine, caplog):
    with caplog.at_level(logging.WARNING, "graphtheta"):
        trainer = Trainer(mine, graphs.random_graph(), epochs=1, backend="reference")
        trainer.fit()
    assert not caplog.records and not trainer.fallbacks


def test_integers_are_a_reason(caplog):
    class Typed(gt.Layer):
        def __init__(self, d_in, d_out):
            self.table = gt.Parameter.glorot(4, d_out)
            self.w = gt.Parameter.glorot(d_in, d_out)

        def transform(self, node):
            return {"z": gt.matmul(node.h, self.w)}

        def gather(self, edge):
            return gt.embedding(self.table, gt.cast(edge.weight, np.int16)) * edge.src.z

    class Net(gt.Model):
        def __init__(self, d_in, d_out):
            self.layer = Typed(d_in, d_out)

        def forward(self, graph):
            return self.layer(graph, graph.x)

    with caplog.at_level(logging.WARNING, "graphtheta"):
        Trainer(Net, graphs.random_graph(), epochs=1).fit()
    (record,) = caplog.records
    assert (
        "its gather computes cast in int16, and compiled gathers compute in float32 only"
        in record.message
    )


@pytest.mark.second
def test_it_is_printed_without_any_logging_set_up(mine):
    words = (
        f"import graphtheta as gt; gt.Trainer({mine!r}, gt.load('sbm:n_nodes=60,n_edges=200'),"
        " epochs=1).fit()"
    )
    done = subprocess.run(
        [sys.executable, "-c", words], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stderr.count(REASON) == 1


@pytest.mark.usefixtures("without_charts")
def test_explain_and_the_report_say_so(mine, capsys):
    assert main(["explain", "--model", mine, *TINY]) == 0
    assert (
        "back end reference, many times slower: its gather uses softsign, which has no compiled"
        " form" in capsys.readouterr().out
    )
    assert main(["train", "--model", mine, *TINY, "--out", "run"]) == 0
    assert json.loads(Path("run/profile.json").read_text())["fallbacks"][0].startswith(REASON)
    assert main(["report", "run"]) == 0
    assert REASON in Path("run/report.html").read_text()


def test_a_file_may_be_imported_twice(mine, monkeypatch):
    """As when a notebook cell runs again, or a file is imported and given as FILE.py:Class."""
    monkeypatch.syspath_prepend(".")
    module = __import__("mine")
    try:
        losses = [
            Trainer(model, graphs.random_graph()).train_epoch(0)
            for model in (mine, mine, module.Net)
        ]
        assert losses == [losses[0]] * 3
    finally:
        sys.modules.pop("mine")
