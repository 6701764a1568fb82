"""Reads .npy arrays from untrusted files: no pickles, and no more memory than the file has bytes.

The header is read first. The array is read or mapped only if the declared dtype and shape are
accepted and the declared size is that of the file. One that is read must fit into memory.
"""

from __future__ import annotations

import io
import math
import mmap
import os
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from graphtheta.base.memory import total_bytes
from graphtheta.base.regular import open_regular
from graphtheta.errors import FormatError

# what NumPy, zipfile and zlib raise on damaged files
UNREADABLE = (
    OSError,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    SyntaxError,
    RuntimeError,
    MemoryError,
    OverflowError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    tokenize.TokenError,
)
AGAIN = "the file is damaged or incomplete; copy or download it again"
# the header of a plain array takes 118 bytes; NumPy allocates the length a damaged one declares
HEAD = 12 + 10_000
# first surrogate and last code of Unicode
SURROGATES = range(0xD800, 0xE000)
LAST_CODE = 0x10FFFF


def read_array(
    stream: Any, size: int, at: str, kinds: str = "fiub", ndim: int | None = None
) -> np.ndarray:
    """One array in .npy form.

    Args:
        stream: Seekable binary stream at its beginning.
        size: Number of bytes in it.
        at: File and field, for errors.
        kinds: Letters of the numpy dtype kinds accepted (f floats, i and u integers, b bool, U
            text).
        ndim: Number of axes; any if None.

    Returns:
        The array, in the byte order of this machine.

    Raises:
        FormatError: Of another kind or number of axes, larger than memory, or damaged; says where,
            and what to do.
    """
    try:
        head = io.BytesIO(stream.read(HEAD))
        shape, _, dtype = read_header(head)
        _check(at=at, shape=shape, dtype=dtype, n_bytes=size - head.tell(), kinds=kinds, ndim=ndim)
        stream.seek(0)
        return _checked(at, npy.read_array(stream, allow_pickle=False))
    except FormatError:
        raise
    except UNREADABLE as error:
        raise FormatError(
            f"{at} cannot be read ({error or type(error).__name__}); {AGAIN}"
        ) from error


def read_npy(path: str | os.PathLike[str], what: str, kinds: str, ndim: int) -> np.ndarray:
    """The array of a .npy file.

    Args:
        path: The file.
        what: What it should hold, for errors.
        kinds, ndim: As in ``read_array``.

    Raises:
        FormatError: It is missing, of another kind, larger than memory, or damaged.
    """
    at = f"{os.fspath(path)}: the array of {what}"
    try:
        with open_regular(path) as stream:
            return read_array(
                stream=stream, size=os.fstat(stream.fileno()).st_size, at=at, kinds=kinds, ndim=ndim
            )
    except OSError as error:
        raise FormatError(
            f"{at} cannot be read: {error.strerror or error}; check the path"
        ) from error


def map_npy(path: str | os.PathLike[str]) -> np.ndarray:
    """The array of a .npy file, mapped into memory: the system reads the pages that are used.

    The header is compared with the size of the file, and bools are checked. Other values are not.

    Args:
        path: A file that ``numpy.save`` wrote: numbers in C order, with one axis or more.

    Returns:
        A read-only array that keeps the mapping open.

    Raises:
        FormatError: The file is missing, damaged, or holds something else.
    """
    at = f"{os.fspath(path)}: cannot be mapped as a column"
    problem = ""
    try:
        # opening a pipe would block
        if not Path(path).is_file():
            problem = " (there is no such file)"
        else:
            with Path(path).open("rb") as stream:
                head = io.BytesIO(stream.read(HEAD))
                shape, by_columns, dtype = read_header(head)
                if (
                    shape
                    and dtype.kind in "fiub"
                    and dtype.isnative
                    and not (by_columns and len(shape) > 1)
                ):
                    return _checked(
                        at,
                        _mapped(at=at, stream=stream, shape=shape, dtype=dtype, begin=head.tell()),
                    )
    except FormatError:
        raise
    except UNREADABLE as error:
        problem = f" ({error or type(error).__name__})"
    raise FormatError(
        f"{at}{problem}; expected an array of numbers with one axis or more, in C order; write it"
        " with numpy.save(path, numpy.ascontiguousarray(values))"
    )


