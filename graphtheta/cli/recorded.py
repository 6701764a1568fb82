"""The help of every command as it was recorded in ``help.json``, which takes no engine to show.

``make figures`` writes the file from the parsers of the commands; a test compares.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from graphtheta.base.strict_json import to_json
from graphtheta.run.job.help import HelpParser, Record, parser_of

FILE = Path(__file__).with_name("help.json")
LISTED = re.compile(r"\[[^\[\]{}]*\]")
HELP_FLAGS = ("-h", "--help", "--help-all")


def recorded_parser(command: str) -> HelpParser:
    """A parser that shows the help of a command and reads nothing else."""
    return recorded_parsers(command)[command]


def recorded_parsers(*commands: str) -> dict[str, HelpParser]:
    """Such parsers of some commands, or of all, by name."""
    records = json.loads(FILE.read_text("utf-8"))
    return {
        name: parser_of(one, records["keys"])
        for name, one in records["commands"].items()
        if name in commands or not commands
    }


def as_file(commands: Mapping[str, tuple[str, str]]) -> str:
    """The text of the file; imports the modules of all commands.

    Args:
        commands: Module of each command, and its line of help.
    """
    records: dict[str, Record] = {}
    keys: list[Record] = []
    for name, (module, _) in commands.items():
        parser: HelpParser = getattr(import_module(module), f"parser_of_{name}")()
        own, of_keys = parser.records()
        records[name] = own
        # flags of keys are the same in all commands; which are common says one that shows them
        keys = of_keys if own["short"] else keys
    text = to_json({"commands": records, "keys": keys}, indent=1, ensure_ascii=False)
    # lists of flags and values stand on one line
    return LISTED.sub(lambda match: " ".join(match[0].split()), text) + "\n"
