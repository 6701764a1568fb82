"""The job: one list of keys, checked alike wherever a value comes from."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from graphtheta.errors import ConfigError, FormatError
from graphtheta.run.job.described import described
from graphtheta.run.job.flag import Parser
from graphtheta.run.job.job import Job
from graphtheta.run.job.keyfile import KeyLoader, write_mapping
from graphtheta.run.job.keys import FIELDS, SECTIONS
from graphtheta.run.job.presets import PRESETS, preset

OTHER: dict[str, Any] = {
    "dataset": "cora",
    "strategy": "mini",
    "batch_size": 140,
    "fanout": "10,all",
    "lr": 1e-3,
    "replace": True,
    "seed": 3,
    "residual": True,
}


def parse(*words: str) -> Job:
    """A job from flags."""
    parser = Parser("train", "", "")
    parser.add_job_keys()
    return Job(**parser.read(list(words))[1])


def test_defaults_make_a_job() -> None:
    assert Job().dataset == "sbm" and parse() == Job()


def test_python_yaml_and_flags_are_the_same(tmp_path: Path) -> None:
    job = Job(**OTHER)
    path = tmp_path / "job.yaml"
    path.write_text(
        "dataset: cora\nstrategy: mini\nbatch_size: 140\nfanout: 10,all\nlr: 1e-3\nreplace:"
        " true\nseed: 3\nresidual: yes\n"
    )
    words = (
        "--dataset",
        "cora",
        "--strategy",
        "mini",
        "--batch-size",
        "140",
        "--fanout",
        "10,all",
        "--lr",
        "1e-3",
        "--replace",
        "--seed=3",
        "--residual",
    )
    assert job == Job.from_yaml(path) == parse("--config", str(path)) == parse(*words)


def test_flags_in_both_spellings() -> None:
    assert parse("--strategy=mini", "--batch_size=3") == parse(
        "--strategy", "mini", "--batch-size", "3"
    )


def test_yaml_round_trip(tmp_path: Path) -> None:
    job = Job(**OTHER)
    (tmp_path / "job.yaml").write_text(job.to_yaml())
    assert Job.from_yaml(tmp_path / "job.yaml") == job


def test_flags_win_over_file_and_file_over_preset(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("hidden: 32\nseed: 5\n")
    job = parse("--preset", "cora-gcn", "--config", str(tmp_path / "job.yaml"), "--seed", "7")
    assert (job.dataset, job.hidden, job.seed, job.decay_first_layer_only) == ("cora", 32, 7, True)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_job(name: str) -> None:
    assert Job(**preset(name)).dataset == name.partition("-")[0]


def test_every_key_has_a_section_and_help() -> None:
    keys = [key for section in SECTIONS for key in section.model_fields]
    assert sorted(keys) == sorted(Job.model_fields) and len(set(keys)) == len(keys)
    assert [key for key in keys if not described().get(key)] == []


@pytest.mark.parametrize(
    "values, told",
    [
        (
            {"strategy": "mni"},
            ["strategy", "'mni'", "did you mean 'mini'", "global, mini, cluster"],
        ),
        ({"batchsize": 3}, ["unknown key 'batchsize'", "did you mean 'batch_size'"]),
        ({"batch_size": "2.5", "strategy": "mini"}, ["batch_size", "'2.5'", "whole number"]),
        ({"batch_size": -1}, ["batch_size", "-1", "at least 0"]),
        ({"lr": 0}, ["lr", "more than 0"]),
        ({"lr": "nan"}, ["lr", "finite"]),
        ({"lr": None}, ["lr", "None", "a number"]),
        ({"dropout": 1.0}, ["dropout", "less than 1"]),
        ({"replace": "maybe"}, ["replace", "'maybe'", "true or false"]),
        ({"dataset": ""}, ["dataset", "a name"]),
        ({"model": 3}, ["model", "text"]),
        ({"fanout": "ten", "strategy": "mini"}, ["fanout", "'ten'", "10,10"]),
        ({"fanout": "0,1", "strategy": "mini"}, ["fanout", "at least 1"]),
        ({"fanout": "--5", "strategy": "mini"}, ["fanout", "'--5'", "numbers of at least 1"]),
        ({"strategy": "mini:rate=1"}, ["strategy: mini has no options"]),
        (
            {"strategy": "mine.py:Own:rate=1,rate=2"},
            ["strategy: mine.py:Own:rate=1,rate=2: the option rate is given twice"],
        ),
        ({"fanout": "1,2,3", "strategy": "mini"}, ["fanout=1,2,3", "layers=2"]),
        ({"batch_size": 5}, ["batch_size=5", "strategy=global", "--strategy mini"]),
        ({"clusters": 5, "strategy": "mini"}, ["clusters=5", "--strategy cluster"]),
        (
            {"clusters": 5, "clusters_per_batch": 6, "strategy": "cluster"},
            ["clusters_per_batch=6", "clusters=5"],
        ),
        (
            {"cluster_method": "luvain", "strategy": "cluster"},
            ["'luvain'", "did you mean 'louvain'"],
        ),
        ({"cluster_method": "metis", "strategy": "cluster"}, ["metis", "--clusters"]),
        ({"boundary_hops": 3, "strategy": "cluster"}, ["boundary_hops", "at most 2"]),
        ({"replace": True, "strategy": "mini"}, ["replace", "--fanout"]),
        ({"momentum": 0.9}, ["momentum=0.9", "--optimiser sgd"]),
        ({"metric": "mrr", "task": "node"}, ["mrr", "--task link"]),
    ],
)
def test_bad_values_raise_config_error(values: dict[str, Any], told: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        Job(**values)
    assert [part for part in told if part not in str(caught.value)] == []


@pytest.mark.parametrize(
    "text, told",
    [
        ("lr: [1", "cannot be read"),
        ("- 1\n- 2\n", "a list"),
        (None, "the file does not exist; check the path"),
    ],
)
def test_bad_files_raise_format_error(tmp_path: Path, text: str | None, told: str) -> None:
    path = tmp_path / "job.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(FormatError, match=told):
        Job.from_yaml(path)


def test_empty_file_is_the_default_job(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("# nothing\n")
    assert Job.from_yaml(tmp_path / "job.yaml") == Job()


def test_change_checks_like_a_new_job() -> None:
    job = Job(**OTHER)
    assert job.change(seed=4).seed == 4 and job.seed == 3
    with pytest.raises(ConfigError, match="did you mean 'seed'"):
        job.change(sed=1)
    with pytest.raises(ConfigError, match=r"cannot be changed; .*job\.change\(seed="):
        job.seed = 5


def test_fanouts_spread_over_hops() -> None:
    assert Job().fanouts(3) == ()
    assert Job(strategy="mini", fanout=5).fanouts(3) == (5, 5, 5)
    assert Job(strategy="mini", fanout=(5, -1)).fanouts(2) == (5, -1)
    with pytest.raises(ConfigError, match=r"has 3 hop\(s\)"):
        Job(strategy="mini", fanout="5,5", model="mine.py:Model").fanouts(3)


@pytest.mark.parametrize(
    "values, folder",
    [
        ({}, "runs/sbm-gcn-global"),
        ({"out": "here"}, "here"),
        ({"dataset": "rmat:scale=9,edge_factor=4"}, "runs/rmat-gcn-global"),
        ({"dataset": "data/x.npz", "model": "mine.py:Net"}, "runs/x-Net-global"),
    ],
)
def test_folder(values: dict[str, Any], folder: str) -> None:
    assert Job(**values).folder == Path(folder)


def test_a_preset_gives_another_model_what_it_can_use() -> None:
    job = parse("--preset", "cora-gat", "--model", "gcn")
    assert (job.model, job.dropout, job.attention_dropout, job.epochs) == ("gcn", 0.6, 0.0, 1000)
    job = parse("--preset", "cora-gcn", "--model", "mine.py:Net")
    assert (job.dataset, job.epochs, job.decay_first_layer_only, job.hidden) == (
        "cora",
        200,
        False,
        Job().hidden,
    )
    assert parse("--preset", "cora-gat", "--model", "gat") == Job(**preset("cora-gat"))


def test_the_text_of_a_dataset_wins_over_a_preset() -> None:
    job = parse("--preset", "cora-gcn", "--dataset", "cora:split=random")
    assert (job.split, job.normalise_features) == (Job().split, "row")


def test_numbers_without_bounds_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"lr: got a number of \d+ bits"):
        Job(lr=10**400)
    path = tmp_path / "job.yaml"
    path.write_text("lr: 1" + "0" * 400 + "\n")
    with pytest.raises(ConfigError, match=r"lr: got a number of \d+ bits"):
        Job.from_yaml(path)
    # Python refuses to read so many digits
    path.write_text("lr: 1" + "0" * 5000 + "\n")
    with pytest.raises(FormatError, match="cannot be read as a job"):
        Job.from_yaml(path)


# a line of a file, and the value of its key or words of the error
LINES = {
    "hidden: 010": 10,
    "hidden: 0o10": 8,
    "hidden: 0x10": 16,
    "hidden: 1:30": "expected a whole number",
    "hidden: true": "expected a whole number",
    "epochs: on": "expected a whole number",
    "dropout: off": "expected a number",
    "dropout: true": "expected a number",
    "seed: 1_0.5": "expected a whole number",
    "weight_decay: auto": "auto",
    "weight_decay: 0": 0.0,
    "weight_decay: 1e-3": 1e-3,
    "weight_decay: -1": "weight_decay: got -1, expected a number of at least 0, or auto",
    "weight_decay: .nan": "expected a number of at least 0, or auto",
    "weight_decay: no": "expected a number of at least 0, or auto",
    "weight_decay: true": "expected",
    "lr: 1e-5": 1e-5,
    "lr: .5": 0.5,
    "lr: 1:30": "expected a number",
    "seed: -0": 0,
    "self_loops: no": "no",
    "self_loops: yes": "yes",
    "self_loops: false": "no",
    "self_loops: on": "unknown value 'on'",
    "symmetric: Yes": "unknown",
    "largest_component: true": "yes",
    "pipeline: no": "no",
    "pipeline: true": "expected another value",
    "stage_threads: free": "free",
    "stage_threads: no": "expected free, auto",
    "precompute: yes": "yes",
    "precompute: false": "no",
    "residual: true": True,
    "residual: no": False,
    "norm: no": "unknown value 'no'",
    "out: no": "no",
    "out: 2020-01-01": "2020-01-01",
    "data_dir: 12:30": "12:30",
    "out: '010'": "010",
    "out: 1.10": "expected text",
    "fanout: 10:5": "expected numbers",
}


@pytest.mark.parametrize("line", LINES)
def test_values_of_a_file_are_those_of_yaml_1_2(line: str, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    key = line.partition(":")[0]
    wanted = LINES[line]
    path.write_text(line + "\n")
    try:
        job = Job.from_yaml(path)
    except ConfigError as error:
        assert isinstance(wanted, str) and wanted in str(error)
        return
    assert getattr(job, key) == wanted and type(getattr(job, key)) is type(wanted)
    path.write_text(job.to_yaml())
    assert Job.from_yaml(path) == job


@given(
    st.text(st.characters(codec="ascii", categories=("L", "N", "P", "S")), min_size=1, max_size=8)
)
@example("1e3").via("a number of YAML 1.2 and not 1.1")
@example("0o7").via("the same")
@example("~").via("null")
def test_any_text_is_read_as_it_was_written(text: str) -> None:
    assert yaml.load(write_mapping({"out": text}), KeyLoader) == {"out": text}


# nothing of these may end in another error; an undecodable byte of a command line is a surrogate
ODD: tuple[Any, ...] = (
    *("", " ", "\x00", "\udcff", "é" * 300, ",", "=", "%", ":", "::", "x:", "x:=", "x:a=1,a=2"),
    *("-1", "1,", "1%", "9" * 5000, "1e300GiB", "1e400", "nan", "inf", "all", "auto", "a.py:"),
    *(None, True, -1, 0, 1 << 63, 10**30, 1.5, float("nan"), float("inf"), 1j, b"x", object()),
    *([], [1], ["a"], {}, {1: 2}, set()),
)


@pytest.mark.parametrize(
    "others",
    [
        {},
        {"strategy": "mini", "batch_size": 3},
        {"strategy": "cluster"},
        {"model": "gat", "task": "link"},
        {"task": "triple"},
    ],
)
def test_any_value_of_any_key_makes_a_job_or_one_error(others: dict[str, Any]) -> None:
    for key in FIELDS.keys() - others:
        for value in ODD:
            with suppress(ConfigError):
                Job(**others, **{key: value})


def test_paths_are_texts_of_a_job() -> None:
    given = Job(dataset=Path("a.npz"), out=Path("runs") / "a").change(data_dir=Path("data"))
    assert given == Job(dataset="a.npz", out="runs/a", data_dir="data")
    with pytest.raises(ConfigError, match="epochs: got 'a', expected a whole number"):
        Job(epochs=Path("a"))


def test_a_job_prints_as_what_was_given() -> None:
    assert repr(Job(lr=0.5, dataset="ring")) == "Job(dataset='ring', lr=0.5)"
    assert repr(Job()) == "Job()"
