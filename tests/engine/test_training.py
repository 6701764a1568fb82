"""Views in flight, views of a step, and staleness: which numbers they may change and which not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphtheta as gt
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.serial import SerialComm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.engine.train.versions import ParameterManager
from graphtheta.ops.autodiff.tape import Parameter
from graphtheta.ops.optimisers.optim import SGD

KEYS: dict[str, Any] = {
    "dataset": "sbm:n_nodes=300,n_edges=1500",
    "hidden": 8,
    "epochs": 3,
    "dtype": "float64",
    "seed": 3,
    "backend": "reference",
}
PROGRAM = Path(__file__).with_name("training_program.py")
# mpiexec from a wheel lies beside the interpreter
MPIEXEC = shutil.which(
    "mpiexec", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
)
MINI = {"strategy": "mini", "batch_size": 20, "fanout": "5,3"}
CLUSTER = {"strategy": "cluster", "clusters": 8, "clusters_per_batch": 1}


def _run(comm: Comm, **keys: Any) -> tuple[list[float], dict[str, np.ndarray]]:
    trainer = gt.Trainer(comm=comm, **{**KEYS, **keys})
    losses = [row["loss"] for row in trainer.fit().history]
    return losses, trainer.model.state()


def _same(a: Any, b: Any, exactly: bool) -> None:
    tolerance = 0.0 if exactly else 1e-9
    np.testing.assert_allclose(a[0], b[0], rtol=tolerance, atol=tolerance)
    for name, x in a[1].items():
        np.testing.assert_allclose(x, b[1][name], rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.one_in(7, 3)
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize(
    "schedule",
    [{}, {"views_per_step": 3}, {"staleness": 2}, {"staleness": 1, "views_per_step": 2}],
    ids=str,
)
@pytest.mark.parametrize("strategy", [MINI, CLUSTER], ids=["mini", "cluster"])
def test_views_in_flight_change_no_number(
    size: int, schedule: dict[str, Any], strategy: dict[str, Any]
) -> None:
    # a bias before batch norm has no gradient but rounding, by which Adam would divide
    keys = {**strategy, **schedule, "model": "sage", "norm": "batch", "optimiser": "sgd"}
    one = run_simulated(size, _run, **keys)
    for in_flight in (2, 5) if size == 1 else (3,):
        for a, b in zip(
            one, run_simulated(size, _run, **keys, views_in_flight=in_flight), strict=True
        ):
            _same(a, b, exactly=True)
    _same(one[0], run_simulated(1, _run, **keys)[0], exactly=size == 1)


@pytest.mark.second
def test_threads_change_no_number() -> None:
    found = []
    for cores in (1, 2, 3):
        comm = SerialComm()
        comm.cores = cores
        found.append(
            _run(
                comm, **MINI, model="gat", heads=2, staleness=3, views_in_flight=4, backend="fused"
            )
        )
    for other in found[1:]:
        _same(found[0], other, exactly=True)


def test_no_staleness_is_synchronous() -> None:
    plain = _run(SerialComm(), **MINI)
    _same(plain, _run(SerialComm(), **MINI, staleness=0, views_in_flight=3), exactly=True)
    stale = _run(SerialComm(), **MINI, staleness=1)
    assert plain[0][0] != stale[0][0]


def test_staleness_is_that_of_delayed_gradients() -> None:
    """Against a loop that keeps old weights by hand."""
    keys = {**KEYS, **MINI, "optimiser": "sgd", "dropout": 0.0, "weight_decay": 5e-4}
    trainer = gt.Trainer(comm=SerialComm(), **{**keys, "staleness": 2})
    n = trainer.strategy.steps_per_epoch
    trainer.train_epoch(0)
    plain = gt.Trainer(comm=SerialComm(), **keys)
    versions = [plain.model.state()]
    for t in range(n):
        newest = versions[-1]
        plain.model.load_state(versions[max(0, t - 2)])
        before = plain.model.state()
        plain.training.update(plain.strategy.batch(0, t))
        # weight decay acts on the newest weights, as in any update
        decay = {
            p.name: plain.job.lr * plain.job.weight_decay * p.decay for p in plain.setup.parameters
        }
        moved = {
            name: x - before[name] + decay.get(name, 0) * before[name]
            for name, x in plain.model.state().items()
        }
        versions.append(
            {
                name: newest[name] + moved[name] - decay.get(name, 0) * newest[name]
                for name in newest
            }
        )
    for name, x in trainer.model.state().items():
        np.testing.assert_allclose(x, versions[-1][name], rtol=1e-9, atol=1e-12)


def test_gradients_of_a_step_are_summed() -> None:
    plain = {**KEYS, **MINI, "optimiser": "sgd", "weight_decay": 0.0}

    def after(views_per_step: int) -> dict[str, np.ndarray]:
        trainer = gt.Trainer(comm=SerialComm(), **{**plain, "views_per_step": views_per_step})
        before = trainer.model.state()
        trainer.training.run(0, 0, 2)
        return {name: x - before[name] for name, x in trainer.model.state().items()}

    first = after(1)
    both = after(2)
    trainer = gt.Trainer(comm=SerialComm(), **{**plain, "staleness": 1})
    before = trainer.model.state()
    trainer.training.run(0, 0, 2)
    # with a staleness of 1 the second view computes with the first version too
    for name, x in trainer.model.state().items():
        np.testing.assert_allclose(both[name], x - before[name], rtol=1e-10, atol=1e-14)
    assert any(not np.allclose(first[name], both[name]) for name in both)


def _manager(staleness: int) -> tuple[Parameter, ParameterManager]:
    p = Parameter(np.zeros(2), name="w")
    return p, ParameterManager(SGD([p], lr=1.0), SerialComm(), staleness)


def test_steps_are_made_in_order_whoever_is_first() -> None:
    p, manager = _manager(2)
    manager.deliver(1, 0, 1, [np.array([0.0, 1.0])])
    assert manager.newest == 0
    manager.deliver(0, 1, 2, [np.array([1.0, 0.0])])
    manager.deliver(0, 0, 2, [np.array([1.0, 0.0])])
    assert manager.newest == 2
    np.testing.assert_array_equal(p.value, [-2, -1])


def test_a_view_keeps_its_version_to_the_end() -> None:
    p, manager = _manager(0)
    with manager.using(0) as version:
        manager.deliver(0, 0, 1, [np.ones(2)])
        assert version == 0
        np.testing.assert_array_equal(p.value, [0, 0])
    np.testing.assert_array_equal(p.value, [-1, -1])


@pytest.mark.parametrize("staleness", [0, 1, 4])
def test_old_versions_are_dropped(staleness: int) -> None:
    p, manager = _manager(staleness)
    for step in range(20):
        with manager.using(step) as version:
            assert version == max(0, step - staleness)
        manager.deliver(step, 0, 1, [np.ones(2)])
    assert manager.most_bytes == staleness * p.value.nbytes


def test_weights_loaded_between_epochs_count() -> None:
    p, manager = _manager(0)
    with manager.using(0):
        pass
    p.value = np.full(2, 7.0)
    with manager.using(0):
        np.testing.assert_array_equal(p.value, [7, 7])


@pytest.fixture(scope="module")
def under_mpiexec(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, np.ndarray]]:
    """What ``training_program`` writes on 1 and on 4 ranks, these over slow links."""
    pytest.importorskip("mpi4py")
    if MPIEXEC is None:
        pytest.skip("there is no mpiexec")
    found = {}
    for size in (1, 4):
        out = tmp_path_factory.mktemp("training") / "numbers.npz"
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "GRAPHTHETA_LINK": "50us,1Gbit/s" if size == 4 else "",
        }
        command = [MPIEXEC, "-n", str(size), sys.executable, str(PROGRAM), str(out)]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        with np.load(out) as z:
            found[size] = {name: z[name] for name in z.files}
    return found


@pytest.mark.second
def test_views_in_flight_change_no_number_under_mpiexec(
    under_mpiexec: dict[int, dict[str, np.ndarray]],
) -> None:
    for size, found in under_mpiexec.items():
        assert len(found) == 9
        for name, numbers in found.items():
            schedule = name.split("|")[0]
            np.testing.assert_array_equal(
                numbers, found[f"{schedule}|1"], err_msg=f"{name} on {size} ranks"
            )
            np.testing.assert_allclose(
                numbers,
                under_mpiexec[1][name],
                rtol=1e-9,
                atol=1e-12,
                err_msg=f"{name} on {size} ranks",
            )
