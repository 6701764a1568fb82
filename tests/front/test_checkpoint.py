"""Checkpoints on disk: whole or not at all, never trusted, the one before always good."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from safetensors import safe_open

import graphtheta as gt
from graphtheta.errors import FormatError
from graphtheta.run.checkpoints import checkpoint, keeper
from graphtheta.run.checkpoints.checkpoint import (
    ARRAYS,
    CHECKPOINTS,
    MANIFEST,
    Checkpoint,
    CheckpointManifest,
    newest_good,
    read_checkpoint,
    steps_in,
    write_checkpoint,
)
from graphtheta.run.checkpoints.keeper import Keeper
from graphtheta.run.checkpoints.progress import Progress
from graphtheta.run.checkpoints.tensors import read_tensors, write_tensors
from graphtheta.run.checkpoints.weights import read_saved, write_weights
from graphtheta.run.job.job import Job

ARRAYS_OF_ALL_KINDS = {
    "w": np.arange(12, dtype=np.float32).reshape(3, 4),
    "empty": np.zeros((0, 5)),
    "scalar": np.array(3.5),
    "flags": np.array([True, False]),
    "n/1": np.arange(3, dtype=np.int16),
    "turned": np.arange(6.0).reshape(2, 3).T,
}


def made(step: int, arrays: dict[str, np.ndarray] | None = None) -> Checkpoint:
    progress = Progress(
        epoch=step // 2,
        losses=[0.1 * step],
        history=[{"epoch": 1, "loss": float("nan"), "time": {"move": {"wait": 0.5}}}],
    )
    return Checkpoint(
        CheckpointManifest(
            step=step, counters={"views": step}, progress=progress, job={"lr": 0.1}, job_hash="x"
        ),
        {"w": np.full(50, float(step))} if arrays is None else arrays,
    )


def step_of(folder: Path) -> int | None:
    found = newest_good(folder, lambda line: None)
    if found is not None:
        np.testing.assert_array_equal(found.arrays["w"], np.full(50, float(found.manifest.step)))
    return None if found is None else found.manifest.step


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, made(7, ARRAYS_OF_ALL_KINDS))
    assert (
        path == tmp_path / "step-00000007"
        and sorted(os.listdir(path)) == [ARRAYS, MANIFEST]
        and os.listdir(tmp_path) == [path.name]
    )
    found = read_checkpoint(path)
    assert found.manifest.counters == {"views": 7} and found.manifest.progress.losses == [
        0.7000000000000001
    ]
    assert np.isnan(found.manifest.progress.history[0]["loss"]) and set(found.arrays) == set(
        ARRAYS_OF_ALL_KINDS
    )
    for name, x in ARRAYS_OF_ALL_KINDS.items():
        np.testing.assert_array_equal(found.arrays[name], x, strict=True)


def test_other_tools_read_what_is_written(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, made(7, ARRAYS_OF_ALL_KINDS)) / ARRAYS
    with safe_open(path, "numpy") as f:
        for name, x in ARRAYS_OF_ALL_KINDS.items():
            np.testing.assert_array_equal(f.get_tensor(name), x, strict=True)


@pytest.mark.second
def test_weights_load_into_a_state_dict(tmp_path: Path) -> None:
    trainer = gt.Trainer("sage", gt.load("ring"), hidden=4, task="link", norm="batch")
    trainer.save(tmp_path / "w.safetensors")
    job, weights, _ = read_saved(tmp_path / "w.safetensors")
    assert job == trainer.job and set(weights) == set(trainer.model.state())
    torch = pytest.importorskip("safetensors.torch")
    for name, x in torch.load_file(tmp_path / "w.safetensors").items():
        np.testing.assert_array_equal(x.numpy(), weights[name])


@pytest.mark.parametrize("file", [ARRAYS, MANIFEST])
def test_every_damage_is_seen_and_the_one_before_is_used(tmp_path: Path, file: str) -> None:
    write_checkpoint(tmp_path, made(1))
    path = write_checkpoint(tmp_path, made(2)) / file
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for i in range(150):
        damaged = bytearray(whole)
        at = int(rng.integers(len(whole)))
        if i % 3:
            damaged[at] ^= 1 << int(rng.integers(8))
        else:
            del damaged[at:]
        path.write_bytes(damaged)
        told: list[str] = []
        found = newest_good(tmp_path, told.append)
        assert (
            found is not None
            and found.manifest.step == 1
            and len(told) == 1
            and file in told[0]
            and "step-00000002" in told[0]
        )
    path.write_bytes(whole)
    assert step_of(tmp_path) == 2


def test_every_damage_of_weights_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    weights = {"a": np.arange(5.0), "b": np.zeros((2, 0))}
    write_weights(path, Job(hidden=3), weights)
    whole = path.read_bytes()
    rng = np.random.default_rng(1)
    start = 8 + int.from_bytes(whole[:8], "little")
    for at in [*range(0, start, 7), *rng.integers(0, len(whole), 50).tolist()]:
        damaged = bytearray(whole)
        damaged[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            # spaces behind the header may become other blanks
            job, found, _ = read_saved(path)
            assert (
                job == Job(hidden=3)
                and all(np.array_equal(found[n], x) for n, x in weights.items())
                and whole[at] == ord(" ")
            )
        except FormatError as e:
            assert str(path) in str(e)


def head(path: Path, text: dict[str, Any] | bytes, data: bytes = b"") -> Path:
    body = text if isinstance(text, bytes) else json.dumps(text).encode()
    path.write_bytes(struct.pack("<Q", len(body)) + body + data)
    return path


@pytest.mark.parametrize(
    "text",
    [
        {"a": {"dtype": "F64", "shape": [1 << 40], "data_offsets": [0, 8 << 40]}},
        {"a": {"dtype": "F64", "shape": [1 << 40], "data_offsets": [0, 8]}},
        {"a": {"dtype": "F64", "shape": [1 << 62, 4], "data_offsets": [0, 8]}},
        {"a": {"dtype": "F64", "shape": [-1, -1], "data_offsets": [0, 8]}},
        {"a": {"dtype": "O", "shape": [1], "data_offsets": [0, 8]}},
        {"a": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}},
        {
            "a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]},
            "b": {"dtype": "U8", "shape": [6], "data_offsets": [2, 8]},
        },
        {"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}},
        {"a": [1]},
        {"__metadata__": {"a": 1}},
        b"[]",
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_what_a_header_claims_is_not_believed(tmp_path: Path, text: dict[str, Any] | bytes) -> None:
    with pytest.raises(FormatError, match=r"x: (damaged|holds numbers)"):
        read_tensors(head(tmp_path / "x", text, bytes(8)))


@pytest.mark.parametrize("data", [b"", b"\xff" * 7, b"\xff" * 7 + b"\x0f{}"])
def test_a_header_longer_than_the_file(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x").write_bytes(data)
    with pytest.raises(FormatError, match="header"):
        read_tensors(tmp_path / "x")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda fields: fields.update(format=2), "format"),
        (lambda fields: fields.update(step=9), "step"),
        (lambda fields: fields.update(step="7"), "step"),
        (lambda fields: fields["progress"].update(losses=["x"]), "progress.losses.0"),
        (lambda fields: fields.pop("job"), "job"),
        (lambda fields: fields.update(run="rm"), "run"),
        (lambda fields: fields["arrays"].pop("w"), "w: it is in only one of"),
        (
            lambda fields: fields["arrays"].update({"../../w": fields["arrays"]["w"]}),
            "w: it is in only one of",
        ),
    ],
)
def test_a_manifest_of_another_kind(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], told: str
) -> None:
    path = write_checkpoint(tmp_path, made(7))
    fields = msgpack.unpackb(msgpack.unpackb((path / MANIFEST).read_bytes())["body"])
    change(fields)
    body = msgpack.packb(fields)
    (path / MANIFEST).write_bytes(
        msgpack.packb({"checksum": checkpoint.zlib.crc32(body), "body": body})
    )
    with pytest.raises(FormatError, match=told):
        read_checkpoint(path)


@contextmanager
def failing(
    patch: pytest.MonkeyPatch, at: int, error: OSError, after: Callable[[], None] = lambda: None
) -> Iterator[list[str]]:
    """The file operation number ``at`` of the block fails, after a write has put down half; gives
    the names of all.
    """
    done: list[str] = []

    def next_one(name: str) -> None:
        done.append(name)
        if len(done) - 1 == at:
            after()
            raise error

    def wrapped(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **keys: Any) -> Any:
            next_one(name)
            return real(*args, **keys)

        return call

    class File(io.FileIO):
        def write(self, data: Any) -> int:
            view = memoryview(data).cast("B")
            if len(done) == at:
                super().write(view[: len(view) // 2])
            next_one("write")
            return super().write(view)

    def opened(path: Any, mode: str = "r", *args: Any, **keys: Any) -> Any:
        if mode != "xb":
            return real_open(path, mode, *args, **keys)
        next_one("create")
        return io.BufferedWriter(File(path, mode), 64)

    real_open = io.open
    with patch.context() as m:
        m.setattr(io, "open", opened)
        for name in ("mkdir", "fsync", "rename"):
            m.setattr(os, name, wrapped(name, getattr(os, name)))
        yield done


def test_a_full_disk_at_every_operation_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_checkpoint(tmp_path, made(1))
    with failing(monkeypatch, -1, OSError()) as operations:
        write_checkpoint(tmp_path, made(2))
    assert {"mkdir", "create", "write", "fsync", "rename"} == set(operations) and step_of(
        tmp_path
    ) == 2
    for at, name in enumerate(operations):
        monkeypatch.undo()
        checkpoint.sweep(tmp_path, everything=True)
        write_checkpoint(tmp_path, made(1))
        with (
            failing(monkeypatch, at, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))),
            pytest.raises(OSError, match="No space"),
        ):
            write_checkpoint(tmp_path, made(2))
        # after the rename it is there, and whole
        renamed = name == "fsync" and at > operations.index("rename")
        assert step_of(tmp_path) == 1 + renamed and not list(tmp_path.glob(".part-*"))


def job_in(folder: Path, **keys: Any) -> Job:
    return Job(out=str(folder), checkpoint_every=1, **keys)


@pytest.mark.parametrize(
    "error", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO], ids=errno.errorcode.get
)
def test_a_failure_is_told_once_and_the_next_one_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with Keeper(job_in(tmp_path), True) as kept:
        kept.offer(lambda: made(1))
        kept.close()
        for step in (2, 3):
            with failing(monkeypatch, 1, OSError(error, os.strerror(error))):
                kept.offer(lambda step=step: made(step))
                kept.close()
        assert kept.failure == os.strerror(error) and step_of(kept.folder) == 1
        told = capsys.readouterr().err
        assert (
            told.count("\n") == 1
            and "step 2 cannot be written" in told
            and "the newest one is of step 1" in told
        )
        kept.offer(lambda: made(4))
    assert (
        kept.failure is None
        and [step for step, _ in steps_in(kept.folder)] == [4, 1]
        and capsys.readouterr().err == ""
    )


def test_a_folder_that_vanishes_is_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Keeper(job_in(tmp_path / "run"), True) as kept:
        for step in (1, 2):
            kept.offer(lambda step=step: made(step))
            kept.close()
            shutil.rmtree(tmp_path / "run")
        kept.offer(lambda: made(3))
    assert step_of(kept.folder) == 3 and capsys.readouterr().err == ""


def test_a_folder_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run").write_text("a file")
    with Keeper(job_in(tmp_path / "run"), True) as kept:
        kept.offer(lambda: made(1))
    assert kept.failure and "this run has none yet" in capsys.readouterr().err


@pytest.mark.parametrize("keep", [1, 3])
def test_the_newest_are_kept(tmp_path: Path, keep: int) -> None:
    with Keeper(job_in(tmp_path, keep=keep), True) as kept:
        for step in range(1, 6):
            kept.offer(lambda step=step: made(step))
            kept.close()
    assert [step for step, _ in steps_in(kept.folder)] == [5, 4, 3][:keep]


def test_while_one_is_written_only_the_newest_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go, real, written = threading.Event(), threading.Event(), write_checkpoint, []

    def slow(folder: Path, one: Checkpoint) -> Path:
        begun.set()
        go.wait(10)
        written.append(one.manifest.step)
        return real(folder, one)

    monkeypatch.setattr(keeper, "write_checkpoint", slow)
    with Keeper(job_in(tmp_path, keep=9), True) as kept:
        kept.offer(lambda: made(1))
        begun.wait(10)
        for step in range(2, 8):
            kept.offer(lambda step=step: made(step))
        go.set()
    assert written == [1, 7]


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / CHECKPOINTS
    write_checkpoint(folder, made(1))
    left = folder / ".part-step-00000002-1"
    left.mkdir()
    (left / ARRAYS).write_bytes(b"half")
    assert step_of(folder) == 1
    checkpoint.sweep(folder)
    assert [path.name for path in folder.iterdir()] == ["step-00000001"]


def test_a_damaged_one_of_the_same_step_is_replaced(tmp_path: Path) -> None:
    with Keeper(job_in(tmp_path), True) as kept:
        for step in (1, 2):
            (write_checkpoint(kept.folder, made(step)) / ARRAYS).write_bytes(b"")
        kept.offer(lambda: made(1))
    # that of step 2 was passed over when the run was resumed
    assert [step for step, _ in steps_in(kept.folder)] == [1] and step_of(kept.folder) == 1


def test_arrays_that_are_not_numbers_are_refused() -> None:
    with pytest.raises(FormatError, match=r"a: .*U4"):
        write_tensors(io.BytesIO(), {"a": np.array(["text"])}, {})
