"""The weights of a trained model, with its job, in one safetensors file."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphtheta.base.atomic import BEGINNINGS, atomic_file, file_errors, make_folder
from graphtheta.base.strict_json import to_json
from graphtheta.errors import ConfigError, FormatError
from graphtheta.run.checkpoints.tensors import checksum, read_tensors, write_tensors
from graphtheta.run.job.job import Job

WEIGHTS = "weights.safetensors"
REMEDY = f"give the {WEIGHTS} that 'graphtheta train' wrote"


class Saved(NamedTuple):
    """The content of a file of weights.

    Attributes:
        job: The job.
        weights: Arrays by name.
        trained: What was said about the training graph, as JSON; empty if an earlier version wrote
            the file.
    """

    job: Job
    weights: dict[str, np.ndarray]
    trained: str


def write_weights(
    path: Path,
    job: Job,
    weights: Mapping[str, np.ndarray],
    failure: OSError | None = None,
    trained: str = "",
) -> None:
    """Write weights and job; the file appears whole or not at all.

    Args:
        path: The file.
        job: The job.
        weights: Arrays by name.
        failure: Why some of them are missing; None if none are.
        trained: JSON about the graph of the training; empty for none.

    Raises:
        FormatError: It cannot be written.
    """
    checksums = {name: checksum(x) for name, x in weights.items()}
    texts = {"job": to_json(_plain(job)), "checksums": to_json(checksums)}
    texts |= {"trained": trained} if trained else {}
    with file_errors(path, "the weights"):
        if failure is not None:
            raise failure
        make_folder(path.parent)
        with atomic_file(path, BEGINNINGS["weights"]) as f:
            write_tensors(f, weights, {**texts, "checksum": _of_texts(texts)})


def read_saved(path: str | Path) -> Saved:
    """The content of a file that ``write_weights`` wrote.

    Raises:
        FormatError: It cannot be read, is damaged, or is no weights file.
        ConfigError: Its job is of another version.
    """
    path = Path(path)
    try:
        texts, weights = read_tensors(path)
        if set(texts) - {"trained"} != {"job", "checksums", "checksum"} or texts.pop(
            "checksum"
        ) != _of_texts(texts):
            raise FormatError(f"{path}: damaged: job and checksums do not match their checksum")
        checksums = json.loads(texts["checksums"])
        if {name: checksum(x) for name, x in weights.items()} != checksums:
            wrong = next(
                (name for name, x in weights.items() if checksums.get(name) != checksum(x)),
                "header",
            )
            raise FormatError(f"{path}: damaged: {wrong}: it does not match its checksum")
        return Saved(Job(**json.loads(texts["job"])), weights, texts.get("trained", ""))
    except FormatError as e:
        raise FormatError(f"{e}; {REMEDY}, or train again") from None
    except ConfigError:
        raise
    except (ValueError, TypeError, AttributeError, RecursionError) as e:
        raise FormatError(f"{path}: not a weights file ({e}); {REMEDY}") from None


def _plain(job: Job) -> dict[str, Any]:
    """The keys of a job; an option of a model that is infinite is a text, which a job reads too."""
    keys = job.model_dump().items()
    return {key: str(x) if isinstance(x, float) and not isfinite(x) else x for key, x in keys}


def _of_texts(texts: Mapping[str, str]) -> str:
    return f"{zlib.crc32(to_json(sorted(texts.items())).encode()):08x}"
