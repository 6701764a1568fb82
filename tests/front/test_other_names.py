"""Names of other libraries: a message about each asks for what this library calls it."""

from __future__ import annotations

from pathlib import Path

import pytest

import graphtheta as gt
from graphtheta.base.other_names import ARGUMENTS, ATTRIBUTES, INSTEAD, KEYS, MEANT, PUBLIC, VALUES
from graphtheta.base.wording import did_you_mean
from graphtheta.errors import ArgumentError, ConfigError
from graphtheta.models.registry import MODELS
from graphtheta.run.job.flag import Parser
from graphtheta.run.job.job import Job, choices
from graphtheta.run.job.keys import FIELDS
from graphtheta.run.job.rules import flag
from graphtheta.samplers.registry import SAMPLERS

OF_KEYS = [(other, key) for key, others in KEYS.items() for other in others]


def test_each_name_leads_to_one_that_exists() -> None:
    assert sorted(KEYS.keys() - FIELDS.keys()) == []
    values = {str(value) for key in FIELDS for value in choices(key)} | {*MODELS, *SAMPLERS}
    assert sorted(VALUES.keys() - values) == []
    attributes = {name for one in (gt.Graph, gt.Trainer, gt.Model) for name in dir(one)}
    assert sorted(ATTRIBUTES.keys() - attributes - set(vars(gt.Result()))) == []
    assert sorted(PUBLIC.keys() - {name.casefold() for name in dir(gt)}) == []
    for argument, others in ARGUMENTS.items():
        for other in others:
            with pytest.raises(ArgumentError) as of_module:
                gt.Linear(**{other: 1})
            asked = f"no argument '{other}' (did you mean '{argument}'?)"
            assert asked in str(of_module.value)


def test_no_name_has_a_meaning_of_its_own() -> None:
    """Names are written as they are looked up, stand once in each part, and are no keys."""
    assert [name for name in MEANT if not name.isascii() or name != name.casefold()] == []
    assert [name for name in MEANT if "-" in name] == []
    assert [other for other, _ in OF_KEYS if other in FIELDS] == []
    assert [name for name in INSTEAD if name in FIELDS or name != name.casefold()] == []
    for part in (KEYS, ARGUMENTS, VALUES, ATTRIBUTES, PUBLIC):
        others = [other for names in part.values() for other in names]
        assert len(set(others)) == len(others)


def test_keys_of_other_libraries(tmp_path: Path) -> None:
    """In Python, in a file and as flags, in either spelling, the same key is meant."""
    file = tmp_path / "job.yaml"
    parser = Parser("train", "", "")
    parser.add_job_keys()
    for other, key in OF_KEYS:
        asked = f"unknown key '{other}' (did you mean '{key}'?)"
        with pytest.raises(ConfigError) as of_python:
            Job(**{other: 1})
        assert asked in str(of_python.value)
        file.write_text(f"{other}: 1\n")
        with pytest.raises(ConfigError) as of_file:
            Job.from_yaml(file)
        assert f"job.yaml: {asked}" in str(of_file.value)
        for word in (f"--{other}", flag(other), f"{flag(other)}=1"):
            with pytest.raises(ConfigError) as of_flag:
                parser.read([word, "1"])
            assert f"{flag(other)} (did you mean '{flag(key)}'?)" in str(of_flag.value)


@pytest.mark.parametrize(
    "word, known, meant",
    [
        ("GAT", ["gcn", "gat"], "gat"),
        ("GraphSAGE", ["gcn", "sage"], "sage"),
        ("Adam", ["adam", "sgd"], "adam"),
        ("--Batch-Size", ["--batch-size", "--out"], "--batch-size"),
        # a name that is known is not another one
        ("norm", ["norm", "clip_norm"], "norm"),
        # what is meant, and not what is close
        ("in_dim", ["d_in", "in_dims"], "d_in"),
    ],
)
def test_what_is_meant(word: str, known: list[str], meant: str) -> None:
    assert did_you_mean(word, known) == f" (did you mean '{meant}'?)"


def test_nothing_is_meant_that_is_not_known() -> None:
    assert did_you_mean("learning_rate", ["momentum", "steps"]) == ""
    assert did_you_mean("", ["momentum"]) == ""
