"""Rules between keys of a job: each is kept, told, and its remedy works."""

from __future__ import annotations

import pytest

from graphtheta.__main__ import main
from graphtheta.errors import ConfigError
from graphtheta.run.job.job import Job
from graphtheta.run.job.keys import FIELDS
from graphtheta.run.job.rules import (
    Excludes,
    Needs,
    OnlyWith,
    Rule,
    all_rules,
    check,
    flag,
    in_words,
)
from graphtheta.tasks.kinds.registry import readers

RULES = all_rules(Job.model_fields, readers())
EACH = [
    pytest.param(key, rule, id=f"{key} {rule}") for key, rules in RULES.items() for rule in rules
]


class Given:
    """A job of some keys, as texts; all others have their defaults."""

    def __init__(self, **texts: str):
        self.texts = texts

    def as_text(self, key: str) -> str:
        return self.texts.get(key, "default")

    def is_default(self, key: str) -> bool:
        return key not in self.texts


def jobs(key: str, rule: Rule) -> tuple[Given, Given]:
    """A job that breaks a rule, and one that follows the advice."""
    given = {key: "given"}
    if isinstance(rule, OnlyWith):
        wrong = {rule.other: rule.without[0]} if rule.without else {}
        return Given(**given, **wrong), Given(**given, **{rule.other: rule.values[0]})
    if isinstance(rule, Needs):
        given = {key: rule.value or "given"}
        return Given(**given), Given(**given, **{rule.others[-1]: "given"})
    return Given(**given, **{rule.others[-1]: rule.value or "given"}), Given(**given)


@pytest.mark.parametrize(("key", "rule"), EACH)
def test_a_rule_is_kept_and_its_remedy_works(key: str, rule: Rule) -> None:
    wrong, right = jobs(key, rule)
    with pytest.raises(ConfigError) as caught:
        check(wrong, {key: [rule]})
    check(right, {key: [rule]})
    check(Given(), {key: [rule]})
    told = str(caught.value)
    others = (rule.other,) if isinstance(rule, OnlyWith) else rule.others
    assert told.startswith(f"{key}={wrong.as_text(key)} ") and f"drop {flag(key)}" in told.replace(
        f"{flag(others[-1])} or ", ""
    )
    assert flag(others[-1]) in told and flag(others[-1]) in in_words([rule])


@pytest.mark.parametrize(("key", "rule"), EACH)
def test_a_rule_is_about_keys_and_values_that_exist(key: str, rule: Rule) -> None:
    others = (rule.other,) if isinstance(rule, OnlyWith) else rule.others
    assert {key, *others} <= FIELDS.keys()
    of = {OnlyWith: others[0], Needs: key, Excludes: others[0]}[type(rule)]
    values = (*rule.values, *rule.without) if isinstance(rule, OnlyWith) else (rule.value,)
    for value in values:
        if value is not None:
            # a value that is not allowed is told as "got X, ... allowed: ..."
            try:
                Job(**{of: value})
            except ConfigError as error:
                assert "allowed" not in str(error) and "expected" not in str(error)


def test_a_value_that_users_add_has_the_keys_of_batches() -> None:
    """Keys that have no effect without batches have one with a strategy of a user's own."""
    of_batches = [
        (key, rule)
        for key, rules in RULES.items()
        for rule in rules
        if isinstance(rule, OnlyWith) and rule.without
    ]
    assert {"mode", "macrobatch", "views_in_flight"} <= {key for key, _ in of_batches}
    for key, rule in of_batches:
        check(Given(**{key: "given", rule.other: "my.py:Mine"}), {key: [rule]})


def test_the_help_has_the_rules(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help-all"])
    # lines are broken at hyphens too
    told = "".join(capsys.readouterr().out.split())
    untold = [key for key, rules in RULES.items() if in_words(rules).replace(" ", "") not in told]
    assert untold == []
