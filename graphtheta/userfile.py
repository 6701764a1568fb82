"""Imports a user's Python file by its path."""
from __future__ import annotations

import hashlib
import sys
import traceback
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from graphtheta.errors import ConfigError, GraphThetaError


def load_module(file: Path, what: str) -> ModuleType:
    """Import a file under a private name, so that it cannot clash with another module.

    Args:
        file: Its path.
        what: What the file is to define, for messages.

    Raises:
        ConfigError: There is no such file, or it cannot be imported.
    """
    if not file.is_file():
        raise ConfigError(f"the {what} file {file} does not exist; give its path from the current folder")
    name = f"_graphtheta_user_{hashlib.blake2b(str(file.resolve()).encode(), digest_size=8).hexdigest()}"
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
        raise ConfigError(f"the {what} file {file} cannot be imported: {type(error).__name__}: {error}{_line(file, error)}") from error
    return module


def _line(file: Path, error: Exception) -> str:
    """The line of the file that raised the error, unless the message already contains it."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).name == file.name]
    return f" (line {lines[-1]})" if lines and not isinstance(error, SyntaxError) else ""
