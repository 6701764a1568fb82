"""The help of commands: which flags it has and in which order, and what it does not import."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from graphtheta.__main__ import COMMANDS, main
from graphtheta.cli.completion import SHELLS, script
from graphtheta.cli.recorded import FILE, HELP_FLAGS, as_file, recorded_parser
from graphtheta.errors import ConfigError
from graphtheta.models.design import COMMON
from graphtheta.run.job.help import HelpParser
from graphtheta.run.job.keys import FIELDS, SECTIONS
from graphtheta.run.job.rules import flag

# commands that have flags of keys, and those of a finished run, which has its keys
OF_A_RUN = ("evaluate", "predict")
WITH_KEYS = ("train", *OF_A_RUN, "analyse", "info", "explain", "plan", "simulate", "warmup")
# the first flag of a line and, where a key has two, the second
LINE = re.compile(r"^  (--[a-z][a-z0-9-]*|-\w)(?:, (--[a-z-]+))?", re.MULTILINE)
# what bash does to complete the last of the words it was given
ASK = """
COMP_WORDS=(graphtheta "$@")
COMP_CWORD=$#
_shtab_graphtheta
echo "${COMPREPLY[@]}"
"""
CONFIGURATION = ["--config", "--preset"]
KEY_FLAGS = [flag(key) for key in FIELDS]
COMMON_KEYS = [key for key, field in FIELDS.items() if COMMON in field.metadata]


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The help that a command line prints."""
    with pytest.raises(SystemExit) as done:
        main(list(words))
    assert not done.value.code
    return capsys.readouterr().out


def live(command: str) -> HelpParser:
    """The parser of a command that reads its flags."""
    parser: HelpParser = getattr(import_module(COMMANDS[command][0]), f"parser_of_{command}")()
    return parser


def read(action: argparse.Action, text: str) -> object:
    """A value of a flag; None if the flag refuses it."""
    try:
        return action.type(text)  # type: ignore[operator]
    except (argparse.ArgumentTypeError, ValueError):
        return None


def flags_in(text: str) -> list[str]:
    """Flags that have a line in a help, in its order."""
    return [match[1] for match in LINE.finditer(text)]


def keys_in(text: str) -> list[str]:
    """Those of keys."""
    return [name for name in flags_in(text) if name in (*CONFIGURATION, *KEY_FLAGS)]


def titles_in(text: str) -> list[str]:
    """Titles of the sections of keys."""
    titles = [str(section.__doc__) for section in SECTIONS]
    lines = [line.removesuffix(":") for line in text.splitlines() if line.endswith(":")]
    return [line for line in lines if line in titles]


@pytest.mark.parametrize("command", WITH_KEYS)
def test_the_whole_help_has_each_key_once(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, command, "--help-all")
    assert keys_in(text) == [*CONFIGURATION, *KEY_FLAGS]
    assert titles_in(text) == [str(section.__doc__) for section in SECTIONS]
    assert len(set(flags_in(text))) == len(flags_in(text))


@pytest.mark.parametrize("command", WITH_KEYS)
def test_the_short_help_has_common_keys(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, command, "--help")
    keys = [] if command in OF_A_RUN else [*CONFIGURATION, *map(flag, COMMON_KEYS)]
    assert keys_in(text) == keys
    assert titles_in(text) == [
        str(section.__doc__)
        for section in SECTIONS
        if keys and any(key in COMMON_KEYS for key in section.model_fields)
    ]
    # nothing that the whole help lacks, and all flags of the command itself
    whole = flags_in(told(capsys, command, "--help-all"))
    of_keys = {*CONFIGURATION, *KEY_FLAGS}
    assert flags_in(text) == [name for name in whole if name in keys or name not in of_keys]


def test_common_keys_can_be_taken_in() -> None:
    """As many as fit on a screen or two: another one replaces one."""
    assert 15 <= len(COMMON_KEYS) <= 20


def compare_recorded() -> None:
    """The recorded help of each command, and that of its parser."""
    for command in COMMANDS:
        for whole in (False, True):
            recorded, parser = recorded_parser(command), live(command)
            recorded.whole = parser.whole = whole
            assert recorded.format_help() == parser.format_help(), command
    assert FILE.read_text("utf-8") == as_file(COMMANDS), "run make figures"


def test_the_recorded_help_is_that_of_the_parsers() -> None:
    """In a process of its own: other tests may have registered strategies and models."""
    here = [str(Path(__file__).parent), *sys.path]
    paths = f"import sys; sys.path[:0] = {here!r}"
    ran = subprocess.run(
        [sys.executable, "-c", f"{paths}\nimport test_help\ntest_help.compare_recorded()"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.one_in(3)
@pytest.mark.cold
@pytest.mark.parametrize("words", [("train", name) for name in HELP_FLAGS] + [("predict", "-h")])
def test_a_help_imports_no_engine(words: tuple[str, str]) -> None:
    program = (
        "import sys\nfrom graphtheta.__main__ import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "heavy = {'numba', 'scipy', 'pydantic', 'yaml', 'mpi4py', 'graphtheta.ops'}\n"
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stderr == "" and f"usage: graphtheta {words[0]}" in done.stdout


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts_of_completion_have_every_flag(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert text.rstrip() == script(shell).rstrip()
    # tcsh writes flags without dashes
    words = {word.lstrip("-") for word in re.findall(r"[\w-]+", text)}
    flags = {name for command in COMMANDS for name in flags_in(live(command).format_help())}
    assert [name for name in (*COMMANDS, *KEY_FLAGS, *flags) if name.lstrip("-") not in words] == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    "words, completed",
    [
        (["ev"], "evaluate"),
        (["train", "--pati"], "--patience"),
        (["train", "--strategy", "mi"], "mini"),
        (["train", "--lr", "0.1", "--model", "gatv"], "gatv2"),
        (["predict", "--keep-l"], "--keep-layers"),
        (["predict", "--format", "par"], "parquet"),
        (["completion", "z"], "zsh"),
    ],
)
def test_bash_completes(words: list[str], completed: str) -> None:
    """The script is valid and completes the last of the words."""
    done = subprocess.run(
        ["bash", "-n"], input=script("bash"), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    done = subprocess.run(
        ["bash", "--norc", "-s", *words],
        input=script("bash") + ASK,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.stdout.split(), done.stderr) == ([completed], "")


def test_completion_without_its_library(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("graphtheta.cli.completion.find_spec", lambda name: None)
    assert main(["completion", "bash"]) == 2
    assert "pip install 'graphtheta[completion]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, message",
    [
        (["fish"], "choose from"),
        ([], "SHELL"),
        (["bash", "--all"], "unknown flag --all"),
        (["bash", "zsh"], "unexpected argument 'zsh'"),
    ],
)
def test_wrong_words_of_completion(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", *words]) == 2
    assert message in capsys.readouterr().err


NUMBERS = [
    (command, action.option_strings[-1], kind)
    for command in COMMANDS
    for action in live(command)._actions
    for kind, right in ((int, "1"), (float, "1.5"))
    if callable(action.type) and type(read(action, right)) is kind
]


@pytest.mark.parametrize(("command", "flag", "kind"), NUMBERS)
def test_flags_refuse_numbers_without_meaning(command: str, flag: str, kind: type) -> None:
    assert len(NUMBERS) > 10
    for value in ("inf", "nan", "-1", "1e308", str(10**30), *(["1.5"] if kind is int else [])):
        with pytest.raises(ConfigError, match=f"{flag}: got {re.escape(value)}, expected .* from"):
            live(command).parse_known_args([f"{flag}={value}"])
