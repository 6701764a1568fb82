"""Random damage to run folders and to files of given links, on 1 to 3 simulated ranks.

    python bench/fuzz_runs.py --inputs 500 --seed 1

A folder has one of its files cut, changed, removed, or taken from a run with other options. It is
evaluated, predicted with, resumed and reported: results must be those of the whole folder, or an
error of this project. Files of links and triples have other separators, ends of lines, quotes,
titles and ids, or damage: predictions must be those of the same pairs in a plain file, in the order
of the file, or one error on all ranks. Else there is a fault, and the exit code is 1.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import seeds

import graphtheta as gt
from graphtheta.cli.links import LINKS, TRIPLES, link_rows
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import GraphThetaError
from graphtheta.inspect.reports.page import page
from graphtheta.inspect.reports.run import read_run

Rng = np.random.Generator
N = 30
RELATIONS = ("a", "b b", "c")
KEYS: dict[str, Any] = {"hidden": 4, "backend": "reference", "scores": "logits", "epochs": 3}
# runs whose weights fit each other
OTHERS: dict[str, dict[str, Any]] = {
    "whole": {},
    "seed": {"seed": 3},
    "activation": {"activation": "tanh"},
    "direction": {"direction": "out"},
}
DAMAGES = ("other", "other", "delete", "empty", "cut", "append", "flip", "folder", "link")
ODD = (
    *('""', "", "NA", "-1", "+6", "06", "6.0", " 6", "6 ", "0x6", "9" * 30, "9" * 5000, "é"),
    *("9223372036854775808", "\x00", '"6', "n 1", "\u0663", "1_0", "\ufeff6"),
)


def graph(kind: str) -> gt.Graph:
    """A graph with classes, or for links or triples."""
    rng = np.random.default_rng(0)
    part = np.arange(N) % 5
    fields: dict[str, Any] = {
        "node_ids": np.array([f"n {i}" if i % 3 else f"0{i}" for i in range(N)])
    }
    if kind == "classes":
        fields = {"y": np.arange(N) % 3, "train": part < 2, "val": part == 2, "test": part == 3}
    elif kind == "triples":
        fields |= {
            "edge_columns": {"relation": rng.integers(0, len(RELATIONS), 150)},
            "meta": {"edge_categories": {"relation": RELATIONS}},
        }
    return gt.Graph(rng.integers(0, N, (2, 150)), N, x=rng.standard_normal((N, 4)), **fields)


class Folders:
    """Folders of runs, and what is done with damaged ones.

    Args:
        folder: For the runs.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.graph = graph("classes")
        for name, keys in OTHERS.items():
            gt.Trainer("gcn", self.graph, out=str(folder / name), **KEYS, **keys).fit()
        self.files = sorted(p for p in (folder / "whole").rglob("*") if p.is_file())
        self.uses: dict[str, Callable[[Comm, Path], Any]] = {
            "evaluate": lambda comm, run: self.opened(comm, run).evaluate("test"),
            "predict": lambda comm, run: self.opened(comm, run).predict(),
            "resume": self.resumed,
            "report": lambda comm, run: comm.rank or page(read_run(run)).endswith("</html>\n"),
        }
        self.whole = {name: self.used(name, self.copy("whole"), 1) for name in self.uses}

    def opened(self, comm: Comm, run: Path) -> Any:
        return gt.open_run(run, self.graph, comm=comm)

    def resumed(self, comm: Comm, run: Path) -> Any:
        keys = {**KEYS, "epochs": 5, "resume": True, "out": str(run)}
        history = gt.Trainer("gcn", self.graph, comm=comm, **keys).fit().history
        return {str(row["epoch"]): row["val_loss"] for row in history}

    def used(self, name: str, run: Path, size: int) -> Any:
        return run_simulated(size, self.uses[name], run)[0]

    def copy(self, name: str) -> Path:
        run = Path(tempfile.mkdtemp(dir=self.folder), "run")
        shutil.copytree(self.folder / name, run)
        return run

    def one(self, rng: Rng) -> str:
        """Damage a folder and use it; returns the words in which it was refused."""
        run = self.copy("whole")
        file = self.files[rng.integers(len(self.files))].relative_to(self.folder / "whole")
        damage(rng, run / file, self.folder / str(rng.choice(list(OTHERS)[1:])) / file)
        use = str(rng.choice(list(self.uses)))
        try:
            result = self.used(use, run, int(rng.integers(1, 4)))
        except GraphThetaError as error:
            return str(error)
        finally:
            shutil.rmtree(run.parent)
        if not alike(result, self.whole[use]):
            raise AssertionError(f"{use} with damaged {file}: another result")
        return ""


