"""The commands, as a user meets them: what they print and leave behind, and how they fail."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from graphtheta.__main__ import COMMANDS, main
from graphtheta.base.console import amount, figure, table
from graphtheta.base.mpiexec import run
from graphtheta.cli import doctor
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import FormatError
from graphtheta.run.job.job import Job
from graphtheta.run.log.runlog import RunLog

pytestmark = pytest.mark.reference

TINY = (
    "--dataset",
    "sbm:n_nodes=200,n_edges=1200,classes=3,features=8",
    "--epochs",
    "4",
    "--hidden",
    "8",
)
MPIEXEC = doctor.find_mpiexec()
needs_mpi = pytest.mark.skipif(MPIEXEC is None, reason="MPI is not installed")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def launch(ranks: int, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command on several ranks."""
    return subprocess.run(
        [str(MPIEXEC), "-n", str(ranks), sys.executable, "-m", "graphtheta", *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )


def test_usage_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    assert all(f"\n  {name} " in told for name in COMMANDS)
    assert main([]) == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main([command, "--help"])
    assert done.value.code == 0
    told = capsys.readouterr().out
    assert f"usage: graphtheta {command}" in told


@pytest.mark.parametrize(
    "words, told",
    [
        (["trian"], "did you mean 'train'"),
        (["train", "--batchsize", "3"], "did you mean '--batch-size'"),
        (["train", "--lr", "abc"], "lr: got 'abc'"),
        (["train", "--lr"], "--lr: expected one argument"),
        (["train", "cora"], "unexpected argument 'cora'"),
        (["train", "--fanout", "10", "5"], "several values are separated by commas: --fanout 10,5"),
        (["train", "--strategy", "mni"], "did you mean 'mini'"),
        (["train", "--batch-size", "3"], "--strategy mini"),
        (["train", "--preset", "cora-gcm"], "did you mean 'cora-gcn'"),
        (["train", "--strategy", "mini", "--pipeline"], "--pipeline: expected one argument"),
        (["info", "--ranks", "0"], "from 1 to"),
        (["info", "--ranks", "x"], "--ranks"),
        (["evaluate"], "RUN"),
        (["evaluate", "nowhere"], "nowhere: the folder has no job.yaml"),
        (["predict", "nowhere", "--on", "test"], "--on"),
    ],
)
def test_bad_usage_is_one_message(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert (
        out == ""
        and err.startswith("graphtheta: ")
        and told in err
        and "Traceback" not in err
        and err.count("\n") == 1
    )


def test_bad_config_file_is_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--config", "none.yaml"]) == 1
    err = capsys.readouterr().err
    assert "none.yaml: the file does not exist" in err and err.count("\n") == 1


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "words", [["info", "--dataset", "ring:n=12"], ["--help"], ["train", "--help"]]
)
def test_a_reader_that_has_seen_enough_ends_quietly(here: Path, words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as out:
        done = subprocess.run(
            [sys.executable, "-m", "graphtheta", *words],
            cwd=here,
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (141, "")


def test_bad_input_is_one_message(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--dataset", "nothing_like_this"]) == 2
    err = capsys.readouterr().err
    assert "nothing_like_this" in err and "sbm" in err and "Traceback" not in err


def test_train_evaluate_predict(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *TINY, "--out", "run", "--save-predictions"]) == 0
    told = capsys.readouterr().out
    assert (
        "epoch    1/4" in told
        and "slowest ms" in told
        and "gather" in told
        and "saved in run" in told
    )
    left = sorted(p.name for p in (here / "run").iterdir())
    assert left == [
        ".lock",
        "checkpoints",
        "job.yaml",
        "metrics.jsonl",
        "predictions.npz",
        "profile.json",
        "result.json",
        "weights.safetensors",
    ]
    rows = [json.loads(line) for line in (here / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4] and rows[0]["time"]["gather"][
        "seconds"
    ] > 0
    result = json.loads((here / "run" / "result.json").read_text())
    best = rows[result["best_epoch"] - 1]
    assert all(best[name] == value for name, value in result["metrics"].items())

    assert main(["evaluate", "run"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("test"))
    assert figure(result["metrics"]["test_accuracy"]) in line.split()

    assert main(["predict", "run", "--to", "p.csv"]) == 0
    csv = np.loadtxt("p.csv", delimiter=",", skiprows=1)
    with np.load("run/predictions.npz") as saved:
        np.testing.assert_array_equal(saved["id"], csv[:, 0])
        np.testing.assert_allclose(saved["probability"], csv[:, 2:], rtol=1e-5)
        np.testing.assert_array_equal(saved["class"], csv[:, 1])
    assert (
        (here / "p.csv")
        .read_text()
        .startswith("id,class,probability_0,probability_1,probability_2\n")
    )


def test_train_with_several_seeds(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["train", *TINY, "--epochs", "1", "--seeds", "2", "--seed", "5", "--out", "runs"]) == 0
    )
    assert "2 seeds" in capsys.readouterr().out
    record = json.loads((here / "runs" / "result.json").read_text())
    single = [
        json.loads((here / "runs" / f"seed-{seed}" / "result.json").read_text()) for seed in (5, 6)
    ]
    assert record["metrics"]["test_loss"] == [one["metrics"]["test_loss"] for one in single]
    assert record["metrics"]["test_loss"][0] != record["metrics"]["test_loss"][1]


def test_seeds_of_which_some_have_nothing_to_validate(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = np.arange(8)
    np.savez("ring8.npz", edge_index=np.stack((nodes, (nodes + 1) % 8)), x=np.eye(8))
    words = ["train", "--dataset", "ring8.npz", "--task", "link", "--backend", "reference"]
    assert main([*words, "--epochs", "1", "--seeds", "3", "--out", "runs"]) == 0
    assert "3 seeds" in capsys.readouterr().out
    metrics = json.loads((here / "runs" / "result.json").read_text())["metrics"]
    # with seed 0 no link is held out, with seed 1 one for the test only
    assert [x is None for x in metrics["val_mrr"]] == [True, True, False]
    assert [x is None for x in metrics["test_mrr"]] == [True, False, False]


@pytest.mark.parametrize("flag", ["plan --json", "simulate --json", "simulate --plot"])
def test_a_file_of_the_user_is_not_replaced(
    here: Path, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.svg").write_text("mine")
    assert main([*flag.split(), "mine.svg"]) == 1
    err = capsys.readouterr().err
    assert (
        "of another kind, which is left as it is; move it away, or give another file with --" in err
    )
    assert "mine.svg: the " in err
    assert Path("mine.svg").read_text() == "mine"


def test_info_reports_the_partition(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", *TINY, "--ranks", "3", "--partitioner", "vertex-cut"]) == 0
    told = capsys.readouterr().out
    assert "200" in told and "replication" in told
    workers = [line.split() for line in told.splitlines() if line[:1].isdigit()]
    assert [w[0] for w in workers] == ["0", "1", "2"] and sum(int(w[1]) for w in workers) == 200


def test_doctor_finds_nothing_broken(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor"])
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    assert code == 0 and len(lines) == 11 and {line.split()[0] for line in lines} <= {"OK", "WARN"}


@pytest.mark.parametrize(
    ("free", "state"), [(8 << 20, doctor.FAIL), (32 << 20, doctor.WARN), (1 << 30, doctor.OK)]
)
def test_doctor_looks_at_shared_memory(
    free: int, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        doctor.shutil, "disk_usage", lambda folder: SimpleNamespace(total=2 << 30, free=free)
    )
    found, text, remedy = doctor.shared_memory()
    assert (
        found == state and "/dev/shm" in text and ("--shm-size" in remedy) == (state != doctor.OK)
    )


def test_programs_have_the_settings_of_the_user_but_are_no_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = {
        "OMPI_MCA_btl",
        "OMPI_ALLOW_RUN_AS_ROOT",
        "OMPI_MCA_rmaps_base_oversubscribe",
        "MPI4PY_LIBMPI",
        "HYDRA_LAUNCHER",
        "MPIR_CVAR_NOLOCAL",
        "PMIX_MCA_gds",
        "PRTE_MCA_rmaps_default_mapping_policy",
        "I_MPI_FABRICS",
    }
    of_ranks = {
        "PMI_RANK",
        "PMIX_RANK",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_UNIVERSE_SIZE",
        "PRTE_LAUNCHED",
        "HYDRA_BSTRAP_NODE_ID",
        "I_MPI_INFO_NP",
        "MPI_LOCALRANKID",
        "OMPI_MCA_ess_base_jobid",
    }
    for name in settings | of_ranks:
        monkeypatch.setenv(name, "1")
    seen = set(run([sys.executable, "-c", "import os; print(*os.environ)"]).stdout.split())
    assert settings <= seen and not of_ranks & seen


VERSIONS = {
    "Open MPI 5.0.11": "mpiexec (Open MPI) 5.0.11\n\nReport bugs to ...\n",
    "Open MPI 4.0.3": "mpiexec (OpenRTE) 4.0.3\n",
    "Open MPI 3.0.9": "prterun (PRRTE) 3.0.9\n",
    "Intel MPI 2021.18.1": "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626\n",
    "MPICH 5.0.2": "HYDRA build details:\n    Version:            5.0.2\n    CC: cc\n",
    "": "srun 25.05\n",
}


def stand_in(folder: Path, version: str, ranks: str) -> Path:
    """An mpiexec that says this version, and runs these words for its ranks."""
    path = folder / "mpiexec"
    words = f"#!/bin/sh\nif [ $1 = --version ]; then printf '{version}'; exit; fi\n{ranks}\n"
    path.write_text(words)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("owner", VERSIONS)
def test_doctor_tells_the_mpi_of_a_launcher(owner: str, tmp_path: Path) -> None:
    path = stand_in(tmp_path, VERSIONS[owner].replace("\n", "\\n"), "")
    assert doctor.owner_of(path) == owner


@needs_mpi
@pytest.mark.parametrize(
    ("owner", "remedy"),
    [("Open MPI 5.0.11", "mpiexec is of Open MPI 5.0.11, but mpi4py uses "), ("", "may belong to")],
)
def test_doctor_finds_a_launcher_of_another_library(
    owner: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process has a world of its own, in which it is rank 0 of 1."""
    ranks = 'shift 2; export OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0; exec "$@"'
    path = stand_in(tmp_path, VERSIONS[owner].replace("\n", "\\n"), ranks)
    monkeypatch.setattr(doctor, "find_mpiexec", lambda: path)
    monkeypatch.setattr(
        doctor, "mpi_library", lambda: doctor.MpiLibrary("MPICH 5.0.2", "5.0", "mpich", "")
    )
    state, text, advice = doctor.two_ranks()
    assert state == doctor.FAIL and remedy in advice
    assert "2 processes were started together, but each has an MPI world of size 1" in text


@needs_mpi
def test_doctor_names_the_library_of_mpi4py() -> None:
    state, text, _ = doctor.mpi()
    assert state == doctor.OK
    assert re.search(
        r"mpi4py [\d.]+ with \D+ [\d.]+ \(MPI \d\.\d, (by|that) .*\) in /\S+libmpi", text
    )


@needs_mpi
@pytest.mark.cold
@pytest.mark.second
def test_doctor_looks_at_the_job_in_which_it_runs(tmp_path: Path) -> None:
    done = launch(2, "doctor", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"this job   2 ranks: 2 on \S+ with \d+ thread\(s\) each, on \d+ of \d+ cores", done.stdout
    )
    assert "two ranks" not in done.stdout and done.stdout.count("this job") == 1


def test_the_last_line_is_no_rule() -> None:
    assert doctor.last_line("mpirun has detected\nan error\n-------\n\n") == "an error"


def test_doctor_warns_of_kernels_for_another_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Prescott")
    assert "Prescott" not in doctor.own_kernels()
    monkeypatch.setattr(doctor, "own_kernels", lambda: {"SapphireRapids"})
    state, found, remedy = doctor.blas()
    assert state == doctor.WARN and "OPENBLAS_CORETYPE=Prescott" in found
    assert "unset OPENBLAS_CORETYPE" in remedy and "SapphireRapids" in remedy
    monkeypatch.delenv("OPENBLAS_CORETYPE")
    state, found, remedy = doctor.blas()
    assert state == doctor.OK and "kernels for" in found and not remedy


def test_doctor_goes_on_after_a_broken_check(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> doctor.Finding:
        raise RuntimeError("no such thing")

    for name in ("numba", "mpi", "two_ranks"):
        monkeypatch.setattr(doctor, name, broken)
    assert main(["doctor"]) == 1
    told = capsys.readouterr().out
    assert told.count("FAIL") == 3 and "RuntimeError: no such thing" in told and "memory" in told


@pytest.mark.second
def test_doctor_tells_that_the_kernel_cache_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "graphtheta"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setenv("GRAPHTHETA_CACHE", str(shared))
    state, found, _ = doctor.numba()
    assert state == "FAIL" and f"chmod go-w {shared}" in found
    # a run does without it
    monkeypatch.delenv("GRAPHTHETA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    state, found, _ = doctor.numba()
    assert state == "WARN" and f"chmod go-w {shared}" in found
    shared.chmod(0o700)
    state, found, _ = doctor.numba()
    assert state == "OK" and str(shared) in found


@pytest.mark.parametrize("ranks", [1, 3])
def test_runlog_adds_up_over_ranks(
    here: Path, ranks: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def program(comm: Comm) -> int:
        with RunLog(Job(out="log", epochs=2), comm, "accuracy") as log:
            log.begin([])
            for epoch in (1, 2):
                with comm.ledger.stage("move"):
                    comm.ledger.sent(1000, 2)
                log.epoch(
                    {
                        "epoch": epoch,
                        "step": epoch,
                        "loss": 1.0,
                        "seconds": 0.1,
                        "val_loss": 1.0,
                        "val_accuracy": 0.5,
                    }
                )
            log.finish()
        return len(log.rows)

    assert run_simulated(ranks, program) == [2] * ranks
    row = json.loads(Path("log/metrics.jsonl").read_text().splitlines()[1])
    assert row["time"]["move"]["messages"] == 2 and row["time"]["move"]["bytes"] == 1000
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("move"))
    assert line.split()[-1] == str(2 * ranks)


def test_runlog_unwritable_folder_fails_on_all_ranks(here: Path) -> None:
    Path("taken").write_text("a file")

    def program(comm: Comm) -> str:
        with pytest.raises(FormatError, match=r"taken.*--out"):
            RunLog(Job(out="taken"), comm, "accuracy").begin([])
        return "raised"

    assert run_simulated(3, program) == ["raised"] * 3


@needs_mpi
def test_mpiexec_bad_flag_is_told_once(here: Path) -> None:
    done = launch(2, "train", "--batchsize", "3", cwd=here)
    assert (
        done.returncode == 2
        and done.stderr.count("unknown flag --batchsize") == 1
        and done.stdout == ""
    )


@pytest.mark.second
@needs_mpi
def test_mpiexec_bad_dataset_is_told_once(here: Path) -> None:
    done = launch(2, "train", "--dataset", "nothing_like_this", cwd=here)
    assert (
        done.returncode != 0
        and done.stderr.count("nothing_like_this") == 1
        and "Traceback" not in done.stderr
    )


@needs_mpi
def test_mpiexec_train_equals_one_rank(here: Path) -> None:
    words = ("train", *TINY, "--dtype", "float64", "--out")
    assert launch(2, *words, "two", cwd=here).returncode == 0
    assert main([*words, "one"]) == 0
    one, two = (json.loads(Path(name, "result.json").read_text()) for name in ("one", "two"))
    assert two["ranks"] == 2 and one["best_epoch"] == two["best_epoch"]
    assert one["metrics"] == pytest.approx(two["metrics"], rel=1e-9)


def test_table_is_aligned() -> None:
    assert (
        table(("name", "n"), [("a", "10"), ("long name", "2")])
        == "name        n\n---------  --\na          10\nlong name   2"
    )


@pytest.mark.parametrize(
    "n, text",
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (3 << 20, "3.0 MiB"),
        (5 << 40, "5120.0 GiB"),
    ],
)
def test_amount(n: int, text: str) -> None:
    assert amount(n) == text


@pytest.mark.parametrize(
    "value, text", [(12345, "12,345"), (0.81234, "0.8123"), (True, "yes"), ("x", "x")]
)
def test_figure(value: object, text: str) -> None:
    assert figure(value) == text
