"""Pictures of matplotlib as files, which replace pictures alone that graphtheta made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graphtheta.base.atomic import atomic_file, file_errors
from graphtheta.errors import ConfigError

# what says in a picture of a format that graphtheta made it, and how such a file begins
MADE_BY = {".png": "Software", ".svg": "Creator"}
BEGINNING = rb"(\x89PNG|<\?xml).{0,2000}graphtheta"
WHAT = "the picture"


def new_figure(**arguments: Any) -> Any:
    """A figure of matplotlib, with its arguments.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("pictures need matplotlib: pip install 'graphtheta[plot]'") from None
    return Figure(layout="constrained", **arguments)


def write_picture(figure: Any, path: Path, remedy: str = "choose another name") -> None:
    """Write a figure; the file appears whole or not at all.

    Args:
        figure: The figure.
        path: The file; its ending chooses the format, such as .svg or .png. Without one it is SVG.
        remedy: What to do if it cannot be written.

    Raises:
        ConfigError: There is no such format.
        FormatError: The file cannot be written, or something else is in its place.
    """
    suffix = path.suffix or ".svg"
    about = {MADE_BY[suffix]: "graphtheta"} if suffix in MADE_BY else None
    with file_errors(path, WHAT, remedy), atomic_file(path, BEGINNING) as file:
        try:
            figure.savefig(file, format=suffix[1:], metadata=about)
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from None