def damage(rng: Rng, path: Path, other: Path) -> None:
    """Damage a file."""
    how = str(rng.choice(DAMAGES))
    data = path.read_bytes()
    path.unlink()
    if how == "other" and other.is_file():
        shutil.copy(other, path)
    elif how == "folder":
        path.mkdir()
    elif how == "link":
        path.symlink_to(path.name)
    elif how != "delete":
        at = int(rng.integers(len(data))) if data else 0
        flipped = data[:at] + bytes(b ^ 4 for b in data[at : at + 1]) + data[at + 1 :]
        path.write_bytes(
            {"empty": b"", "cut": data[:at], "append": data + b"\n{}x"}.get(how, flipped)
        )


def alike(a: Any, b: Any) -> bool:
    """Whether results are equal to the rounding of any number of ranks."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(alike(x, b[key]) for key, x in a.items())
    if isinstance(a, tuple):
        return all(map(alike, a, b))
    return bool(np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True))


class Links:
    """Runs that score links and triples, and files that ask for some.

    Args:
        folder: For the runs.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.runs = {}
        for kind, model in (("links", "gcn"), ("triples", "rgcn")):
            own = graph(kind)
            run = folder / kind
            keys = {"task": kind[:-1], "self_loops": "no", "out": str(run)}
            gt.Trainer(model, own, **KEYS, **keys).fit()
            rows = [
                (a, *([r] if kind == "triples" else []), b)
                for a in own.original_ids.tolist()
                for b in own.original_ids.tolist()
                for r in (RELATIONS if kind == "triples" else [""])
            ]
            titles = TRIPLES if kind == "triples" else LINKS
            asked = self.scored(own, run, text(titles, rows).encode(), 1)[0]
            self.runs[kind] = own, run, rows, dict(zip(rows, asked[1].tolist(), strict=True))

    def scored(self, own: gt.Graph, run: Path, data: bytes, size: int) -> list[Any]:
        """Rows and scores of each rank, or the words in which it refused."""
        file = self.folder / "asked.csv"
        file.write_bytes(data)

        def work(comm: Comm) -> Any:
            rows = None
            model = gt.open_run(run, own, comm=comm)
            try:
                rows = link_rows(model, str(file), True)
            except GraphThetaError as error:
                return str(error)
            return rows and (rows.ids, np.ravel(rows.values))

        return run_simulated(size, work)

    def one(self, rng: Rng) -> str:
        """Ask for links; returns the words in which they were refused."""
        kind = str(rng.choice(list(self.runs)))
        own, run, every, scores = self.runs[kind]
        rows = [every[i] for i in rng.integers(0, len(every), rng.choice([0, 1, 9, 40]))]
        titles = TRIPLES if kind == "triples" else LINKS
        data, sound = written(rng, titles, rows)
        size = int(rng.integers(1, 4))
        results = self.scored(own, run, data, size)
        # ranks that are told of the error of another one say of which
        words = [x.removeprefix("rank 0: ") for x in results if isinstance(x, str)]
        if words and (len(words) < size or len(set(words)) > 1):
            raise AssertionError(f"ranks refuse in different words: {words}")
        if words:
            return words[0]
        ids, values = results[0]
        asked = [tuple(row) for row in ids.tolist()]
        if sound and asked != rows:
            raise AssertionError(f"{len(asked)} of {len(rows)} rows, or in another order")
        if not np.allclose(values, [scores[row] for row in asked], atol=1e-5):
            raise AssertionError("other scores than in a plain file")
        return ""


def text(titles: tuple[str, ...], rows: Any, separator: str = ",", end: str = "\n") -> str:
    return "".join(separator.join(row) + end for row in (titles, *rows))


def written(rng: Rng, titles: tuple[str, ...], rows: list[Any]) -> tuple[bytes, bool]:
    """A file of rows, and whether it has these rows if it is read."""
    how = int(rng.integers(8))
    rows = [list(row) for row in rows]
    if how == 0 and rows:
        rows[rng.integers(len(rows))][rng.integers(len(titles))] = str(rng.choice(ODD))
    elif how == 1 and rows:
        rows[rng.integers(len(rows))].append("x")
    elif how == 2:
        titles = titles[::-1]
    elif how == 3:
        rows = [[f'"{x}"' for x in row] for row in rows]
    end = str(rng.choice(["\n", "\r\n"]))
    separator = str(rng.choice([";", "\t", ", "])) if how == 4 else ","
    data = text(titles, rows, separator, end).encode(str(rng.choice(["utf-8", "utf-8-sig"])))
    if how == 5:
        at = int(rng.integers(len(data)))
        data = data[:at] + rng.bytes(1) + data[at + 1 :]
    elif how == 6:
        data = data[: rng.integers(len(data))]
    return data, how not in (0, 5, 6)


def search(numbers: range) -> seeds.Outcomes:
    """How many inputs were accepted and refused, and the faults."""
    quiet = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    with tempfile.TemporaryDirectory() as folder, quiet[0], quiet[1]:
        kinds = Folders(Path(folder)), Links(Path(folder))
        return seeds.outcomes(
            numbers, lambda seed: kinds[seed % 2].one(np.random.default_rng(seed))
        )


if __name__ == "__main__":
    sys.exit(seeds.main(__doc__, "inputs", 300, search))
