"""The templates of deploy/: the Slurm script runs with a stand-in for Slurm, the MPIJob fits its
definition and our own flags, and image and recipe install what setup.cfg asks for.
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
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import graphtheta
from graphtheta.__main__ import main
from graphtheta.cli.launch import Restarts

ROOT = Path(__file__).resolve().parent.parent.parent
DEPLOY = ROOT / "deploy"
SCRIPT = DEPLOY / "slurm.sh"
IMAGE = DEPLOY / "Dockerfile"
# notes its words, and ends as the file says; "wait" waits for SIGTERM, as a training does that then
# leaves a checkpoint
SRUN = """#!/usr/bin/env bash
echo "srun $* [$SRUN_CPUS_PER_TASK]" >> called
echo "$OMP_NUM_THREADS $SLURM_EXPORT_ENV ${GRAPHTHETA_DATA:-} ${GRAPHTHETA_CACHE:-}" >> variables
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
    ("checker", "file"),
    [
        (["bash", "-n"], SCRIPT),
        pytest.param(["shellcheck"], SCRIPT, marks=pytest.mark.second),
        pytest.param(["hadolint"], IMAGE, marks=pytest.mark.second),
    ],
    ids=["bash", "shellcheck", "hadolint"],
)
def test_a_template_is_sound(checker: list[str], file: Path) -> None:
    if shutil.which(checker[0]) is None:
        pytest.skip(f"there is no {checker[0]}")
    done = subprocess.run(
        [*checker, str(file)], capture_output=True, text=True, check=False, timeout=60
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
    assert {"nodes", "ntasks-per-node", "cpus-per-task", "mem", "time"} <= set(given)
    assert given["hint"] == "nomultithread"


def test_a_job_that_ends_well(slurm: Path) -> None:
    job = submit("0", "--dataset", "sbm", "--epochs", "3")
    job.communicate(timeout=60)
    assert job.returncode == 0
    program = f"{sys.executable} -m graphtheta train --dataset sbm --epochs 3 --resume"
    assert called() == [f"srun --mpi=pmi2 --kill-on-bad-exit=1 -n 4 {program} [8]"]


def test_a_step_has_the_variables_of_the_script(
    slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many threads as processors, though the cluster sets one, and folders of the caller."""
    for name, value in {
        "OMP_NUM_THREADS": "1",
        "SLURM_EXPORT_ENV": "NONE",
        "GRAPHTHETA_DATA": "/data",
        "GRAPHTHETA_CACHE": "/kernels",
    }.items():
        monkeypatch.setenv(name, value)
    job = submit("0", "--dataset", "sbm")
    job.communicate(timeout=60)
    assert Path("variables").read_text() == "8 ALL /data /kernels\n"


def test_the_environment_of_the_job(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes before what is on the path; without one, the script says what is missing."""
    bin_folder = slurm / "environment" / "bin"
    bin_folder.mkdir(parents=True)
    (slurm / "bin" / "graphtheta").rename(bin_folder / "graphtheta")
    monkeypatch.setenv("PATH", f"{slurm / 'bin'}:/usr/bin:/bin")
    job = submit("0", "--dataset", "sbm")
    _, err = job.communicate(timeout=60)
    assert job.returncode == 2 and "GRAPHTHETA_ENV" in err and not called()
    monkeypatch.setenv("GRAPHTHETA_ENV", str(bin_folder.parent))
    job = submit("0", "--dataset", "sbm")
    job.communicate(timeout=60)
    assert job.returncode == 0 and len(called()) == 1


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
    pods = [pod["template"]["spec"] for pod in job["spec"]["mpiReplicaSpecs"].values()]
    for pod in pods:
        mounts = pod["containers"][0]["volumeMounts"]
        assert {one["name"] for one in mounts} == {one["name"] for one in pod["volumes"]}
    volumes = [pod["volumes"][0] for pod in pods]
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
    # what its runs leave lies on the volume that all pods share, and so do compiled kernels
    mount = launcher["template"]["spec"]["containers"][0]["volumeMounts"][0]["mountPath"]
    assert words[words.index("--out") + 1].startswith(f"{mount}/") and words[
        words.index("--data-dir") + 1
    ].startswith(f"{mount}/")
    for variable in launcher["template"]["spec"]["containers"][0]["env"]:
        assert variable["value"].startswith(f"{mount}/")


def test_image_and_job_agree() -> None:
    """The user, his folder and sshd's settings are those of the image."""
    image = IMAGE.read_text(encoding="utf-8")
    _, job = documents()
    worker = job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]
    container = worker["containers"][0]
    assert f"--uid {worker['securityContext']['runAsUser']} " in image
    assert (
        f"HostKey {job['spec']['sshAuthMountPath']}/id_rsa" in image
        and container["command"][-1] in image
    )
    assert f"Port {container['readinessProbe']['tcpSocket']['port']}" in image and "procps" in image


def setup() -> ConfigParser:
    file = ConfigParser()
    file.read(ROOT / "setup.cfg")
    return file


def test_image_installs_the_package_with_one_mpi() -> None:
    """The extras of setup.cfg without the one that brings an MPI, which is a build argument."""
    extras = setup()["options.extras_require"]
    image = IMAGE.read_text(encoding="utf-8")
    installed = re.search(r"'/src\[([\w,]+)\]'", image)
    assert installed is not None and set(installed[1].split(",")) <= set(extras)
    assert "mpich" not in installed[1] and "ARG MPI=mpich" in image and '"$MPI"' in image
    offered = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    folders = set(re.findall(r" = (\w+)$", setup()["options"]["package_dir"], re.MULTILINE))
    needed = {*folders, "setup.cfg", "pyproject.toml", "README.md", "LICENSE"}
    assert {line[1:] for line in offered if line.startswith("!")} == needed


def test_recipe_and_citation_are_of_this_version() -> None:
    recipe = yaml.safe_load((DEPLOY / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert recipe["context"]["version"] == citation["version"] == graphtheta.__version__
    # as conda-forge names what pip installs
    other = {"msgpack": "msgpack-python"}
    needs = {}
    for line in setup()["options"]["install_requires"].split():
        name, _, least = line.partition(">=")
        needs[other.get(name, name.lower())] = least
    python = setup()["options"]["python_requires"].removeprefix(">=")
    run = dict(line.split(" >=") for line in recipe["requirements"]["run"])
    assert run == {"python": python, **needs}
    scripts = setup()["options.entry_points"]["console_scripts"].split("\n")
    assert recipe["build"]["python"]["entry_points"] == [line for line in scripts if line]


@pytest.mark.second
def test_recipe_is_understood() -> None:
    rattler = pytest.importorskip("rattler_build")
    text = (DEPLOY / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    (variant,) = rattler.Stage0Recipe.from_yaml(text).render(rattler.VariantConfig())
    assert str(variant.recipe.package.version) == graphtheta.__version__
