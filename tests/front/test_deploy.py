"""The templates of deploy/: the Slurm script runs with a stand-in for Slurm, the MPIJob fits its
definition and our own flags.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from graphtheta.__main__ import main
from graphtheta.cli.launch import Restarts

ROOT = Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "deploy"
SCRIPT = DEPLOY / "slurm.sh"
# notes its words, and ends as the file says; "wait" waits for SIGTERM, as a training does that then
# leaves a checkpoint
SRUN = """#!/usr/bin/env bash
echo "srun $* [$SRUN_CPUS_PER_TASK]" >> called
ends=$(head -n 1 ends); sed -i 1d ends
trap 'echo asked >> called; exit 75' TERM
if [ "$ends" = wait ]; then echo ready >> called; while :; do sleep 0.1; done; fi
if [ "$ends" = 0 ]; then mkdir -p runs/sbm-gcn-global; touch runs/sbm-gcn-global/result.json; fi
exit "$ends"
"""
SCONTROL = """#!/usr/bin/env bash
echo "scontrol $*" >> called
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a stand-in for Slurm."""
    for name, text in (
        ("srun", SRUN),
        ("scontrol", SCONTROL),
        ("graphtheta", f'#!/bin/sh\nexec "{sys.executable}" -m graphtheta "$@"\n'),
    ):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    for name, value in {
        "SLURM_NTASKS": "4",
        "SLURM_CPUS_PER_TASK": "8",
        "SLURM_JOB_ID": "77",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def submit(ends: str, *flags: str) -> subprocess.Popen[str]:
    """Run the script as Slurm does, in a shell without a terminal."""
    Path("ends").write_text(ends.replace(" ", "\n") + "\n")
    return subprocess.Popen(
        [str(SCRIPT), *flags],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def called() -> list[str]:
    """What was called, with its words."""
    return Path("called").read_text().splitlines() if Path("called").exists() else []


@pytest.mark.parametrize(
    "checker", [["bash", "-n"], pytest.param(["shellcheck"], marks=pytest.mark.second)]
)
def test_the_script_is_sound(checker: list[str]) -> None:
    if shutil.which(checker[0]) is None:
        pytest.skip(f"there is no {checker[0]}")
    done = subprocess.run(
        [*checker, str(SCRIPT)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_options_of_the_script() -> None:
    lines = [
        line
        for line in SCRIPT.read_text(encoding="utf-8").splitlines()
        if line.startswith("#SBATCH")
    ]
    given = dict(line.removeprefix("#SBATCH --").partition("=")[::2] for line in lines)
    assert (
        "requeue" in given
        and re.fullmatch(r"B:TERM@\d+", given["signal"])
        and given["open-mode"] == "append"
    )
    assert {"nodes", "ntasks-per-node", "cpus-per-task", "time"} <= set(given)


def test_a_job_that_ends_well(slurm: Path) -> None:
    job = submit("0", "--dataset", "sbm", "--epochs", "3")
    job.communicate(timeout=60)
    assert job.returncode == 0
    program = f"{sys.executable} -m graphtheta train --dataset sbm --epochs 3 --resume"
    assert called() == [f"srun --mpi=pmi2 --kill-on-bad-exit=1 -n 4 {program} [8]"]


def test_a_job_that_fails_once_is_tried_again_in_the_same_allocation(slurm: Path) -> None:
    job = submit("137 0")
    _, err = job.communicate(timeout=60)
    assert (
        job.returncode == 0
        and len(called()) == 2
        and "was killed by SIGKILL" in err
        and "try 2 succeeded" in err
    )


def test_a_job_that_cannot_be_understood_is_not_requeued(slurm: Path) -> None:
    job = submit("0", "--batchsize", "3")
    _, err = job.communicate(timeout=60)
    assert job.returncode == 2 and not called() and "did you mean" in err


def test_a_job_out_of_time_leaves_a_checkpoint_and_is_requeued(slurm: Path) -> None:
    job = submit("wait", "--dataset", "sbm")
    end = time.monotonic() + 30
    while called()[-1:] != ["ready"]:
        assert time.monotonic() < end and job.poll() is None
        time.sleep(0.05)
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=60)
    assert job.returncode == 75 and called()[2:] == ["asked", "scontrol requeue 77"]


def documents() -> tuple[dict[str, Any], dict[str, Any]]:
    """The claim and the job of the Kubernetes template."""
    claim, job = yaml.safe_load_all((DEPLOY / "mpijob.yaml").read_text(encoding="utf-8"))
    return claim, job


def test_mpijob_fits_its_definition() -> None:
    schema = json.loads((Path(__file__).parent / "mpijob.schema.json").read_text(encoding="utf-8"))
    check = jsonschema.Draft202012Validator(schema)
    check.check_schema(schema)
    claim, job = documents()
    assert [
        f"{'/'.join(map(str, e.absolute_path))}: {e.message}" for e in check.iter_errors(job)
    ] == []
    volumes = [
        pod["template"]["spec"]["volumes"][0] for pod in job["spec"]["mpiReplicaSpecs"].values()
    ]
    assert {v["persistentVolumeClaim"]["claimName"] for v in volumes} == {claim["metadata"]["name"]}
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]


@pytest.mark.parametrize(
    "path, value",
    [
        (("spec", "mpiImplementation"), "MPICH4"),
        (("spec", "runPolicy", "backofLimit"), 3),
        (("spec", "slotsPerWorker"), "2"),
        (("spec", "mpiReplicaSpecs", "Launcher", "restartPolicy"), "Always"),
        (("spec", "mpiReplicaSpecs", "Worker", "template", "spec", "image"), "x"),
    ],
)
def test_the_definition_sees_a_planted_fault(path: tuple[str, ...], value: object) -> None:
    schema = json.loads((Path(__file__).parent / "mpijob.schema.json").read_text(encoding="utf-8"))
    _, job = documents()
    place = job
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(job, schema)


def test_mpijob_starts_a_launch_that_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[list[str]] = []
    monkeypatch.setattr(Restarts, "run", lambda self: tried.append(self.words) or 0)
    _, job = documents()
    launcher, worker = (job["spec"]["mpiReplicaSpecs"][kind] for kind in ("Launcher", "Worker"))
    command = launcher["template"]["spec"]["containers"][0]["command"]
    assert command[:2] == ["graphtheta", "launch"] and main(command[1:]) == 0
    words = tried[0]
    assert int(words[words.index("-n") + 1]) == job["spec"]["slotsPerWorker"] * worker["replicas"]
    # what its runs leave lies on the volume that all pods share
    mount = launcher["template"]["spec"]["containers"][0]["volumeMounts"][0]["mountPath"]
    assert words[words.index("--out") + 1].startswith(f"{mount}/") and words[
        words.index("--data-dir") + 1
    ].startswith(f"{mount}/")


def test_image_and_job_agree() -> None:
    """The user, his folder and sshd's settings are those of the image."""
    image = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    _, job = documents()
    worker = job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    container = worker["containers"][0]
    assert f"--uid {worker['securityContext']['runAsUser']} " in image
    assert (
        f"HostKey {job['spec']['sshAuthMountPath']}/id_rsa" in image
        and container["command"][-1] in image
    )
    assert f"Port {container['readinessProbe']['tcpSocket']['port']}" in image and "procps" in image
