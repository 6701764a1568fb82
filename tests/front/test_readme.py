"""The README keeps its word: its layer passes the checks, its flags exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import graphtheta as gt
from graphtheta.run.job.flag import Parser

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


def test_layer_passes_the_checks() -> None:
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert code is not None
    names: dict[str, Any] = {}
    exec(code[1], names)
    report = gt.check(names["GATE"](5, 3, 4, 2))
    assert report.gradients < 1e-6 and report.workers < 1e-9


def test_flags_exist() -> None:
    parser = Parser("train", "", "")
    parser.add_job_keys()
    for flag in ("--to", "--format", "--embed", "--ranks", "--keep-layers", "--since", "--top"):
        parser.add_argument(flag)
    known = {name for action in parser._actions for name in action.option_strings}
    commands = [
        line
        for line in README.splitlines()
        if re.search(r"graphtheta (train|evaluate|predict|info)", line)
    ]
    told = {flag for line in commands for flag in re.findall(r"--[a-z][a-z-]+", line)}
    assert {"--batch-size", "--preset"} <= told and told <= known
