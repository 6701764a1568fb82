"""Downloads named data sets into the data folder.

A data set comes from its public address, from a mirror or from a folder. A mirror or folder holds
either the npz file of this package (``cora.npz``) or the original files under their own names,
which are then written as an npz file. Files are received in a folder ``cora.npz.part``, which one
process at a time has. A data set gets its name when all its files are complete, are those that are
known, and make a graph. A download that fails leaves nothing; what a killed process left is removed
by the next one.

Beside a data set, a record ``cora.npz.json`` keeps the address, size and SHA-256 of each file. An
original file whose checksum is not published must be the same at the next download: the first one
is trusted.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

from tqdm import tqdm

from graphtheta.base import private
from graphtheta.base.atomic import (
    BEGINNINGS,
    Taken,
    check_replaceable,
    claim,
    create,
    file_errors,
    make_folder,
    remove_folder,
    rename_own,
    write_json,
)
from graphtheta.base.wording import did_you_mean
from graphtheta.errors import ConfigError, FormatError, GraphThetaError
from graphtheta.graph.datasets import dataset
from graphtheta.graph.datasets.convert import convert
from graphtheta.graph.datasets.sources import FACTS, RawFile

# seconds without a byte after which a server counts as unreachable
PATIENCE = 30.0
BLOCK = 1 << 18
ELSEWHERE = "--from URL_OR_FOLDER"
WEB = ("http://", "https://")
# answers of a server that has no such file; stores of objects may answer 403
ABSENT = (403, 404, 410)


class NotThereError(FormatError):
    """A place has no file of this name."""


@dataclass(frozen=True)
class Received:
    """A file that was received.

    Attributes:
        name: Its name.
        address: Where it was.
        n_bytes: Its size.
        sha256: Its SHA-256.
        compared: With what it was compared: "published", "earlier" (its first download), or
            "nothing" (this is the first one).
    """

    name: str
    address: str
    n_bytes: int
    sha256: str
    compared: str


@dataclass(frozen=True)
class Downloaded:
    """A data set in the data folder.

    Attributes:
        path: Its file.
        received: The files that were received; empty if it was there.
        recorded: Whether a record says where it is from.
    """

    path: Path
    received: tuple[Received, ...]
    recorded: bool


def obtained(
    name: str, data_dir: str | os.PathLike[str] | None = None, source: str | None = None
) -> Downloaded:
    """Get a named data set into the data folder, unless it is there.

    Args:
        name: A name of :func:`graphtheta.graph.datasets.dataset.names`.
        data_dir: The data folder; by default ``$GRAPHTHETA_DATA``, else one in the cache folder of
            this user.
        source: Address of a mirror, or a folder; by default the public addresses.

    Raises:
        ConfigError: The name is unknown or needs no file, or no address of it is known.
        FormatError: A file cannot be received or is not the expected one, or the data folder
            cannot be written.
    """
    file = file_of(name)
    folder = dataset.download_folder(data_dir)
    path = folder / file
    if source is None and not FACTS[name].files and not path.exists():
        raise ConfigError(
            f"{name}: no public address is known; name the mirror or folder that has {file}:"
            f" graphtheta download {name} {ELSEWHERE}"
        )
    with file_errors(folder, f"the data set {name}", "choose another folder with --data-dir"):
        make_data_folder(folder)
        record = read_record(path)
        if path.exists():
            check_unchanged(path, record)
            return Downloaded(path, (), bool(record))
        check_replaceable(record_of(path), BEGINNINGS["download"])
        names = [file, *(raw.name for raw in FACTS[name].files)]
        with workspace(folder / f"{file}.part", names) as part:
            received = received_files(name=name, source=source, part=part, record=record)
            check_graph(name, part, received)
            own = {"n_bytes": (part / file).stat().st_size, "sha256": sha256_of(part / file)}
            content = {"downloaded": name, **own, "files": [asdict(one) for one in received]}
            write_json(
                path=record_of(path),
                value=content,
                begins=BEGINNINGS["download"],
                what="the record of the download",
            )
            rename_own(part / file, path)
    return Downloaded(path, received, True)


def file_of(name: str) -> str:
    """The file of a named data set.

    Raises:
        ConfigError: The name is unknown, or its graph is generated.
    """
    entry = dataset.ENTRIES.get(name)
    if entry is None:
        with_file = [other for other, its in dataset.ENTRIES.items() if its.file]
        raise ConfigError(
            f"unknown data set '{name}'{did_you_mean(name, with_file)}; known:"
            f" {', '.join(with_file)}"
        )
    if entry.file is None:
        raise ConfigError(f"{name} is generated and needs no download; use it by its name")
    return entry.file


def make_data_folder(folder: Path) -> None:
    """Make the data folder. The default one lies in that of compiled kernels, which only this user
    may be able to change.
    """
    if folder == dataset.user_data():
        private.make_folder(folder)
    else:
        make_folder(folder)


@contextmanager
def workspace(part: Path, names: list[str]) -> Iterator[Path]:
    """A folder for files of these names, which is removed when the block ends.

    Raises:
        FormatError: Another process has it.
    """
    pattern = re.compile("|".join(map(re.escape, names)))
    try:
        lock = claim(part, pattern)
    except Taken:
        raise FormatError(
            f"{part}: another process downloads this data set; wait for it, or choose another"
            " folder with --data-dir"
        ) from None
    try:
        yield part
    finally:
        remove_folder(part, pattern)
        os.close(lock)


def received_files(
    name: str, source: str | None, part: Path, record: dict[str, Any]
) -> tuple[Received, ...]:
    """Receive the files of a data set, and convert them unless they are in the form of this
    package.

    Args:
        name: Name of the data set.
        source: A mirror or folder, or None for the public addresses.
        part: Where the files go.
        record: That of an earlier download, or empty.
    """
    facts = FACTS[name]
    file = file_of(name)
    earlier = {entry["name"]: entry for entry in record.get("files", [])}
    remedy = f"graphtheta download {name} {ELSEWHERE}"
    if source is not None:
        try:
            ready = RawFile(address_in(source, file))
            return (receive(file=ready, to=part / file, earlier=earlier, remedy=remedy),)
        except NotThereError:
            if not facts.files:
                raise
    received = tuple(
        receive(
            file=raw if source is None else replace(raw, address=address_in(source, raw.name)),
            to=part / raw.name,
            earlier=earlier,
            remedy=remedy,
        )
        for raw in facts.files
    )
    meta = {"name": name, "licence": facts.licence, "sources": [one.address for one in received]}
    with located(name, received), create(part / file) as to:
        convert(facts.form, [part / raw.name for raw in facts.files], to, meta)
    return received


def check_graph(name: str, part: Path, received: tuple[Received, ...]) -> None:
    """Check that the file of a data set makes its graph."""
    with located(name, received):
        dataset.load(name, data_dir=part, split="none")


@contextmanager
def located(name: str, received: tuple[Received, ...]) -> Iterator[None]:
    """A block that reads received files, whose errors say where these are from."""
    try:
        yield
    except GraphThetaError as error:
        raise FormatError(
            f"what {received[0].address} holds does not make the data set {name}, and nothing was"
            f" kept: {error}"
        ) from error


def address_in(source: str, name: str) -> str:
    """Where a file of a mirror or folder is.

    Raises:
        ConfigError: The folder does not exist, or the mirror is none that is known.
    """
    if source.startswith(WEB):
        return f"{source.rstrip('/')}/{urllib.parse.quote(name)}"
    if "://" in source:
        raise ConfigError(
            f"--from {source}: expected an address with {' or '.join(WEB)}, or a folder"
        )
    if not Path(source).is_dir():
        raise ConfigError(f"--from {source}: there is no such folder")
    return str(Path(source, name))


def receive(file: RawFile, to: Path, earlier: dict[str, Any], remedy: str) -> Received:
    """Copy a file from its address, and compare its size and SHA-256 with what is known of it.

    Args:
        file: The file.
        to: The file to create.
        earlier: By name, size and SHA-256 of the first download.
        remedy: The command that gets the data set from elsewhere.

    Raises:
        NotThereError: The place has no such file.
        FormatError: It cannot be received, or is not the expected one.
    """
    expected = earlier.get(to.name, {}) if not file.sha256 else asdict(file)
    compared = "published" if file.sha256 else "earlier" if expected else "nothing"
    digest = hashlib.sha256()
    n_bytes = 0
    stream, stated = opened(file.address, remedy)
    with (
        stream,
        create(to) as copy,
        # on a terminal only
        tqdm(
            total=expected.get("n_bytes") or stated,
            unit="B",
            unit_scale=True,
            desc=to.name,
            leave=False,
            disable=None,
        ) as bar,
    ):
        for block in blocks(stream, file.address, remedy):
            copy.write(block)
            digest.update(block)
            n_bytes += len(block)
            bar.update(len(block))
            if n_bytes > expected.get("n_bytes", n_bytes):
                break
    if stated is not None and n_bytes < stated:
        raise FormatError(
            f"{file.address}: the connection ended after {n_bytes:,} of {stated:,} bytes, and"
            " nothing was kept; run the command again"
        )
    sha256 = digest.hexdigest()
    if expected and n_bytes != expected["n_bytes"]:
        many = "more than" if n_bytes > expected["n_bytes"] else f"{n_bytes:,} and not"
        raise FormatError(
            f"{file.address} has {many} {expected['n_bytes']:,} bytes{WHOSE[compared]}; nothing was"
            f" kept; {remedy} gets it from elsewhere"
        )
    if expected and sha256 != expected["sha256"]:
        raise FormatError(
            f"{file.address} has the SHA-256 {sha256} and not"
            f" {expected['sha256']}{WHOSE[compared]}; nothing was kept; {remedy} gets it"
            " from elsewhere"
        )
    return Received(
        name=to.name, address=file.address, n_bytes=n_bytes, sha256=sha256, compared=compared
    )


# whose size and checksum a file must have
WHOSE = {
    "published": ", the published one",
    "earlier": ", that of the first download, which the record (.npz.json) beside it keeps",
}


class SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirection from an encrypted to a plain address: a first download is trusted."""

    def redirect_request(
        self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: Any
    ) -> Any:
        if req.full_url.startswith("https://") and not newurl.startswith("https://"):
            raise urllib.error.URLError(f"it redirects to {newurl}, which is not encrypted")
        return super().redirect_request(
            req=req, fp=fp, code=code, msg=msg, headers=headers, newurl=newurl
        )


