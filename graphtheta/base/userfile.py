"""Imports a user's Python file by its path; no other module runs files.

Which file runs is said by keys of a job (``CODE_KEYS``). Those that the user gives, on the command
line, in a file of ``--config`` or in Python, are run. Those that a file of a run says are run only
if the user trusts the run.
"""

from __future__ import annotations

import hashlib
import re
import sys
import traceback
from collections.abc import Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from graphtheta.errors import ConfigError, GraphThetaError

# keys of a job whose values may be FILE.py:NAME
CODE_KEYS = (
    "model",
    "task",
    "metric",
    "structural_features",
    "order",
    "strategy",
    "sampler",
    "history",
    "partitioner",
    "masters",
    "cache_policy",
    "exchange",
)
# names of files in a value, of which several are joined by +
NAMED = re.compile(r"[^+]+?\.py(?=:)")


def check_trusted(
    values: Mapping[str, Any], given: Mapping[str, Any], where: str, trust: bool
) -> None:
    """Check that no file of code is named but by the user.

    Args:
        values: Keys and values that a file says, of any keys.
        given: Those that the user gave, which replace them.
        where: The file.
        trust: Whether the user trusts it.

    Raises:
        ConfigError: A value names a Python file.
    """
    for key, value in values.items() if not trust else ():
        if key in given or not isinstance(value, str):
            continue
        match = NAMED.search(value)
        if match:
            raise ConfigError(
                f"{where}: {key}={value} would run the file {Path(match[0]).absolute()} with your"
                " rights; if you trust it, give --trust (in Python, trust=True), or the value"
                f" itself: --{key.replace('_', '-')} {value}"
            )


def load_module(file: Path, what: str) -> ModuleType:
    """Import a file under a private name, so that it cannot clash with another module.

    Args:
        file: Its path.
        what: What the file is to define, for messages.

    Raises:
        ConfigError: There is no such file, or it cannot be imported.
    """
    if not file.is_file():
        raise ConfigError(
            f"the {what} file {file} does not exist; give its path from the current folder"
        )
    digest = hashlib.blake2b(str(file.resolve()).encode(), digest_size=8).hexdigest()
    name = f"_graphtheta_user_{digest}"
    spec = spec_from_file_location(name, file)
    assert spec is not None
    module = module_from_spec(spec)
    # dataclasses and pickle look their module up
    sys.modules[name] = module
    try:
        # not by the loader, which takes stored bytecode for a file that changed within its second
        exec(compile(file.read_bytes(), file, "exec"), module.__dict__)
    except GraphThetaError:
        raise
    except Exception as error:
        raise ConfigError(
            f"the {what} file {file} cannot be imported: {type(error).__name__}:"
            f" {error}{_line(file, error)}"
        ) from error
    return module


def _line(file: Path, error: Exception) -> str:
    """The line of the file that raised the error, unless the message already contains it."""
    lines = [
        f.lineno
        for f in traceback.extract_tb(error.__traceback__)
        if Path(f.filename).name == file.name
    ]
    return f" (line {lines[-1]})" if lines and not isinstance(error, SyntaxError) else ""
