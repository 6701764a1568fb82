"""Named arrays in the safetensors format, which PyTorch, JAX and others read too.

The safetensors library reads the header of a file and checks its sizes against the number of bytes
before memory is allocated. Files are written here, array after array, so that a full disk raises
OSError and that arrays which are mapped from other files are not copied into memory.

Source: https://github.com/huggingface/safetensors
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors import SafetensorError, safe_open

from graphtheta.base.regular import open_regular
from graphtheta.base.strict_json import to_json
from graphtheta.errors import FormatError

METADATA = "__metadata__"
# arrays whose names begin so have a row for each node; they may be larger than memory, and are
# mapped when they are read
TABLES = ("embedding/", "best_embedding/")
TYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "|u1",
    "BOOL": "|b1",
}
NAMES = {text: name for name, text in TYPES.items()}
# bytes written at a time
CHUNK = 1 << 24


def checksum(x: np.ndarray) -> int:
    """CRC-32 of type, shape and content.

    It protects against damage, not forgery: every change within 32 neighbouring bits is detected,
    and it is four times as fast as BLAKE2.
    """
    return zlib.crc32(_raw(x).data, zlib.crc32(f"{x.dtype.str}{list(x.shape)}".encode()))


def write_tensors(
    f: BinaryIO, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]
) -> None:
    """Write a file of arrays.

    Args:
        f: The file.
        arrays: Numeric arrays, by name.
        metadata: Texts to store with them.

    Raises:
        FormatError: An array is not numeric; nothing has been written.
        OSError: The file cannot be written.
    """
    head: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    # numbers of more bytes come first, so that all are aligned
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    end = 0
    for name in order:
        x = arrays[name]
        if x.dtype.str not in NAMES:
            raise FormatError(
                f"{name}: an array of dtype {x.dtype} cannot be written; convert it to numbers"
                " first"
            )
        head[name] = {
            "dtype": NAMES[x.dtype.str],
            "shape": list(x.shape),
            "data_offsets": [end, end + x.nbytes],
        }
        end += x.nbytes
    text = to_json(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    f.write(len(text).to_bytes(8, "little") + text)
    for name in order:
        raw = _raw(arrays[name])
        for begin in range(0, len(raw), CHUNK):
            f.write(raw[begin : begin + CHUNK].data)


def read_tensors(path: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
    """The texts and the arrays of a file; ``TABLES`` are mapped, and are not in memory.

    Raises:
        FormatError: The file cannot be read or is damaged.
    """
    try:
        with open_regular(path) as f, safe_open(path, "np") as file:
            length = int.from_bytes(f.read(8), "little")
            head = json.loads(f.read(length))
            names = list(file.keys())
            for entry in (head[name] for name in names):
                if entry["dtype"] not in TYPES:
                    raise FormatError(
                        f"{path}: holds numbers of type {entry['dtype']}, which NumPy does not"
                        " support; convert them before they are saved"
                    )
            arrays = {
                name: (
                    _mapped(path, 8 + length, head[name])
                    if name.startswith(TABLES)
                    else file.get_tensor(name)
                )
                for name in names
            }
    except OSError as e:
        raise FormatError(f"{path}: cannot be read: {e.strerror or e}") from None
    except SafetensorError as e:
        raise FormatError(
            f"{path}: damaged: {str(e).removeprefix('Error while deserializing header: ')}"
        ) from None
    return head.get(METADATA) or {}, arrays


def _mapped(path: Path, begin: int, entry: Mapping[str, Any]) -> np.ndarray:
    dtype = np.dtype(TYPES[entry["dtype"]])
    shape = tuple(entry["shape"])
    # nothing cannot be mapped
    return (
        np.memmap(path, dtype, "r", begin + entry["data_offsets"][0], shape)
        if prod(shape)
        else np.zeros(shape, dtype)
    )


def _raw(x: np.ndarray) -> np.ndarray:
    """The bytes of an array in C order, without a copy if it has this order."""
    raw: np.ndarray = np.ascontiguousarray(x).reshape(-1).view(np.uint8)
    return raw