def opened(address: str, remedy: str) -> tuple[IO[bytes], int | None]:
    """A file at an address or in a folder, open to read, and its size if that is stated."""
    try:
        if address.startswith(WEB):
            request = urllib.request.Request(address, headers={"User-Agent": "graphtheta"})
            opener = urllib.request.build_opener(SafeRedirects)
            stream = opener.open(request, timeout=PATIENCE)
            length = stream.headers.get("Content-Length", "")
            return stream, int(length) if length.isdecimal() else None
        path = Path(address)
        return path.open("rb"), path.stat().st_size
    except urllib.error.HTTPError as error:
        kind = NotThereError if error.code in ABSENT else FormatError
        raise kind(
            f"{address}: the server answers {error.code} {error.reason}; {remedy} gets it from"
            " elsewhere"
        ) from None
    except FileNotFoundError:
        raise NotThereError(
            f"{address}: the file does not exist; name another place with {ELSEWHERE}"
        ) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise unreachable(address, error, remedy) from None


def blocks(stream: IO[bytes], address: str, remedy: str) -> Iterator[bytes]:
    """The content of a file; errors name its address."""
    while True:
        try:
            block = stream.read(BLOCK)
        except (OSError, http.client.HTTPException) as error:
            raise unreachable(address, error, remedy) from None
        if not block:
            return
        yield block


