"""Mistakes in tables: one error that names file, line and remedy, the same on every rank; or rows
left out and counted.
"""

from __future__ import annotations

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import graphtheta as gt
from graphtheta.__main__ import main
from graphtheta.engine.comm.simulated import run_simulated
from graphtheta.errors import ConfigError, DataError, FormatError, GraphThetaError
from graphtheta.importing.tables import text

GOOD = "src,dst,w\n" + "".join(f"{i},{i + 1},{i}.5\n" for i in range(40))


def told(folder, size=1, **options):
    """What every rank is told when it imports edges.* and nodes.*; each catches its error, so that
    none waits for another.
    """

    def work(comm):
        edges, nodes = (next(iter(folder.glob(f"{name}.*")), None) for name in ("edges", "nodes"))
        try:
            gt.import_graph(edges, nodes, to=folder / f"store-{size}", comm=comm, **options)
        except GraphThetaError as error:
            return type(error), str(error).removeprefix("rank 0: ")
        return None

    return run_simulated(size, work)


# files, options, class and words of the error
CASES = {
    "a value that is no number": (
        {"edges.csv": GOOD + "41,42,heavy\n"},
        {"edge_attr": "w"},
        DataError,
        [
            "edges.csv: 1 bad row; correct it, or leave bad rows out with --on-bad-row skip",
            (
                "edges.csv, line 42: column 'w': 'heavy' is not a number\n"
                "texts of nodes become features with --one-hot"
            ),
        ],
    ),
    "an id that is no integer": (
        {"edges.csv": GOOD + "\n41,you,1\n"},
        {"id_type": "int"},
        DataError,
        ["line 43: column 'dst': 'you' is not a whole number"],
    ),
    "too many values": (
        {"edges.csv": GOOD + "1,2\n1,2,3,4\n"},
        {},
        DataError,
        ["2 bad rows", "line 42: 2 columns, expected 3", "line 43: 4 columns, expected 3"],
    ),
    "a missing id": (
        {"edges.csv": GOOD + ",3,1\n"},
        {},
        DataError,
        ["line 42: column 'src' has no id"],
    ),
    "a missing text id": (
        {"edges.csv": GOOD + "x,,1\n"},
        {},
        DataError,
        ["line 42: column 'dst' has no id"],
    ),
    "a missing value": (
        {"edges.csv": GOOD + "1,2,\n1,2,inf\n"},
        {"edge_weight": "w"},
        DataError,
        [
            "line 42: column 'w' has no value",
            "line 43: column 'w': inf is no float32 number",
            "only labels and splits may be missing",
        ],
    ),
    "an unknown end": (
        {"edges.csv": GOOD, "nodes.csv": "id\n" + "".join(f"{i}\n" for i in range(35))},
        {},
        DataError,
        [
            "edges.csv: 6 bad rows",
            "edges.csv, line 36: column 'dst': no node has the id '35'",
            "line 37: column 'src': no node has the id '35'",
            "... and 1 more",
        ],
    ),
    "an id twice": (
        {"edges.csv": "src,dst\n1,2\n", "nodes.csv": "id\n1\n2\n\n1\n"},
        {},
        DataError,
        ["nodes.csv, line 5: column 'id': an earlier row has the id '1' too"],
    ),
    "another word": (
        {"edges.csv": "src,dst\n1,2\n", "nodes.csv": "id,part\n1,train\n2,trian\n"},
        {"split": "part"},
        DataError,
        ["nodes.csv, line 3: column 'part': 'trian' is none of train, val and test"],
    ),
    "no label": (
        {"edges.csv": "src,dst\n1,2\n", "nodes.csv": "id,part,y\n1,train,0\n2,val,\n"},
        {"split": "part", "label": "y"},
        DataError,
        ["nodes.csv, line 3: the row belongs to a split, but has no label"],
    ),
    "integers that float32 rounds": (
        {"edges.csv": "src,dst,t\n1,2,16777217\n2,1,3\n"},
        {"edge_attr": "t"},
        DataError,
        [
            "column 't' has integers such as 16777217, which float32 would round to 16777216",
            "--edge-columns",
        ],
    ),
    "no such column": (
        {"edges.csv": GOOD},
        {"dst": "dest"},
        DataError,
        [
            (
                "edges.csv: there is no column 'dest' (did you mean 'dst'?); the columns are src,"
                " dst, w"
            ),
            "--dst",
        ],
    ),
    "an empty file": (
        {"edges.csv": ""},
        {},
        FormatError,
        ["edges.csv: the file is empty; expected column names and rows"],
    ),
    "a header only": ({"edges.csv": "src,dst\n"}, {}, DataError, ["edges.csv: there are no rows"]),
    "a file cut off": (
        {"edges.csv.gz": gzip.compress(GOOD.encode())[:-20]},
        {},
        FormatError,
        ["edges.csv.gz: the file cannot be read"],
    ),
    "no Parquet": (
        {"edges.parquet": GOOD.encode()},
        {},
        FormatError,
        ["edges.parquet: the file cannot be read", "damaged"],
    ),
    "two columns of a name": (
        {"edges.csv": "src,src\n1,2\n"},
        {},
        FormatError,
        ["edges.csv: two columns have the name 'src'"],
    ),
    "a quote that is not closed": (
        {"edges.csv": 'src,dst,w\n1,2,"a\nb\n2,1,c\n'},
        {"edge_columns": "w"},
        FormatError,
        ["edges.csv, line 2: a quote is not closed"],
    ),
    "a reserved name": (
        {"edges.csv": "src,dst,weight\n1,2,1\n"},
        {"edge_columns": "weight"},
        ConfigError,
        ["models could not read edge.weight"],
    ),
    "an unknown option": (
        {"edges.csv": GOOD},
        {"weight": "w"},
        ConfigError,
        ["import_graph has no option 'weight'"],
    ),
    "another choice": (
        {"edges.csv": GOOD},
        {"reverse": "ad"},
        ConfigError,
        ["reverse: unknown value 'ad' (did you mean 'add'?)"],
    ),
    "another type": (
        {"edges.csv": GOOD},
        {"types": {"w": "floot"}},
        ConfigError,
        ["'floot' (did you mean 'float'?)"],
    ),
    "no file": ({}, {}, ConfigError, ["cannot import a NoneType"]),
    "a number outside": (
        {"edges.csv": GOOD},
        {"n_nodes": 40},
        DataError,
        ["line 41: column 'dst': no node has the id '40'"],
    ),
    "ids without their zeros": (
        {"edges.csv": "src,dst\n007,7\nx,00\n0,7x\n", "nodes.csv": "id\n007\nx\n0\n07x\n"},
        {},
        DataError,
        [
            "3 bad rows",
            "line 2: column 'dst': no node has the id '7', but one has '007'",
            "line 3: column 'dst': no node has the id '00', but one has '0'",
            "line 4: column 'dst': no node has the id '7x'",
            "zeros in front of ids are lost where they are read as numbers; read the ids as texts",
        ],
    ),
    "zeros in front of later ids": (
        {"edges.csv": GOOD + "007,3,1\n1,04,2\n"},
        {},
        DataError,
        [
            "2 bad rows",
            "line 42: column 'src': '007' has zeros, a sign or 0x in front",
            "line 43: column 'dst': '04'",
            "--id-type text",
        ],
    ),
    "later ids in hexadecimal": (
        {"edges.csv": GOOD + "0x1f,3,1\n1,0XA,2\n"},
        {},
        DataError,
        ["2 bad rows", "line 42: column 'src': '0x1f' has zeros, a sign or 0x in front", "'0XA'"],
    ),
    "later ids beyond 64 bits": (
        {"edges.csv": GOOD + f"{2**64},3,1\n"},
        {"id_type": "int"},
        DataError,
        [f"line 42: column 'src': '{2**64}' is not a whole number", "beyond 64 bits, are"],
    ),
    "later ids that are no floats": (
        {"edges.csv": "src,dst,w\n" + "1.0,2.0,3\n" * 40 + "x,2.0,3\n"},
        {"id_type": "int", "types": {"src": "float"}},
        DataError,
        ["line 42: column 'src': 'x' is not a whole number"],
    ),
    "a comment among rows": (
        {"edges.csv": "src,dst\na,b\n# a,b\n% end,c\n//x,y\n"},
        {},
        DataError,
        [
            "3 bad rows",
            "line 3: the line begins with '#', as comments do",
            "line 4: the line begins with '%'",
            "line 5",
        ],
    ),
    "a header among rows": (
        {"edges.csv": "src,dst,w\na,b,1\nsrc,dst,w\nb,c,2\n"},
        {},
        DataError,
        ["1 bad row", "line 3: the header again"],
    ),
    "a first line of another kind": (
        {"edges.csv": "40 nodes and, edges\n" + GOOD[10:]},
        {"header": False, "src": "0", "dst": "1"},
        FormatError,
        ["lines have another number of columns than the first line, 2", "--separator"],
    ),
    "a type of a column that no table has": (
        {"edges.csv": GOOD},
        {"edge_attr": "w", "types": {"wieght": "text"}},
        DataError,
        ["there is no column 'wieght'", "--types"],
    ),
    "an option that a whole graph has itself": (
        {"edges.mtx": "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2 1\n"},
        {"features": "age"},
        ConfigError,
        ["features names a column of a table"],
    ),
    "classes that are codes": (
        {"edges.csv": "src,dst\n1,2\n", "nodes.csv": "id,y\n1,100000\n2,3\n"},
        {"label": "y"},
        DataError,
        ["column 'y': 100001 classes for 2 nodes", "--types y:text"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_mistakes(name, tmp_path, monkeypatch):
    monkeypatch.setattr(text, "BLOCK", 100)
    content, options, kind, words = CASES[name]
    for file, data in content.items():
        (tmp_path / file).write_bytes(data.encode() if isinstance(data, str) else data)
    (one,), three = told(tmp_path, 1, **options), told(tmp_path, 3, **options)
    assert one is not None and issubclass(one[0], kind) and all(word in one[1] for word in words), (
        one
    )
    # with and without "rank 2: " in front, the same error
    assert {
        (error[0], error[1].partition("rank ")[2].partition(": ")[2] or error[1]) for error in three
    } == {one}
    assert not list(tmp_path.glob("store*")) and not list(tmp_path.glob(".store*"))


@pytest.mark.parametrize("packed", [False, True])
def test_bad_rows_are_left_out_and_counted(packed, tmp_path, monkeypatch):
    monkeypatch.setattr(text, "BLOCK", 200)
    rows = [f"{i % 20},{i % 7},{i}" for i in range(200)]
    bad = {3: "1,2", 50: "x,1,2", 51: "", 52: "1,2,y", 120: ",1,1", 121: "99,1,1", 199: "1,2,3,4"}
    lines = [bad.get(i, row) for i, row in enumerate(rows)]
    data = ("src,dst,w\r\n" + "\r\n".join(lines)).encode()
    path = tmp_path / ("edges.csv.gz" if packed else "edges.csv")
    path.write_bytes(gzip.compress(data) if packed else data)
    nodes = {"id": np.arange(20)[::-1].copy()}
    found = []
    for size in (1, 3):
        run_simulated(
            size,
            lambda comm, size=size: gt.import_graph(
                path,
                nodes,
                to=tmp_path / f"{size}",
                comm=comm,
                id_type="int",
                on_bad_row="skip",
                edge_weight="w",
            ),
        )
        found.append(gt.load(tmp_path / f"{size}"))
    good = [i for i in range(200) if i not in bad]
    for graph in found:
        assert (
            graph.meta["import"]["bad_edge_rows"] == len(bad) - 1
            and graph.edge_weight.tolist() == good
        )
        assert graph.original_ids[graph.src].tolist() == [i % 20 for i in good]


def test_a_column_of_other_values_is_not_skipped(tmp_path):
    (tmp_path / "edges.csv").write_text("src,dst,w\n" + "1,2,heavy\n" * 1200)
    ((kind, error),) = told(tmp_path, edge_weight="w", on_bad_row="skip")
    assert kind is DataError and "more than 1,000 values before; choose another column" in error


def test_rows_of_parquet_are_named(tmp_path):
    pq.write_table(
        pa.table({"src": [1, None, 3], "dst": [2, 3, 1], "w": ["a", "b", "c"]}),
        tmp_path / "edges.parquet",
        row_group_size=1,
    )
    ((_, error),) = told(tmp_path)
    assert "edges.parquet, row 2: column 'src' has no id" in error
    ((_, error),) = told(tmp_path, edge_weight="w", on_bad_row="skip")
    assert "no rows but 3 bad ones" in error
    assert "edges.parquet, row 1: column 'w': 'a' is not a number" in error


def test_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "e.tsv").write_text(
        "from\tto\twhen\n1\t2\t2020-01-01 00:00:10\n2\t1\t2020-01-02 00:00:00\n"
    )
    (tmp_path / "n.csv").write_text("name,a,b,team\n2,1,2,x\n1,3,4,y\n")
    words = (
        "--edges e.tsv --src from --dst to --edge-columns when --nodes n.csv --id name --features"
        " a,b --label team --to s --reverse add"
    )
    assert main(["import", *words.split()]) == 0
    assert "2 nodes, 2 edges" in capsys.readouterr().out
    graph = gt.load(tmp_path / "s")
    assert graph.node_ids.tolist() == [2, 1] and graph.edge_columns["when"].tolist() == [
        1577836810,
        1577923200,
    ]
    for mistake, message in (
        (["--edges", "e.tsv"], "--to is missing"),
        (["--edges=e.tsv", "--to", "t", "--types", "when"], "COLUMN:TYPE"),
        (["--edges=e.tsv", "--to=t", "--types", "a:int,a:text"], "two types of column 'a'; drop"),
        (["--edges=e.tsv", "--to=t", "--rename", "a=b,a=c"], "two new names of column 'a'; drop"),
        (
            ["--edges=e.tsv", "--to", "t"],
            "e.tsv: there is no column 'src'; the columns are from, to, when",
        ),
    ):
        assert main(["import", *mistake]) and message in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["import", "--edges", "e.tsv", "--help"])
    assert "--on-bad-row {fail,skip}" in capsys.readouterr().out


# text of edges, options, and the edges by id
READ = {
    "comments before the header": (
        "# a graph\n% of three\n// nodes\nsrc,dst\n1,2\n2,3\n",
        {},
        [(1, 2), (2, 3)],
    ),
    "comments without a header": (
        "% bip weighted\n1 2 5\n2 3 1\n",
        {"header": False, "src": "0", "dst": "1"},
        [(1, 2), (2, 3)],
    ),
    "a comment is left out": (
        "src,dst\na,b\n#c,d\nb,a\n",
        {"on_bad_row": "skip"},
        [("a", "b"), ("b", "a")],
    ),
    "a quoted value is no comment": ('src,dst\n"#a",b\nb,"#a"\n', {}, [("#a", "b"), ("b", "#a")]),
    "parts with headers": (
        "src,dst\na,b\nsrc,dst\nb,a\n",
        {"on_bad_row": "skip"},
        [("a", "b"), ("b", "a")],
    ),
    "spaces around texts": (
        'src, dst\na, b\n b ,a\t\na,"b"\n',
        {},
        [("a", "b"), ("b", "a"), ("a", "b")],
    ),
    "spaces in quotes": ('src,dst\na,"b "\n"\tb","a"\n', {}, [("a", "b"), ("b", "a")]),
    "times in quotes": (
        'src,dst,t\na,b,"2020-01-01 "\nb,a," 2020-01-02"\n',
        {"edge_columns": "t", "types": {"t": "time_s"}},
        [("a", "b"), ("b", "a")],
    ),
    "quotes after spaces": (
        '"src", "dst"\n"a x", "b"\n"b", "a x"\n',
        {},
        [("a x", "b"), ("b", "a x")],
    ),
    "quotes within quotes after spaces": (
        'src,dst\n"a ""b""",\t"x"\nx, "a ""b"""\nx, a""b\n',
        {},
        [('a "b"', "x"), ("x", 'a "b"'), ("x", 'a""b')],
    ),
    "other spaces are part of texts": (
        "src,dst\n\u00a0a,b\n b,\u00a0a\n" + "b,b\n" * 40 + "\u00a0a,b\n",
        {},
        [("\u00a0a", "b"), ("b", "\u00a0a"), *[("b", "b")] * 40, ("\u00a0a", "b")],
    ),
    "spaces around integers": ("src, dst\n1, 2\n 2 ,1\n", {}, [(1, 2), (2, 1)]),
    "spaces within texts": ("src,dst\na b,c\nc,a b\n", {}, [("a b", "c"), ("c", "a b")]),
    "zeros in front": ("src,dst\n007,7\n7,007\n", {}, [("007", "7"), ("7", "007")]),
    "later zeros, as texts": (
        "src,dst\n" + "7,8\n" * 40 + "007,7\n",
        {"id_type": "text"},
        [("7", "8")] * 40 + [("007", "7")],
    ),
    "later zeros, as numbers": (
        "src,dst\n" + "7,8\n" * 40 + "007,7\n",
        {"id_type": "int"},
        [(7, 8)] * 40 + [(7, 7)],
    ),
    "floats that are whole": (
        "src,dst\n" + "1.0,2.0\n" * 40 + "3.0,0.00\n",
        {},
        [(1, 2)] * 40 + [(3, 0)],
    ),
    "floats of names": ("src,dst\n1.0,1.10\n1.1,1.0\n", {}, [("1.0", "1.10"), ("1.1", "1.0")]),
    "zeros inside and fractions": (
        "src,dst,w\n" + "10,100,-0.05\n" * 40,
        {"edge_weight": "w"},
        [(10, 100)] * 40,
    ),
}


@pytest.mark.parametrize("case", READ)
@pytest.mark.parametrize("packed", [False, True])
def test_texts_that_are_read_as_they_are_meant(case, packed, tmp_path, monkeypatch):
    monkeypatch.setattr(text, "BLOCK", 100)
    monkeypatch.setattr(text, "CACHED", 32)
    data, options, wanted = READ[case]
    path = tmp_path / ("e.txt.gz" if packed else "e.txt")
    path.write_bytes(gzip.compress(data.encode()) if packed else data.encode())
    graph = gt.load(gt.import_graph(path, to=tmp_path / "s", **options))
    ids = graph.original_ids
    assert list(zip(ids[graph.src].tolist(), ids[graph.dst].tolist(), strict=True)) == wanted


def test_rows_may_be_longer_than_the_blocks_of_pyarrow(tmp_path):
    long = "b" * (3 << 20)
    (tmp_path / "e.csv").write_text(f"src,dst\na,b\n{long},a\n")
    graph = gt.load(gt.import_graph(tmp_path / "e.csv", to=tmp_path / "s"))
    assert graph.original_ids.tolist() == ["a", "b", long]


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("first", [0, 40])
def test_quoted_line_breaks(size, packed, first, tmp_path, monkeypatch):
    """Rows are the same wherever blocks are cut; line breaks that come after the head of the file
    make it be read once more.
    """
    monkeypatch.setattr(text, "HEAD", 200)
    monkeypatch.setattr(text, "BLOCK", 300)
    odd = ["a\nb", 'q""\n,x', "plain", '"', "\n\n", '7" pipe', "\r\n#", "c"]
    kinds = [odd[i * i % 7] if i >= first else "x" for i in range(200)]
    rows = [(i % 7, i % 5, kind) for i, kind in enumerate(kinds)]
    lines = [f'{a},{b},"{kind.replace(chr(34), 2 * chr(34))}"\n' for a, b, kind in rows]
    data = ("src,dst,how\n" + "".join(lines)).encode()
    path = tmp_path / "e.csv"
    path.write_bytes(gzip.compress(data) if packed else data)
    run_simulated(
        size, lambda comm: gt.import_graph(path, to=tmp_path / "s", comm=comm, edge_columns="how")
    )
    graph = gt.load(tmp_path / "s")
    names = graph.categories("edge", "how")
    ids = graph.original_ids
    columns = (
        ids[graph.src].tolist(),
        ids[graph.dst].tolist(),
        [names[k] for k in graph.edge_columns["how"]],
    )
    assert list(zip(*columns, strict=True)) == rows


def test_spaces_are_no_part_of_classes_and_names(tmp_path):
    (tmp_path / "e.csv").write_text("src,dst,how\n1,2,mail\n2,1, mail\n")
    (tmp_path / "n.csv").write_text("id,y,part\n1, x, train\n2,x,test \n")
    graph = gt.load(
        gt.import_graph(
            tmp_path / "e.csv",
            tmp_path / "n.csv",
            to=tmp_path / "s",
            label="y",
            split="part",
            edge_columns="how",
        )
    )
    assert graph.class_names == ("x",) and graph.categories("edge", "how") == ("mail",)
    assert graph.train.tolist() == [True, False] and graph.test.tolist() == [False, True]


EMPTY = {
    "texts": (pa.list_(pa.string()), "label"),
    "integers": (pa.list_(pa.int64()), "label"),
    "floats": (pa.list_(pa.float32()), "label"),
    "no numbers": (pa.list_(pa.float32(), 0), "label"),
    "features": (pa.list_(pa.float32()), "features"),
    "columns": (pa.list_(pa.int64()), "node_columns"),
}


@pytest.mark.parametrize("hole", ["", None])
def test_a_list_of_classes_with_a_hole_is_a_bad_row(hole, tmp_path):
    nodes = {"id": [0, 1], "y": [["a", hole], ["b"]]}
    with pytest.raises(DataError, match="row 1: column 'y' has a list with a missing class"):
        gt.import_graph({"src": [0], "dst": [1]}, nodes, to=tmp_path / "store", label="y")


@pytest.mark.parametrize("kind", EMPTY)
@pytest.mark.parametrize("rank_count", [1, 2])
def test_lists_that_are_all_empty_are_refused(kind, rank_count, tmp_path):
    """They gave a store that could not be read."""
    of, option = EMPTY[kind]
    nodes = pa.table({"id": [0, 1, 2], "z": pa.array([[], [], []], of)})

    def work(comm):
        edges = {"src": [0, 1], "dst": [1, 2]}
        with pytest.raises(
            DataError, match=r"column 'z'.*(no class in any list|all lists are empty)"
        ):
            gt.import_graph(edges, nodes, to=tmp_path / "s", comm=comm, **{option: "z"})

    run_simulated(rank_count, work)


@pytest.mark.parametrize("name", ["class", "None", "from", "a b", "2x", "_x", "gid", "\ufb01"])
@pytest.mark.parametrize("group", ["node_columns", "edge_columns"])
def test_names_that_no_model_could_read_are_refused(name, group, tmp_path):
    """The names are those that a graph refuses, so that each store can be read."""
    edges = {"src": [0, 1], "dst": [1, 0]}
    nodes = {"id": [0, 1]}
    table = nodes if group == "node_columns" else edges
    table[name] = [1, 2]
    with pytest.raises(ConfigError, match=f"column '{name}': models could not read"):
        gt.import_graph(edges, nodes, to=tmp_path / "s", **{group: name})
    with pytest.raises(DataError, match=f"{name}"):
        gt.Graph([[0, 1], [1, 0]], 2, **{group: {name: [1, 2]}})
    assert not (tmp_path / "s").exists()
