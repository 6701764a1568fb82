"""Jobs on many simulated workers: counts equal to the ledgers', times from counts, what limits, and
the command.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import graphs
import numpy as np
import pytest

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.base.costs import POST
from graphtheta.cli.plan import plan
from graphtheta.cli.simulate import simulate
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError
from graphtheta.inspect.planning.machine import Machine, write
from graphtheta.inspect.planning.skeleton import skeleton
from graphtheta.inspect.planning.work import PARTS, Load
from graphtheta.inspect.simulation.cluster import Cluster
from graphtheta.inspect.simulation.report import by_way, report
from graphtheta.inspect.simulation.simulate import simulated

pytestmark = [pytest.mark.reference, pytest.mark.usefixtures("settled")]

GRAPH = graphs.random_graph(40, 160)
SPEED = Machine(
    seconds=(1e-11, 1e-10, *[3e-10] * 3, 1e-10, 1e-9, 1e-8, 2e-4, 1e-6, 2e-4, 1e-4, 1e-4, 2e-4),
    crowded=1.5,
    wake=1e-4,
    together=(1.2, 1.1),
    message=1e-4,
    collective=2e-5,
    latency=1e-5,
    byte=4e-10,
    wire=3e-10,
    cores=2,
    error=0.1,
)
CLUSTER = Cluster.of(SPEED, 1e-5, 1e9)
JOBS: dict[str, dict[str, Any]] = {
    "global": {},
    "mini": {"batch_size": 4},
    "cluster": {"clusters": 5},
}


def job_of(strategy: str, **keys: Any) -> gt.Job:
    return gt.Job(
        backend="reference",
        hidden=6,
        seed=3,
        model="gcn",
        strategy=strategy,
        **JOBS[strategy],
        **keys,
    )


@pytest.mark.one_in(3)
@pytest.mark.parametrize("strategy", JOBS)
def test_counts_on_eight_workers_are_those_of_the_ledgers(strategy: str) -> None:
    job = job_of(strategy, partitioner="vertex-cut")
    (point,) = simulated(skeleton(job, GRAPH), [job], [8], CLUSTER, ["cooperative"], views=10_000)

    def epoch(comm: Comm) -> tuple[int, int]:
        one = gt.Trainer(graph=GRAPH, comm=comm, job=job)
        before = comm.ledger.snapshot()
        one.train_epoch(0)
        since = comm.ledger.since(before)
        return since["move"]["bytes"], since["reduce"]["bytes"]

    moved, summed = np.sum(run_simulated(8, epoch), axis=0)
    assert (point.row.moved, point.row.summed) == (
        moved,
        summed,
    ) and point.row.counted == point.row.views
    assert point.row.loads["bytes"][1] == pytest.approx((moved + summed) / 8 / point.row.views)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("mode", ["cooperative", "independent"])
def test_loads_of_workers(mode: str) -> None:
    job = job_of("mini", partitioner="vertex-cut")
    one, few = (
        simulated(skeleton(job, GRAPH), [job], [p], CLUSTER, [mode], views=10_000)[0].row.loads
        for p in (1, 3)
    )
    for name in ("rows", "edges", "flops"):
        (whole, same), (most, mean) = one[name], few[name]
        assert whole == same > 0
        # workers of one view share it, and others have views of their own
        assert (
            mean == pytest.approx(whole / (1 if mode == "independent" else 3))
            and mean <= most <= whole
        )
    assert one["bytes"] == one["messages"] == (0, 0) and few["bytes"][0] >= few["bytes"][1] > 0


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("mode", "macrobatch"), [("cooperative", "1"), ("independent", "1"), ("independent", "2")]
)
def test_what_more_workers_send_to_make_views_is_estimated(mode: str, macrobatch: str) -> None:
    job = job_of("mini", macrobatch=macrobatch)
    held = skeleton(job, GRAPH)
    exact, estimated = (
        simulated(held, [job], [6], CLUSTER, [mode], views=10_000, rehearsed=n)[0].row
        for n in (0, 3)
    )
    assert estimated.moved == exact.moved and 0.5 * exact.built < estimated.built < 2 * exact.built
    # 6 independent workers have half as many groups of views as 3
    assert 0.7 * exact.messages < estimated.messages < 1.3 * exact.messages


def test_time_of_messages_bytes_and_slow_workers() -> None:
    sent = np.array([2_000, 6_000, 1_000, 0])
    messages = np.array([6, 6, 3, 0])
    alone = CLUSTER.transfer(sent, messages, 1)
    # bytes are packed and unpacked besides
    packed = 6_000 * (SPEED.byte - SPEED.wire)
    assert alone == pytest.approx(6_000 / 1e9 + packed + 2 * (SPEED.message + 1e-5) + 6 * POST)
    assert replace(CLUSTER, congestion=3.0).transfer(sent, 0 * messages, 1) == pytest.approx(
        3 * 6_000 / 1e9 + packed
    )
    assert CLUSTER.transfer(sent, messages, 1, counted=True) == pytest.approx(
        alone - 2 * SPEED.message - packed
    )
    assert CLUSTER.transfer(sent, messages, 1, 3) == pytest.approx(
        alone + 3 * (SPEED.collective + 2 * (1e-5 + POST))
    )
    # workers of a machine share its link
    assert CLUSTER.transfer(sent, 0 * messages, 2) == pytest.approx(2 * 6_000 / 1e9 + packed)
    work = np.ones((3, 2, len(PARTS)))
    work[1] *= 2
    load = Load(work, np.zeros((3, 2)), np.ones(2))
    fair = CLUSTER.compute(load, 1)
    slow = replace(CLUSTER, slowest=1.5).compute(load, 1)
    np.testing.assert_allclose(slow / fair, [1, 1.5, 1])


@pytest.mark.second
def test_parts_add_up_to_the_time_and_the_largest_limits() -> None:
    job = job_of("mini")
    points = simulated(
        skeleton(job, GRAPH), [job], [1, 2, 4], CLUSTER, ["cooperative", "independent"]
    )
    for point in points:
        assert sum(point.parts.values()) == pytest.approx(point.row.seconds) and all(
            s >= 0 for s in point.parts.values()
        )
        assert point.parts[point.limit] == max(point.parts.values())
    slow = simulated(
        skeleton(job, GRAPH), [job], [4], replace(CLUSTER, bandwidth=1e3), ["cooperative"]
    )[0]
    # views have to be made too, over the same links
    assert slow.limit in ("bytes", "views") and slow.step > points[-1].step
    assert {len(found) for found in by_way(points).values()} == {3} and "speed-up" in report(
        points, CLUSTER
    )


@pytest.mark.second
def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    speed = tmp_path / "speed.json"
    found = tmp_path / "found.json"
    picture = tmp_path / "scaling.svg"
    write(SPEED, speed)
    words = [
        "simulate",
        "--dataset",
        "ring:n=64",
        "--backend",
        "reference",
        "--machine",
        str(speed),
        "--workers",
        "4,1,2",
    ]
    assert (
        main(
            [
                *words,
                "--strategies",
                "global,cluster",
                "--clusters",
                "4",
                "--json",
                str(found),
                "--plot",
                str(picture),
            ]
        )
        == 0
    )
    figures = json.loads(found.read_text(encoding="utf-8"))
    assert [(p["strategy"], p["workers"]) for p in figures["points"]][:3] == [
        ("global", 1),
        ("global", 2),
        ("global", 4),
    ]
    assert "linear" in picture.read_text(encoding="utf-8") or picture.stat().st_size > 10_000
    assert "limit" in capsys.readouterr().out
    for more, told in (
        (("--link", "fast"), "--link: got 'fast'"),
        (("--slowest", "0.5"), "--slowest: got 0.5"),
        (("--machine", str(found)), "not the speed of a machine"),
        (("--modes", "both"), "unknown name 'both'"),
    ):
        assert main([*words, *more]) in (1, 2)
        assert told in capsys.readouterr().err


# lists of values of a key, and the key
CONTRADICTIONS = (
    (("--strategies", "global,mini"), ("--strategy", "mini")),
    (("--strategies", "cluster"), ("--strategy=mini",)),
    (("--partitioners", "1d-src,1d-dst"), ("--partitioner", "vertex-cut")),
    (("--partitioners", "block,1d-src"), ("--masters", "ldg")),
)


@pytest.mark.parametrize(
    ("made", "listed", "given"),
    [
        *((made, *words) for made in (plan, simulate) for words in CONTRADICTIONS),
        (simulate, ("--modes", "independent"), ("--mode", "cooperative")),
    ],
)
def test_a_list_and_its_key_contradict_each_other(
    made: Callable[[list[str]], Any], listed: tuple[str, str], given: tuple[str, ...]
) -> None:
    told = " ".join(listed) + " and " + " ".join(given).replace("=", " ")
    for words in ([*listed, *given], [*given, *listed]):
        with pytest.raises(ConfigError, match=f"{told} contradict each other; drop one of them"):
            made(["--dataset", "ring", *words])


@pytest.mark.parametrize("made", [plan, simulate])
def test_a_list_replaces_a_key_of_a_file_and_no_other_key(
    made: Callable[[list[str]], Any], tmp_path: Path
) -> None:
    keys = tmp_path / "keys.yaml"
    keys.write_text("dataset: ring\nstrategy: mini\npartitioner: vertex-cut\n")
    made(["--config", str(keys), "--strategies", "global,mini", "--partitioners", "1d-src"])
    made(["--dataset", "ring", "--masters", "block", "--partitioners", "1d-src,1d-dst"])