def unreachable(address: str, error: Exception, remedy: str) -> FormatError:
    """The error for an address from which nothing comes."""
    reason = getattr(error, "reason", None) or error
    return FormatError(
        f"{address} cannot be reached ({str(reason) or type(error).__name__}); check the network,"
        f" or get it from a mirror or folder: {remedy}"
    )


def record_of(path: Path) -> Path:
    """The record of where a data set is from."""
    return path.with_name(f"{path.name}.json")


def read_record(path: Path) -> dict[str, Any]:
    """The record of a data set; empty if there is none.

    Raises:
        FormatError: It is damaged.
    """
    at = record_of(path)
    try:
        record = json.loads(at.read_text(encoding="utf-8"))
        names = [entry["name"] for entry in record["files"]]
        whole = {"n_bytes", "sha256"}.issubset(record) and len(set(names)) == len(names)
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, KeyError, RecursionError):
        whole = False
    if not whole:
        raise FormatError(
            f"{at}: no record of a download; remove it, and {path.name} is downloaded as if for the"
            " first time"
        )
    return dict(record)


def check_unchanged(path: Path, record: dict[str, Any]) -> None:
    """Check that a data set is the one that was downloaded; one without a record is the user's.

    Raises:
        FormatError: It is not.
    """
    if record and (sha256_of(path) != record["sha256"]):
        raise FormatError(
            f"{path} is not the file that was downloaded, whose SHA-256 is {record['sha256']};"
            f" remove it and run graphtheta download {record['downloaded']} again"
        )


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
