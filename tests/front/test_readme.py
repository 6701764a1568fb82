"""The README is short, its first commands are whole, and the flags of its commands exist."""

from __future__ import annotations

import re
from pathlib import Path

from graphtheta.run.job.flag import Parser

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
    parser = Parser("train", "", "")
    parser.add_job_keys()
    for flag in ("--to", "--format", "--embed", "--ranks", "--keep-layers", "--since", "--top"):
        parser.add_argument(flag)
    known = {name for action in parser._actions for name in action.option_strings}
    commands = [
        line
        for line in (README + COMMANDS).splitlines()
        if re.search(r"graphtheta (train|evaluate|predict|info)", line)
    ]
    told = {flag for line in commands for flag in re.findall(r"--[a-z][a-z-]+", line)}
    assert {"--batch-size", "--preset"} <= told and told <= known
