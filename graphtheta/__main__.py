"""The command ``graphtheta``: runs a subcommand; an error becomes one message and an exit code."""

from __future__ import annotations

import sys
from importlib import import_module
from keyword import iskeyword

import graphtheta
from graphtheta.base.collector import collector_paused
from graphtheta.base.console import complain, open_streams, say
from graphtheta.base.wording import did_you_mean
from graphtheta.cli.recorded import HELP_FLAGS, recorded_parser
from graphtheta.engine.comm.failure import close_output, exit_code, os_error_text
from graphtheta.engine.runtime.start import launched, run_main
from graphtheta.errors import ConfigError, GraphThetaError

# name, module and line of help of each subcommand: a function that reads its words, and returns the
# program that all ranks run, or an exit code if it has done its work
COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("graphtheta.cli.command", "train a model; without flags, a small built-in job"),
    "launch": (
        "graphtheta.cli.launch",
        "run a command on several ranks; if it fails, restart it from the newest intact checkpoint",
    ),
    "evaluate": ("graphtheta.cli.command", "compute metrics of a finished run on every split"),
    "predict": (
        "graphtheta.cli.predict",
        "write predictions of a finished run for all nodes, by original id",
    ),
    "import": (
        "graphtheta.cli.import_",
        "write a graph as a store, a folder that training maps into memory",
    ),
    "datasets": (
        "graphtheta.cli.datasets",
        "list the named data sets: sizes, task, licence, checksums, public addresses",
    ),
    "download": (
        "graphtheta.cli.datasets",
        "get named data sets from their public addresses, or from a mirror or folder",
    ),
    "report": (
        "graphtheta.cli.report",
        "write an HTML report of a run: learning curve, time, load balance, traffic, memory",
    ),
    "runs": (
        "graphtheta.cli.runs",
        "list and compare the runs in a folder: keys that differ, best metrics",
    ),
    "transform": (
        "graphtheta.cli.transform",
        "make a store of some nodes and edges of another one",
    ),
    "analyse": (
        "graphtheta.cli.analyse",
        "run a graph algorithm, such as pagerank, and write values of all nodes by original id",
    ),
    "info": (
        "graphtheta.cli.command",
        "show statistics of a dataset and of its partition over workers",
    ),
    "explain": (
        "graphtheta.cli.command",
        (
            "show the execution plan of a job: layers, messages between workers, bytes, operations,"
            " memory"
        ),
    ),
    "plan": (
        "graphtheta.cli.plan",
        "predict memory, bytes and time of a job before it runs; refuse one that cannot fit",
    ),
    "simulate": (
        "graphtheta.cli.simulate",
        "count a job on many workers, and predict its time on a cluster and what limits it",
    ),
    "warmup": ("graphtheta.cli.command", "compile the kernels of a job ahead of time"),
    "doctor": ("graphtheta.cli.doctor", "check this machine: versions, MPI, threads, memory"),
    "completion": (
        "graphtheta.cli.completion",
        "print a script by which a shell completes commands, flags and values",
    ),
}
BAD_USAGE = 2


def usage() -> str:
    """The text of ``graphtheta --help``."""
    width = max(map(len, COMMANDS)) + 2
    lines = "\n".join(f"  {name.ljust(width)}{about}" for name, (_, about) in COMMANDS.items())
    return (
        f"graphtheta {graphtheta.__version__}: distributed graph learning on CPUs\n\nusage:"
        f" graphtheta COMMAND [flags]\n\n{lines}\n\ngraphtheta COMMAND --help shows its flags. On"
        " several workers: mpiexec -n 4 graphtheta train ..."
    )


def main(argv: list[str] | None = None) -> int:
    """Run one subcommand.

    Args:
        argv: Arguments after ``graphtheta``; those of this process if None.

    Returns:
        Exit code: 0 on success, 2 for an invalid command or job, 1 for any other error.
    """
    open_streams()
    words = sys.argv[1:] if argv is None else argv
    is_root = launched()[0] == 0
    try:
        if not words or words[0] in ("-h", "--help", "help", "--version"):
            if is_root:
                say(graphtheta.__version__ if words[:1] == ["--version"] else usage())
            return 0 if words else BAD_USAGE
        if words[0] not in COMMANDS:
            raise ConfigError(
                f"unknown command '{words[0]}'{did_you_mean(words[0], COMMANDS)}; commands:"
                f" {', '.join(COMMANDS)}"
            )
        if len(words) == 2 and words[1] in HELP_FLAGS:
            # with other words, such as a model of the user, a help can have more flags
            recorded_parser(words[0]).read_words(words[1:])
        with collector_paused():
            module = import_module(COMMANDS[words[0]][0])
        program = getattr(module, words[0] + "_" * iskeyword(words[0]))(words[1:])
        return program if isinstance(program, int) else run_main(program)
    except GraphThetaError as error:
        if is_root:
            complain(f"graphtheta: {error}")
        return exit_code(error)
    except BrokenPipeError as error:
        close_output()
        return exit_code(error)
    except OSError as error:
        if is_root:
            complain(f"graphtheta: {os_error_text(error)}")
        return exit_code(error)


if __name__ == "__main__":
    sys.exit(main())
