"""Data sets by name: what is known of them, and how they are received, compared and converted."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import pickle
import sys
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request

import numpy as np
import pytest
import scipy.sparse as sp

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.graph.datasets import dataset, download
from graphtheta.graph.datasets.convert import FORMS, convert
from graphtheta.graph.datasets.sources import FACTS, RawFile
from graphtheta.run.job.presets import PRESETS, preset

SLOW = 0.3


class Server(ThreadingHTTPServer):
    """Serves bytes by path; some paths have a fault.

    Attributes:
        files: Content by path.
        faults: By path, one of: truncated, slow, redirect, dropped, a number (the answer).
        asked: Paths in the order of the requests.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.faults: dict[str, Any] = {}
        self.asked: list[str] = []
        self.stopped = threading.Event()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    """Answers a request with the content or the fault of its path."""

    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        fault = self.server.faults.get(self.path)
        content = self.server.files.get(self.path)
        if isinstance(fault, int) or (content is None and fault != "redirect"):
            self.send_error(fault if isinstance(fault, int) else 404)
            return
        if fault == "redirect":
            self.send_response(302)
            self.send_header("Location", f"/elsewhere{self.path}")
            self.end_headers()
            return
        assert content is not None
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2])
        self.wfile.flush()
        if fault == "slow":
            self.server.stopped.wait()
        elif fault != "truncated":
            self.wfile.write(content[len(content) // 2 :])

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    thread = threading.Thread(target=one.serve_forever, daemon=True)
    thread.start()
    yield one
    one.stopped.set()
    one.shutdown()
    one.server_close()
    thread.join()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder, which does not exist yet."""
    monkeypatch.setenv("GRAPHTHETA_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def planetoid_files(name: str) -> dict[str, bytes]:
    """Eight nodes: two of each of two classes for training, two more, two for tests."""
    one_hot = np.eye(2)[[0, 1, 0, 1, 0, 1]]
    features = sp.csr_matrix(np.eye(8, 30, dtype=np.float32))
    lists = {node: [(node + 1) % 8] for node in range(8)}
    parts = {
        "x": features[:4],
        "y": one_hot[:4],
        "tx": features[6:],
        "ty": np.eye(2),
        "allx": features[:6],
        "ally": one_hot,
        "graph": lists,
    }
    return {
        **{f"ind.{name}.{part}": pickle.dumps(value, 2) for part, value in parts.items()},
        f"ind.{name}.test.index": b"7\n6\n",
    }


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def attributed_file() -> bytes:
    """A circle of eight nodes and a bag of three words; texts as objects, which are not read."""
    adjacency = sp.csr_matrix(np.roll(np.eye(8, dtype=np.float32), 1, axis=1))
    words = sp.csr_matrix(np.tile([0.0, 2.0, 1.0], (8, 1)))
    parts = {
        f"{name}_{part}": value
        for name, matrix in (("adj", adjacency), ("attr", words))
        for part, value in zip(
            ("data", "indices", "indptr", "shape"),
            (matrix.data, matrix.indices, matrix.indptr, np.array(matrix.shape)),
            strict=True,
        )
    }
    texts = np.array(["a", None], object)
    return npz(**parts, labels=np.arange(8, dtype=np.int8) % 2, class_names=texts)


def triples_file(line_end: str = "\n") -> bytes:
    file = io.BytesIO()
    texts = {
        "valid": ["c\tlikes\ta"],
        "train": ["a\tlikes\tb", "b\tknows\tc"],
        "test": ["d\tknows\ta"],
    }
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for part, lines in texts.items():
            content = "".join(line + line_end for line in lines).encode()
            member = tarfile.TarInfo(f"./{part}.txt")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


RATINGS = b"6,2,4,30.5\n1,6,-10,10\n2,15,1,20.25\n"
# name and files of a data set of each form
FILES: dict[str, tuple[str, dict[str, bytes]]] = {
    "planetoid": ("cora", planetoid_files("cora")),
    "attributed": ("amazon_photo", {"amazon_electronics_photo.npz": attributed_file()}),
    "triples": ("wn18rr", {"WN18RR.tar.gz": triples_file()}),
    "ratings": ("bitcoin_otc", {"soc-sign-bitcoinotc.csv.gz": gzip.compress(RATINGS)}),
}


def publish(
    monkeypatch: pytest.MonkeyPatch, server: Server, form: str = "planetoid", known: bool = True
) -> str:
    """Give a data set other files, which a server has, and return its name."""
    name, files = FILES[form]
    raw = tuple(
        RawFile(
            address=f"{server.address}/{file}",
            n_bytes=len(content) if known else None,
            sha256=hashlib.sha256(content).hexdigest() if known else "",
        )
        for file, content in files.items()
    )
    server.files |= {f"/{file}": content for file, content in files.items()}
    monkeypatch.setitem(FACTS, name, replace(FACTS[name], files=raw))
    return name


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def told(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    return out + err


def test_everything_is_known_of_every_name() -> None:
    assert set(FACTS) == set(dataset.ENTRIES)
    for name, facts in FACTS.items():
        assert bool(facts.files) == bool(facts.form) and (not facts.form or facts.form in FORMS)
        assert not facts.files or dataset.ENTRIES[name].file
        names = [file.name for file in facts.files]
        assert len({*names, dataset.ENTRIES[name].file}) == len(names) + 1
        for file in facts.files:
            assert file.address.startswith("https://")
            assert bool(file.sha256) == (file.n_bytes is not None)
            assert not file.sha256 or (len(file.sha256) == 64 and int(file.sha256, 16) >= 0)


@pytest.mark.parametrize("name", dataset.generated())
def test_facts_are_those_of_the_generated_graphs(name: str) -> None:
    graph = gt.load(name)
    facts = FACTS[name]
    found = (graph.n_nodes, graph.n_edges, graph.n_features, graph.n_classes)
    assert found == (facts.nodes, facts.edges, facts.features, facts.classes)


def test_every_preset_has_an_address() -> None:
    assert all(FACTS[preset(name)["dataset"]].files for name in PRESETS)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("form", FILES)
def test_original_files_become_a_graph(
    form: str,
    known: bool,
    server: Server,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = publish(monkeypatch, server, form, known)
    assert main(["download", name]) == 0
    words = told(capsys)
    assert ("no checksum is published" in words) != known
    assert left_in(folder) == [f"{name}.npz", f"{name}.npz.json"]
    assert gt.load(name, split="none").n_nodes > 0
    record = json.loads((folder / f"{name}.npz.json").read_text())
    assert record["downloaded"] == name
    assert record["sha256"] == hashlib.sha256((folder / f"{name}.npz").read_bytes()).hexdigest()
    for entry in record["files"]:
        content = FILES[form][1][entry["name"]]
        assert entry["address"] == f"{server.address}/{entry['name']}"
        assert (entry["n_bytes"], entry["sha256"]) == (
            len(content),
            hashlib.sha256(content).hexdigest(),
        )
        assert entry["compared"] == ("published" if known else "nothing")
    # again: nothing is asked for, nothing changes
    server.asked.clear()
    before = (folder / f"{name}.npz").stat()
    assert main(["download", name]) == 0
    assert "nothing was received" in told(capsys) and not server.asked
    assert (folder / f"{name}.npz").stat() == before


def converted(form: str, folder: Path) -> Any:
    name, files = FILES[form]
    for file, content in files.items():
        (folder / file).write_bytes(content)
    with (folder / f"{name}.npz").open("wb") as to:
        convert(form, [folder / file for file in files], to, {"name": name})
    return np.load(folder / f"{name}.npz")


def test_planetoid_keeps_its_split(tmp_path: Path) -> None:
    converted("planetoid", tmp_path)
    graph = gt.load("cora", data_dir=tmp_path, normalise_features="none")
    assert (graph.n_nodes, graph.n_edges, graph.n_features, graph.n_classes) == (8, 16, 30, 2)
    assert [np.flatnonzero(m).tolist() for m in (graph.train, graph.val, graph.test)] == [
        [0, 1, 2, 3],
        [4, 5],
        [6, 7],
    ]
    # the first row of tx is node 7
    assert graph.x.toarray().argmax(axis=1).tolist() == [0, 1, 2, 3, 4, 5, 7, 6]
    assert graph.y.tolist() == [0, 1, 0, 1, 0, 1, 1, 0]


def test_attributed_graphs_are_as_stored(tmp_path: Path) -> None:
    file = converted("attributed", tmp_path)
    assert file["edge_index"].tolist() == [list(range(8)), [1, 2, 3, 4, 5, 6, 7, 0]]
    graph = gt.load("amazon_photo", data_dir=tmp_path, split="none")
    assert (graph.n_nodes, graph.n_edges, graph.n_classes) == (8, 16, 2)
    assert graph.y.tolist() == [0, 1] * 4
    x = graph.x.toarray() if sp.issparse(graph.x) else np.asarray(graph.x)
    assert x.tolist() == [[0, 1, 1]] * 8


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_triples_are_numbered_by_first_appearance(tmp_path: Path, line_end: str) -> None:
    path = tmp_path / "triples.tar.gz"
    path.write_bytes(triples_file(line_end))
    arrays = FORMS["triples"]([path])
    assert arrays["entity_names"].tolist() == ["c", "a", "b", "d"]
    assert arrays["relation_names"].tolist() == ["likes", "knows"]
    assert arrays["edge_index"].tolist() == [[0, 1, 2, 3], [1, 2, 0, 1]]
    assert arrays["edge_type"].tolist() == [0, 0, 1, 1]
    # validation comes first in this archive
    assert arrays["edge_split"].tolist() == [1, 0, 0, 2]


def test_ratings_are_sorted_by_time(tmp_path: Path) -> None:
    file = converted("ratings", tmp_path)
    assert file["orig_id"].tolist() == [1, 2, 6, 15]
    assert file["edge_index"].tolist() == [[0, 1, 2], [2, 3, 1]]
    assert file["edge_attr"].tolist() == [[-10, 10], [1, 20.25], [4, 30.5]]


@pytest.mark.parametrize("form", FILES)
@pytest.mark.parametrize("content", [b"", b"no such file", b"\x1f\x8b\x08damaged", npz(a=[1])])
def test_damaged_originals_leave_nothing(
    form: str,
    content: bytes,
    server: Server,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = publish(monkeypatch, server, form, known=False)
    path = f"/{next(iter(FILES[form][1]))}"
    server.files[path] = content
    assert main(["download", name]) == 1
    words = told(capsys)
    assert server.address in words and "nothing was kept" in words and words.count("\n") == 1
    assert left_in(folder) == []


@pytest.mark.parametrize(
    "fault, words",
    [
        (404, ["404", "--from URL_OR_FOLDER"]),
        (500, ["500", "--from URL_OR_FOLDER"]),
        ("truncated", ["ended after", "run the command again"]),
        ("slow", ["timed out", "check the network", "--from URL_OR_FOLDER"]),
        ("changed", ["has the SHA-256", "the published one", "--from URL_OR_FOLDER"]),
        ("longer", ["has more than", "--from URL_OR_FOLDER"]),
        ("shorter", ["bytes", "--from URL_OR_FOLDER"]),
    ],
)
def test_a_broken_download_leaves_nothing(
    fault: Any,
    words: list[str],
    server: Server,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = publish(monkeypatch, server)
    monkeypatch.setattr(download, "PATIENCE", SLOW)
    # the last file but one, when others have been received
    path = f"/ind.{name}.graph"
    content = server.files[path]
    changed = {"changed": content[::-1], "longer": content + b"x", "shorter": content[:-1]}
    server.files[path] = changed.get(fault, content)
    server.faults[path] = fault
    assert main(["download", name]) == 1
    message = told(capsys)
    assert f"{server.address}{path}" in message and message.count("\n") == 1
    assert all(word in message for word in words)
    assert left_in(folder) == []
    # and the next one starts afresh
    server.faults.clear()
    server.files[path] = content
    assert main(["download", name]) == 0 and gt.load(name).n_nodes == 8


def test_redirects_are_followed(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = publish(monkeypatch, server)
    for path in list(server.files):
        server.files[f"/elsewhere{path}"] = server.files.pop(path)
        server.faults[path] = "redirect"
    assert main(["download", name]) == 0 and gt.load(name).n_nodes == 8


@pytest.mark.parametrize(
    "first, then, follows",
    [
        ("https://a/x", "https://b/x", True),
        ("http://a/x", "https://b/x", True),
        ("http://a/x", "http://b/x", True),
        ("https://a/x", "http://b/x", False),
    ],
)
def test_no_redirection_leaves_encryption(first: str, then: str, follows: bool) -> None:
    words = {"fp": None, "code": 302, "msg": "Found", "headers": {}, "newurl": then}
    request = Request(first)
    if follows:
        made = download.SafeRedirects().redirect_request(request, **words)
        assert made.full_url == then
    else:
        with pytest.raises(URLError, match="not encrypted"):
            download.SafeRedirects().redirect_request(request, **words)


def test_an_interrupt_leaves_nothing(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    name = publish(monkeypatch, server)
    monkeypatch.setattr(download, "check_graph", interrupted)
    with pytest.raises(KeyboardInterrupt):
        main(["download", name])
    assert left_in(folder) == []


def test_without_a_network(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    address = "http://127.0.0.1:9/ind.cora.x"
    monkeypatch.setitem(FACTS, "cora", replace(FACTS["cora"], files=(RawFile(address),)))
    assert main(["download", "cora"]) == 1
    words = told(capsys)
    assert address in words and "graphtheta download cora --from URL_OR_FOLDER" in words
    assert left_in(folder) == []


def test_an_unpublished_checksum_must_stay_that_of_the_first_download(
    server: Server,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = publish(monkeypatch, server, "ratings", known=False)
    (path,) = server.files
    good = server.files[path]
    assert main(["download", name]) == 0
    (folder / f"{name}.npz").unlink()
    server.files[path] = gzip.compress(RATINGS.replace(b"-10", b"+10"))
    told(capsys)
    assert main(["download", name]) == 1
    assert "that of the first download" in told(capsys)
    assert left_in(folder) == [f"{name}.npz.json"]
    server.files[path] = good
    assert main(["download", name]) == 0
    assert "are the expected ones" in told(capsys)
    # without the record it counts as the first one
    for file in folder.iterdir():
        file.unlink()
    server.files[path] = gzip.compress(RATINGS.replace(b"-10", b"+10"))
    assert main(["download", name]) == 0


@pytest.mark.parametrize("form", FILES)
@pytest.mark.parametrize("by_address", [True, False])
@pytest.mark.parametrize("ready", [True, False])
def test_a_mirror_has_either_kind_of_files(
    form: str,
    by_address: bool,
    ready: bool,
    server: Server,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = publish(monkeypatch, server, form)
    files = FILES[form][1]
    server.files.clear()
    if ready:
        made = tmp_path / "made"
        made.mkdir()
        converted(form, made)
        files = {f"{name}.npz": (made / f"{name}.npz").read_bytes()}
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    for file, content in files.items():
        server.files[f"/mirror/{file}"] = content
        (mirror / file).write_bytes(content)
    source = f"{server.address}/mirror/" if by_address else str(mirror)
    assert main(["download", name, "--from", source]) == 0
    assert gt.load(name, split="none").n_nodes > 0
    record = json.loads((folder / f"{name}.npz.json").read_text())
    assert all(entry["address"].startswith(source) for entry in record["files"])
    assert {entry["compared"] for entry in record["files"]} == {"nothing" if ready else "published"}


def test_originals_of_a_mirror_are_compared_with_published_checksums(
    server: Server,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = publish(monkeypatch, server)
    for file, content in FILES["planetoid"][1].items():
        (tmp_path / file).write_bytes(content)
    (tmp_path / f"ind.{name}.y").write_bytes(FILES["planetoid"][1][f"ind.{name}.y"][::-1])
    assert main(["download", name, "--from", str(tmp_path)]) == 1
    assert "the published one" in told(capsys) and left_in(folder) == []


@pytest.mark.parametrize(
    "words, message",
    [
        (["download"], "NAME"),
        (["download", "corra"], "did you mean 'cora'"),
        (["download", "sbm"], "generated and needs no download"),
        (["download", "mol_hiv"], "graphtheta download mol_hiv --from URL_OR_FOLDER"),
        (["download", "cora", "--from", "nowhere"], "--from nowhere: there is no such folder"),
        (["download", "cora", "--from", "ftp://a/b"], "--from ftp://a/b: expected an address"),
        (["datasets", "corra"], "did you mean 'cora'"),
    ],
)
def test_bad_usage(
    words: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    said = told(capsys)
    assert message in said and said.count("\n") == 1 and left_in(folder) == []


def test_files_of_others_are_left_alone(
    server: Server,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = publish(monkeypatch, server)
    folder.mkdir()
    path = folder / f"{name}.npz"
    path.write_bytes(b"mine")
    assert main(["download", name]) == 0
    assert "no record of a download" in told(capsys) and path.read_bytes() == b"mine"
    path.unlink()
    record = folder / f"{name}.npz.json"
    record.write_text("mine")
    assert main(["download", name]) == 1
    assert "no record of a download" in told(capsys) and record.read_text() == "mine"
    record.unlink()
    part = folder / f"{name}.npz.part"
    part.mkdir()
    (part / "thesis").write_text("mine")
    assert main(["download", name]) == 1
    assert (part / "thesis").read_text() == "mine" and left_in(folder) == [part.name]
    (part / "thesis").unlink()
    part.rmdir()
    # what was downloaded and changed since
    assert main(["download", name]) == 0
    path.write_bytes(path.read_bytes() + b"x")
    told(capsys)
    assert main(["download", name]) == 1
    assert "is not the file that was downloaded" in told(capsys)


def test_a_killed_download_is_swept_by_the_next_one(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = publish(monkeypatch, server)
    part = folder / f"{name}.npz.part"
    part.mkdir(parents=True)
    (part / ".lock").write_text(
        '{"graphtheta": "lock", "host": "gone", "pid": 1, "started": "1"}\n'
    )
    (part / f"ind.{name}.x").write_bytes(b"half")
    assert main(["download", name]) == 0
    assert left_in(folder) == [f"{name}.npz", f"{name}.npz.json"]


def test_one_process_at_a_time(
    server: Server,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = publish(monkeypatch, server)
    folder.mkdir()
    with download.workspace(folder / f"{name}.npz.part", ["a"]):
        assert main(["download", name]) == 1
        assert "another process downloads this data set" in told(capsys)
        assert left_in(folder) == [f"{name}.npz.part"]
    assert left_in(folder) == [] and not server.asked


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_a_bar_on_a_terminal_only(
    stream: type[io.StringIO], server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = publish(monkeypatch, server)
    shown = stream()
    monkeypatch.setattr(sys, "stderr", shown)
    assert main(["download", name]) == 0
    assert (f"ind.{name}.allx" in shown.getvalue()) == shown.isatty()


def test_a_fresh_machine(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A preset names the command that gets its data, which go to the user's cache folder, where the
    preset finds them.
    """
    name = publish(monkeypatch, server)
    monkeypatch.delenv("GRAPHTHETA_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(dataset, "BESIDE", Path("no", "such", "folder"))
    monkeypatch.chdir(tmp_path)
    words = ["train", "--preset", "cora-gcn", "--epochs", "1", "--backend", "reference"]
    assert main(words) == 2
    assert f"graphtheta download {name};" in told(capsys)
    assert main(["download", name]) == 0
    assert (tmp_path / "graphtheta" / "data" / "cora.npz").is_file()
    assert main(words) == 0
    # with --data-dir the command has it too; a data set without an address asks for a place
    assert main([*words, "--data-dir", "else where"]) == 2
    assert "graphtheta download cora --data-dir 'else where'" in told(capsys)
    assert main(["train", "--dataset", "mol_hiv"]) == 2
    assert "graphtheta download mol_hiv --from URL_OR_FOLDER" in told(capsys)


def test_the_list(
    server: Server,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = publish(monkeypatch, server, "ratings", known=False)
    assert main(["datasets"]) == 0
    words = told(capsys)
    lines = {line.split()[0]: line for line in words.splitlines() if line}
    assert set(dataset.ENTRIES) <= set(lines)
    assert "2,708" in lines["cora"] and "github.com/kimiyoung/planetoid" in lines["cora"]
    assert "1 unknown" in lines[name]
    assert main(["datasets", name, "cora"]) == 0
    words = told(capsys)
    assert "SHA-256 unknown until the first download" in words and server.address in words
    assert all(file.address in words and file.sha256 in words for file in FACTS["cora"].files)
    assert main(["download", name]) == 0
    told(capsys)
    assert main(["datasets", name]) == 0
    digest = hashlib.sha256(FILES["ratings"][1]["soc-sign-bitcoinotc.csv.gz"]).hexdigest()
    assert f"{digest} (of the first download)" in told(capsys)
    assert main(["datasets", "--json"]) == 0
    known = {entry["name"]: entry for entry in json.loads(told(capsys))}
    assert set(known) == set(dataset.ENTRIES)
    assert known["cora"]["nodes"] == 2708 and known["cora"]["path"] is None
    assert known["cora"]["n_bytes"] == sum(f.n_bytes or 0 for f in FACTS["cora"].files)
    assert known[name]["files"][0]["sha256"] == ""
    assert known[name]["files"][0]["recorded"]["sha256"] == digest
    assert known[name]["path"] == str(folder / f"{name}.npz")
