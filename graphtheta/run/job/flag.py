"""Command-line flags: one for each key of a job. Types and checks are those of the job."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from pydantic.fields import FieldInfo

from graphtheta.errors import ConfigError
from graphtheta.graph.datasets.dataset import parse
from graphtheta.models.design import COMMON, Design
from graphtheta.models.registry import MODELS
from graphtheta.models.user import declared, load_user
from graphtheta.run.job.described import described
from graphtheta.run.job.help import HelpParser, Record, add_whole_help
from graphtheta.run.job.job import Job, as_text, choices, read_keys
from graphtheta.run.job.keyfile import read_mapping
from graphtheta.run.job.keys import FIELDS, SECTIONS
from graphtheta.run.job.model_keys import OPTIONS
from graphtheta.run.job.outside import extra_keys, in_file, read_extra
from graphtheta.run.job.presets import PRESETS, preset
from graphtheta.run.job.rules import all_rules, flag, in_words
from graphtheta.tasks.kinds.registry import readers


class Parser(HelpParser):
    """A parser of one command, with a flag for each key of a job if the command has one."""

    def __init__(self, command: str, summary: str, example: str, words: str = ""):
        super().__init__(command, summary, example, words)
        self.keys: set[str] = set()
        # keys whose help has its line
        self.told: set[str] = set()
        self.outside: tuple[Design | Callable[..., Any] | None, str] = None, ""
        self.extra: dict[str, FieldInfo] = {}

    def format_help(self) -> str:
        self.tell_keys()
        return super().format_help()

    def records(self) -> tuple[Record, list[Record]]:
        self.tell_keys()
        return super().records()

    def tell_keys(self) -> None:
        """Give keys of the job their lines of help, which are read from sources."""
        if self.keys == self.told:
            return
        texts = described() if self.outside[0] is None else described(declared(self.outside[0]))
        rules = all_rules(Job.model_fields, readers())
        for action in self._actions:
            if action.dest in self.keys - self.told:
                text = f"{texts.get(action.dest, '')} {in_words(rules.get(action.dest, []))}"
                action.help = " ".join(f"{text.replace('%', '%%')} {action.help}".split())
        self.told |= self.keys

    def add_job_keys(self, short: bool = True) -> None:
        """Add ``--config``, ``--preset`` and one flag per key of the job, in its sections.

        Args:
            short: Whether ``--help`` shows common keys, and not only ``--help-all``: a finished run
                has its keys.
        """
        add_whole_help(self, short)
        group = self.add_argument_group(
            "Configuration; flags override keys of the file, the file overrides keys of the preset"
        )
        group.add_argument("--config", metavar="FILE", help="YAML file of keys")
        group.add_argument(
            "--preset", metavar="NAME", help=f"published settings: {', '.join(PRESETS)}"
        )
        self.values["preset"] = tuple(PRESETS)
        for section in SECTIONS:
            self._add_keys(str(section.__doc__), section.model_fields)
        self.of_keys = {"config", "preset"} | self.keys
        self.rare = {key for key in self.keys if COMMON not in FIELDS[key].metadata}
        if not short:
            self.rare = set(self.of_keys)

    def _add_keys(self, title: str, fields: Mapping[str, FieldInfo]) -> None:
        group = self.add_argument_group(title)
        for key, field in fields.items():
            if key in (action.dest for action in self._actions):
                raise ConfigError(
                    f"{title}: {self.prog} uses the name '{key}' itself; choose another one"
                )
            shown = as_text(field.default)
            allowed = choices(key, field)
            self.values[key] = tuple(map(str, MODELS if key == "model" else allowed))
            text = f"[{shown}]".replace("%", "%%") if shown else ""
            if field.annotation is bool:
                group.add_argument(
                    flag(key),
                    dest=key,
                    action=argparse.BooleanOptionalAction,
                    default=argparse.SUPPRESS,
                    help=text,
                )
            else:
                metavar = (
                    "{" + ",".join(allowed) + "}"
                    if allowed
                    else "N"
                    if field.annotation is int
                    else "X"
                )
                alone: dict[str, Any] = (
                    {"nargs": "?", "const": "yes"}
                    if field.default == "no" and "yes" in allowed
                    else {}
                )
                group.add_argument(
                    flag(key),
                    dest=key,
                    metavar=metavar,
                    default=argparse.SUPPRESS,
                    help=text,
                    **alone,
                )
            self.keys.add(key)

    def _add_extra_keys(self, words: list[str]) -> None:
        """Add flags of a user's model; a model file is run only for unknown flags or the help."""
        config = last(words, "--config")
        model = last(words, "--model")
        unknown = {
            word.partition("=")[0] for word in words if word.startswith("--")
        } - self._option_string_actions.keys()
        if not self.keys or not (unknown or {"-h", "--help", "--help-all"} & set(words)):
            return
        name = str(model or (read_mapping(config).get("model") if config else None))
        if in_file(name) or name in MODELS:
            self.outside = (load_user(name) if in_file(name) else MODELS[name]), name
            self.extra = extra_keys(*self.outside)
            if self.extra:
                self._add_keys(f"Options of {name}", self.extra)

    def read(self, argv: list[str]) -> tuple[SimpleNamespace, dict[str, Any]]:
        """Read a command line.

        Args:
            argv: Words after the command.

        Returns:
            The command's own options, and the job keys that were given by preset, file and flag
            together.

        Raises:
            ConfigError: An unknown flag, a flag without its value, or an unexpected argument.
            FormatError: The file of ``--config`` cannot be read.
        """
        words = [with_dashes(word) for word in argv]
        self._add_extra_keys(words)
        options = self.read_words(words)
        others = {name: value for name, value in vars(options).items() if name not in self.keys}
        keys = {name: value for name, value in vars(options).items() if name in self.keys}
        # options of a model file are parsed here, because the job does not know their types
        keys |= read_extra(
            *self.outside, {key: value for key, value in keys.items() if key in self.extra}
        )
        from_file = read_keys(others["config"], keys.get("model")) if others.get("config") else {}
        of_user = {**from_file, **keys}
        of_preset = fitting(preset(others["preset"]), of_user) if others.get("preset") else {}
        return SimpleNamespace(**others), {**of_preset, **of_user}


def fitting(keys: dict[str, Any], of_user: dict[str, Any]) -> dict[str, Any]:
    """The keys of a preset that fit those of a user: not those that the text of another dataset
    has, and of options of a model those that another model declares.
    """
    _, written = parse(str(of_user.get("dataset", "")), {})
    keys = {key: value for key, value in keys.items() if key not in written}
    model = of_user.get("model")
    if model is None or model == keys.get("model"):
        return keys
    read = MODELS[model].options.model_fields if model in MODELS else {}
    return {key: value for key, value in keys.items() if key in read or key not in OPTIONS}


def last(words: Sequence[str], name: str) -> str | None:
    """The value of the last occurrence of a flag; None if it is not given."""
    last_value = None
    for word, following in zip(words, [*words, None][1:], strict=True):
        head, equals, value = word.partition("=")
        if head == name:
            last_value = value if equals else following
    return last_value


def with_dashes(word: str) -> str:
    """``--batch_size=3`` as ``--batch-size=3``: both spellings of a key are accepted."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value
