"""Flags: the keys of a job on the command line. All types and checks are those of the job."""
from __future__ import annotations

import argparse
from types import SimpleNamespace
from typing import Any, NoReturn

from graphtheta.console import say
from graphtheta.engine.runtime.start import launched
from graphtheta.errors import ConfigError
from graphtheta.job.job import Job, choices, flag, read_keys
from graphtheta.job.keys import SECTIONS, ModelKeys
from graphtheta.job.presets import PRESETS, preset
from graphtheta.models.registry import MODELS, READ_BY
from graphtheta.wording import did_you_mean


class Parser(argparse.ArgumentParser):
    """A parser of one command that raises instead of printing."""

    def __init__(self, command: str, summary: str, example: str, words: str = ""):
        super().__init__(prog=f"graphtheta {command}",
                         usage=f"graphtheta {command} {words}[flags]", description=summary, epilog=f"example: {example}",
                         allow_abbrev=False,
                         formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=30, width=110))

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see {self.prog} --help")

    def print_help(self, file: Any = None) -> None:
        """Print the help once, however many processes were started."""
        if launched()[0] == 0:
            say(self.format_help())

    def add_job_keys(self) -> None:
        """Add ``--config``, ``--preset`` and one flag per key of the job, in its sections."""
        given = self.add_argument_group("Where keys come from; flags win over the file, the file over the preset")
        given.add_argument("--config", metavar="FILE", help="YAML file of keys")
        given.add_argument("--preset", metavar="NAME", help=f"published settings: {', '.join(PRESETS)}")
        for section in SECTIONS:
            group = self.add_argument_group(str(section.__doc__))
            for key, field in section.model_fields.items():
                shown = Job().as_text(key)
                text = f"{field.description} [{shown}]" if shown else str(field.description)
                text = " ".join(text.replace("%", "%%").split())
                if field.annotation is bool:
                    group.add_argument(flag(key), dest=key, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=text)
                else:
                    metavar = "{" + ",".join(choices(key)) + "}" if choices(key) else "N" if field.annotation is int else "X"
                    group.add_argument(flag(key), dest=key, metavar=metavar, default=argparse.SUPPRESS, help=text)

    def read(self, argv: list[str]) -> tuple[SimpleNamespace, dict[str, Any]]:
        """Read a command line.

        Args:
            argv: Words after the command.

        Returns:
            The command's own options, and the job keys that were given by preset, file and flag together.

        Raises:
            ConfigError: An unknown flag, a flag without its value, a word that belongs nowhere.
            FormatError: The file of ``--config`` cannot be read.
        """
        words = [with_dashes(word) for word in argv]
        options, rest = self.parse_known_args(words)
        if rest:
            known = [name for action in self._actions for name in action.option_strings]
            if rest[0].startswith("-"):
                word = rest[0].partition("=")[0]
                self.error(f"there is no flag {word}{did_you_mean(word, known)}")
            self.error(f"'{rest[0]}' belongs to no flag")
        own = {name: value for name, value in vars(options).items() if name not in Job.model_fields}
        keys = {name: value for name, value in vars(options).items() if name in Job.model_fields}
        from_file = read_keys(own["config"]) if own.get("config") else {}
        from_preset = preset(own["preset"]) if own.get("preset") else {}
        given = {**from_file, **keys}
        return SimpleNamespace(**own), {**fitting(from_preset, given.get("model")), **given}


def fitting(keys: dict[str, Any], model: str | None) -> dict[str, Any]:
    """The keys of a preset that fit another model: those about data and training, and what a published model reads too."""
    if model is None or model == keys.get("model"):
        return keys
    if model in MODELS:
        return {key: value for key, value in keys.items() if model in READ_BY.get(key, (model,))}
    return {key: value for key, value in keys.items() if key not in (*ModelKeys.model_fields, "decay_first_layer_only")}


def with_dashes(word: str) -> str:
    """``--batch_size=3`` as ``--batch-size=3``: both spellings of a key are understood."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value
