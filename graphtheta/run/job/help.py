"""The help of commands, which needs neither the keys' classes nor what they name.

All that a parser shows can be recorded as plain values, and made from them again: what imports the
engine takes seconds, and whoever asks for help waits. ``graphtheta/cli/help.json`` has the records.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from math import nan
from types import SimpleNamespace
from typing import Any, NoReturn

from graphtheta.base.console import say
from graphtheta.base.described import LARGEST_NUMBER
from graphtheta.base.wording import did_you_mean
from graphtheta.engine.runtime.start import launched
from graphtheta.errors import ConfigError

# plain values that describe a parser, or one of its arguments
Record = dict[str, Any]
FIRST_COLUMN, WIDTH = 30, 110


class HelpParser(argparse.ArgumentParser):
    """A parser of one command that raises instead of printing, with a short and a whole help.

    Args:
        command: Its name.
        summary: What it does.
        example: A command line.
        words: Arguments in front of the flags, each followed by a space.
    """

    def __init__(self, command: str, summary: str, example: str, words: str = ""):
        self.described = {
            "command": command,
            "summary": summary,
            "example": example,
            "words": words,
        }
        # names of flags that only the whole help has, and of those of keys
        self.rare: set[str] = set()
        self.of_keys: set[str] = set()
        # values that a flag can have, as far as they can be listed
        self.values: dict[str, tuple[str, ...]] = {}
        self.whole = False
        super().__init__(
            prog=f"graphtheta {command}",
            usage=f"graphtheta {command} {words}[flags]",
            description=summary,
            epilog=f"example: {example}",
            allow_abbrev=False,
            add_help=False,
            formatter_class=lambda prog: _Lines(prog, set() if self.whole else self.rare),
        )
        self.add_argument("-h", "--help", action=_Help, help="show this help and exit")

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see {self.prog} {'--help-all' if self.rare else '--help'}")

    def print_help(self, file: Any = None) -> None:
        """Print the help on rank 0 only."""
        if launched()[0] == 0:
            say(self.format_help())

    def read_words(self, words: list[str]) -> SimpleNamespace:
        """The values of a command line by name.

        Args:
            words: Words after the command.

        Raises:
            ConfigError: An unknown flag, a flag without its value, or an unexpected argument.
        """
        options, rest = self.parse_known_args(words)
        if rest and rest[0].startswith("-"):
            flags = [name for action in self._actions for name in action.option_strings]
            word = rest[0].partition("=")[0]
            self.error(f"unknown flag {word}{did_you_mean(word, flags)}")
        if rest:
            self.error(
                f"unexpected argument '{rest[0]}', which is not the value of any"
                f" flag{with_commas(words, rest[0])}{self.meant_by(rest[0])}"
            )
        return SimpleNamespace(**vars(options))

    def meant_by(self, word: str) -> str:
        """What a word without a flag may be meant for."""
        return f"; a graph is given as --dataset {word}" if "dataset" in self.of_keys else ""

    def records(self) -> tuple[Record, list[Record]]:
        """What the help shows: of the command and its own arguments, and of those of keys."""
        own: list[Record] = []
        keys: list[Record] = []
        for group in self._action_groups:
            for action in group._group_actions:
                if not isinstance(action, _Help):
                    shared = action.dest in self.of_keys
                    record = self._record(action, str(group.title) if shared else None)
                    (keys if shared else own).append(record)
        return {
            **self.described,
            "arguments": own,
            # flags of keys: whether there are any, and whether the short help has the common ones
            "keys": bool(keys),
            "short": any(key["name"] not in self.rare for key in keys),
        }, keys

    def _record(self, action: argparse.Action, title: str | None) -> Record:
        values = self.values.get(action.dest) or tuple(action.choices or ())
        record = {
            "name": action.dest,
            "title": title,
            "common": action.dest not in self.rare,
            "flags": action.option_strings,
            "nargs": action.nargs,
            "metavar": action.metavar or ("{" + ",".join(values) + "}" if values else None),
            "values": list(values),
            "help": action.help,
        }
        return {name: value for name, value in record.items() if value not in (None, [])}


def number_from(kind: type[int] | type[float], least: int) -> Callable[[str], float]:
    """A reader of numbers from ``least`` to the largest that a key can have, as ``type`` of an
    argument.
    """
    words = "a whole number" if kind is int else "a number"

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = nan
        if not least <= value <= LARGEST_NUMBER:
            raise argparse.ArgumentTypeError(
                f"got {text}, expected {words} from {least} to {LARGEST_NUMBER}"
            )
        return value

    return read


class _Lines(argparse.HelpFormatter):
    """The lines of a help, without flags of some names."""

    def __init__(self, prog: str, hidden: set[str]):
        super().__init__(prog, max_help_position=FIRST_COLUMN, width=WIDTH)
        self._hidden = hidden

    def add_argument(self, action: argparse.Action) -> None:
        if action.dest not in self._hidden:
            super().add_argument(action)


class _Help(argparse.Action):
    """Prints the help, the whole one for ``--help-all``, and ends the command."""

    def __init__(self, option_strings: list[str], dest: str, help: str):
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        assert isinstance(parser, HelpParser)
        parser.whole = option_string == "--help-all"
        parser.print_help()
        parser.exit()


class _Shown(argparse.Action):
    """An argument that the help shows and nothing reads."""

    def __call__(self, *args: Any, **keys: Any) -> None:
        pass


def add_whole_help(parser: HelpParser, short: bool) -> None:
    """Add ``--help-all``.

    Args:
        parser: The parser of a command.
        short: Whether ``--help`` shows the common keys.
    """
    shown = "show the flags of all keys" if short else "show the flags of keys"
    parser.add_argument("--help-all", action=_Help, help=f"{shown}, too, and exit")


def parser_of(record: Record, keys: list[Record]) -> HelpParser:
    """A parser with the help of the one that was recorded.

    Args:
        record: Of the command.
        keys: Of the flags of keys.
    """
    parser = HelpParser(
        **{name: record[name] for name in ("command", "summary", "example", "words")}
    )
    groups: dict[str, argparse._ArgumentGroup] = {}
    for one in record["arguments"]:
        _add(parser, one, parser)
    if record["keys"]:
        add_whole_help(parser, record["short"])
    for one in keys if record["keys"] else ():
        title = one["title"]
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        _add(groups[title], one, parser)
        if not (one["common"] and record["short"]):
            parser.rare.add(one["name"])
    return parser


def _add(to: argparse._ActionsContainer, one: Record, parser: HelpParser) -> None:
    flags = one.get("flags")
    named: dict[str, Any] = {"dest": one["name"]} if flags else {}
    to.add_argument(
        *(flags or [one["name"]]),
        **named,
        action=_Shown,
        nargs=one.get("nargs"),
        metavar=one.get("metavar"),
        help=one.get("help"),
    )
    parser.values[one["name"]] = tuple(one.get("values", ()))


def with_commas(words: list[str], word: str) -> str:
    """How a list is written, if a word follows the value of a flag; else nothing."""
    at = words.index(word)
    flag_before = (
        at >= 2
        and words[at - 2].startswith("--")
        and "=" not in words[at - 2]
        and not words[at - 1].startswith("-")
    )
    return (
        f"; several values are separated by commas: {words[at - 2]} {words[at - 1]},{word}"
        if flag_before
        else ""
    )
