"""Rules between keys of a job, which stand beside a key in its type; see ``keys.py``.

``check`` compares a job with them. Errors, ``--help`` and a list in docs/strategies.md are made of
the same words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic.fields import FieldInfo

from graphtheta.errors import ConfigError


class Keys(Protocol):
    """What rules read of a job; see there."""

    def as_text(self, key: str) -> str: ...

    def is_default(self, key: str) -> bool: ...


@dataclass(frozen=True)
class OnlyWith:
    """The key has no effect unless another one has one of these values.

    Attributes:
        other: The other key.
        values: Its values, as texts; the first is what a message advises.
        free: A further value of the key itself that is allowed anyway, as text.
        without: If there are any, its only values with which the key has no effect, as texts: it
            has one with all that users add.
    """

    other: str
    values: tuple[str, ...]
    free: str | None = None
    without: tuple[str, ...] = ()

    def allows(self, text: str) -> bool:
        """Whether the key has an effect with a value of the other one, as text."""
        return text in self.values or (bool(self.without) and text not in self.without)

    def problem(self, job: Keys, key: str) -> str:
        """What is wrong in a job in which the key is given, and what to do; empty if nothing is."""
        if self.allows(job.as_text(self.other)) or job.as_text(key) == self.free:
            return ""
        return (
            f"has no meaning with {self.other}={job.as_text(self.other)}, only with"
            f" {self._words}; drop {flag(key)} or give {flag(self.other)}"
            f" {self.values[0]}"
        )

    def __str__(self) -> str:
        return f"only with {flag(self.other)} {self._words}"

    @property
    def _words(self) -> str:
        return " or ".join((*self.values, *(["your own"] if self.without else [])))


@dataclass(frozen=True)
class Needs:
    """The key has no effect, or cannot be used, unless one of others is given.

    Attributes:
        others: The other keys.
        why: What the key does, after its value in a message.
        value: The only value of the key that needs them, as text; all by default.
    """

    others: tuple[str, ...]
    why: str
    value: str | None = None

    def problem(self, job: Keys, key: str) -> str:
        """As of ``OnlyWith``."""
        given = any(not job.is_default(other) for other in self.others)
        if given or self.value not in (None, job.as_text(key)):
            return ""
        return f"{self.why}; give {self._flags}, or drop {flag(key)}"

    @property
    def _flags(self) -> str:
        return " or ".join(map(flag, self.others))

    def __str__(self) -> str:
        return f"{'' if self.value is None else f'{self.value} '}needs {self._flags}"


@dataclass(frozen=True)
class Excludes:
    """The key cannot be given together with others.

    Attributes:
        others: The other keys, which must have their defaults.
        why: Between the two keys and their values in a message.
        value: The only value of the others that is excluded, as text; all but the default if it is
            not given.
    """

    others: tuple[str, ...]
    why: str
    value: str | None = None

    def problem(self, job: Keys, key: str) -> str:
        """As of ``OnlyWith``."""
        for other in self.others:
            text = job.as_text(other)
            if not job.is_default(other) and self.value in (None, text):
                return f"{self.why} {other}={text}; drop {flag(other)} or {flag(key)}"
        return ""

    def __str__(self) -> str:
        flags = " or ".join(map(flag, self.others))
        return f"not with {flags}{'' if self.value is None else f' {self.value}'}"


Rule = OnlyWith | Needs | Excludes


def rules_of(field: FieldInfo) -> list[Rule]:
    """The rules of a key."""
    return [rule for rule in field.metadata if isinstance(rule, Rule)]


def all_rules(
    fields: Mapping[str, FieldInfo], of_tasks: Mapping[str, list[str]]
) -> dict[str, list[Rule]]:
    """The rules of every key that has any.

    Args:
        fields: The keys.
        of_tasks: For each key that only some kinds of task read, their names.
    """
    rules = {key: rules_of(field) for key, field in fields.items()}
    for key, kinds in of_tasks.items():
        rules[key] = [*rules[key], OnlyWith("task", (*kinds, "auto"))]
    return {key: each for key, each in rules.items() if each}


def check(job: Keys, rules: Mapping[str, list[Rule]]) -> None:
    """Compare a job with rules.

    Raises:
        ConfigError: A key that is given breaks one.
    """
    for key, each in rules.items():
        for rule in () if job.is_default(key) else each:
            if problem := rule.problem(job, key):
                raise ConfigError(f"{key}={job.as_text(key)} {problem}")


def in_words(rules: Sequence[Rule]) -> str:
    """Rules of a key as a sentence; empty without any."""
    text = "; ".join(map(str, rules))
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def flag(key: str) -> str:
    """The flag of a key."""
    return "--" + key.replace("_", "-")