def _mapped(
    at: str, stream: Any, shape: tuple[int, ...], dtype: np.dtype, begin: int
) -> np.ndarray:
    """The array that begins at a byte of an open file."""
    if not _declared(at, shape, dtype, os.fstat(stream.fileno()).st_size - begin):
        return np.zeros(shape, dtype)
    return np.ndarray(shape, dtype, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ), begin)


def in_files(x: Any) -> bool:
    """Whether the values of an array are in mapped files, or computed from such values when they
    are read.
    """
    while isinstance(x, np.ndarray):
        x = x.base
    return isinstance(x, mmap.mmap) or bool(getattr(x, "in_files", False))


def read_header(stream: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, whether in Fortran order, and dtype of a .npy stream."""
    version = npy.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"npy format version {version} is for structured arrays only")
    return (
        npy.read_array_header_1_0(stream)
        if version == (1, 0)
        else npy.read_array_header_2_0(stream)
    )


def _check(
    at: str, shape: tuple[int, ...], dtype: np.dtype, n_bytes: int, kinds: str, ndim: int | None
) -> None:
    """Check that the declared array is accepted, is in the file and fits into memory."""
    if dtype.hasobject:
        raise FormatError(
            f"{at} holds Python objects (dtype {dtype}), which are not loaded because unpickling"
            " can run code; save plain number or text arrays"
        )
    if dtype.kind not in kinds:
        raise FormatError(
            f"{at} has dtype {dtype}, expected {kinds_text(kinds)}; convert it before saving"
        )
    if ndim is not None and len(shape) != ndim:
        raise FormatError(
            f"{at} has shape {list(shape)}, expected {ndim} axes; reshape it before saving"
        )
    declared = _declared(at, shape, dtype, n_bytes)
    # a header can declare any number of empty rows; [2, 0] is a graph without edges
    if not declared and shape and (shape[0] > 2 or not dtype.itemsize):
        raise FormatError(f"{at} has shape {list(shape)} of {dtype} and is empty; leave it out")
    if declared > total_bytes():
        raise FormatError(
            f"{at} needs {declared / 2**30:.1f} GiB and this machine has"
            f" {total_bytes() / 2**30:.1f}; use a larger machine"
        )


def _declared(at: str, shape: tuple[int, ...], dtype: np.dtype, n_bytes: int) -> int:
    """Bytes of the declared array, which are those that the file holds after the header."""
    declared = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or declared != n_bytes:
        raise FormatError(
            f"{at}: the header declares shape {list(shape)} of {dtype}, {declared} bytes, but the"
            f" file holds {n_bytes}; {AGAIN}"
        )
    return declared


def _checked(at: str, array: np.ndarray) -> np.ndarray:
    """The array in native byte order, if its bytes are valid values of the dtype."""
    array = np.asarray(array, array.dtype.newbyteorder("="))
    if array.dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
        raise FormatError(f"{at} is bool and has bytes other than 0 and 1; {AGAIN}")
    if array.dtype.kind == "U" and array.size:
        codes = np.atleast_1d(array).view(np.uint32)
        if codes.max() > LAST_CODE or bool(
            ((codes >= SURROGATES.start) & (codes < SURROGATES.stop)).any()
        ):
            raise FormatError(f"{at} is text and has codes that are not characters; {AGAIN}")
    return array


def kinds_text(kinds: str) -> str:
    """Dtype kinds in words."""
    names = {"f": "floats", "i": "integers", "u": "unsigned integers", "b": "bool", "U": "text"}
    return " or ".join(names[k] for k in kinds)
