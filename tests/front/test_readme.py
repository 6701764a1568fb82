"""The README is short, its first commands are whole, and the flags of its commands exist."""

from __future__ import annotations

import re
from pathlib import Path

from graphtheta.cli.recorded import recorded_parsers

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")


def test_it_is_short() -> None:
    assert len(README.split()) < 1200


def test_its_two_commands_make_an_environment_and_run() -> None:
    first, second = re.findall(r"```sh\n(python3 -m venv .*)\n```", README)
    assert first.endswith(".venv/bin/mpiexec -n 2 .venv/bin/graphtheta train")
    assert second.endswith(".venv/bin/python -m pytest -q")


def test_flags_exist() -> None:
    """``--help-all`` of a command tells every flag that it is shown with."""
    parsers = recorded_parsers()
    told = set()
    # flags of other commands, such as import, depend on their first words
    line = r"graphtheta (train|evaluate|predict|info)\b([^\n#`]*)"
    for command, words in re.findall(line, README + COMMANDS):
        flags = set(re.findall(r"--[a-z][a-z-]+", words))
        known = {name for action in parsers[command]._actions for name in action.option_strings}
        assert flags <= known, command
        told |= flags
    assert {"--batch-size", "--preset"} <= told
