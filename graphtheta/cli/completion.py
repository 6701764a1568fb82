"""The command ``completion``: a script by which a shell completes a command line."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from typing import Any

from graphtheta.__main__ import COMMANDS
from graphtheta.base.console import say
from graphtheta.cli.recorded import recorded_parsers
from graphtheta.engine.runtime.start import launched
from graphtheta.errors import ConfigError
from graphtheta.run.job.help import HelpParser

SHELLS = ("bash", "zsh", "tcsh")
# words of the help for values that are places on disk, as shtab calls these
PLACES: dict[Any, str] = {
    "FILE": "FILE",
    "PATH": "FILE",
    "FOLDER": "DIRECTORY",
    "STORE": "DIRECTORY",
    "RUN": "DIRECTORY",
}


def parser_of_completion() -> HelpParser:
    """The flags of the command."""
    parser = HelpParser(
        "completion",
        "Print a script by which a shell completes commands, flags and their values.",
        'eval "$(graphtheta completion bash)"',
        "{" + ",".join(SHELLS) + "} ",
    )
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))
    return parser


def completion(argv: list[str]) -> int:
    """Print the script.

    Args:
        argv: The shell.

    Returns:
        Exit code.
    """
    shell = parser_of_completion().read_words(argv).shell
    if find_spec("shtab") is None:
        raise ConfigError(
            "graphtheta completion writes its script with shtab, which is not installed; run pip"
            " install 'graphtheta[completion]'"
        )
    if launched()[0] == 0:
        say(script(shell))
    return 0


def script(shell: str) -> str:
    """The script for a shell.

    Args:
        shell: One of ``SHELLS``.
    """
    import shtab

    program = argparse.ArgumentParser("graphtheta", add_help=False)
    commands = program.add_subparsers(metavar="COMMAND")
    for name, parser in recorded_parsers().items():
        for action in parser._actions:
            if values := parser.values.get(action.dest):
                action.choices = values
            elif action.metavar in PLACES:
                # read by shtab
                vars(action)["complete"] = getattr(shtab, PLACES[action.metavar])
        commands.add_parser(name, help=COMMANDS[name][1], add_help=False, parents=[parser])
    return str(shtab.complete(program, shell))
