"""Reads and writes job keys in YAML files: plain values only, bounded in size, nothing is executed.

Values are those of YAML 1.2, and not of 1.1 as PyYAML reads it: 010 is ten, 1:30, on, no and dates
are texts, and 1e-5 is a number.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from graphtheta.errors import FormatError

# the keys of a run, in its output folder
JOB_FILE = "job.yaml"
# a file of all keys has 3 KiB
LARGEST_FILE = 1 << 16
DEEPEST = 8
# besides its own errors, PyYAML passes on those of converting numbers and dates
UNREADABLE = (
    OSError,
    yaml.YAMLError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    OverflowError,
)


# the core schema of YAML 1.2: tag, how a value without quotes is written, and with what it begins
CORE = (
    ("null", r"|~|null|Null|NULL", ["", *"~nN"]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
)


class KeyLoader(yaml.SafeLoader):
    """YAML without duplicate keys, and without aliases, by which a small file can be huge."""

    depth = 0
    yaml_implicit_resolvers: dict[Any, Any] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if event.anchor is not None:
            raise yaml.MarkedYAMLError(
                problem="anchors (&) and aliases (*) are not supported",
                problem_mark=event.start_mark,
            )
        self.depth += 1
        if self.depth > DEEPEST:
            raise yaml.MarkedYAMLError(
                problem="it is nested too deeply", problem_mark=event.start_mark
            )
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if str(key.value) in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"'{key.value}' is given twice", problem_mark=key.start_mark
                )
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


class KeyDumper(yaml.SafeDumper):
    """Writes what ``KeyLoader`` reads as the same values."""

    yaml_implicit_resolvers: dict[Any, Any] = {}


def whole_number(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    """An integer; zeros in front do not make it octal."""
    text = str(loader.construct_scalar(node))
    return int(text, 0 if text[:2] in ("0o", "0x") else 10)


for kind, pattern, begins in CORE:
    for reader in (KeyLoader, KeyDumper):
        reader.add_implicit_resolver(
            f"tag:yaml.org,2002:{kind}", re.compile(f"^(?:{pattern})$"), begins
        )
KeyLoader.add_constructor("tag:yaml.org,2002:int", whole_number)


def write_mapping(values: dict[str, Any]) -> str:
    """A mapping as lines of 'key: value', in its order."""
    return str(yaml.dump(values, Dumper=KeyDumper, sort_keys=False))


def read_mapping(path: str | Path) -> dict[Any, Any]:
    """The mapping in a YAML file.

    Args:
        path: The file; of at most ``LARGEST_FILE`` bytes.

    Raises:
        FormatError: It cannot be read, or is something else; says which line.
    """
    if not Path(path).exists():
        raise FormatError(f"{path}: the file does not exist; check the path")
    try:
        with Path(path).open("rb") as file:
            text = file.read(LARGEST_FILE + 1)
        if len(text) > LARGEST_FILE:
            raise ValueError(f"it is larger than {LARGEST_FILE >> 10} KiB")
        values = yaml.load(text.decode("utf-8"), KeyLoader)
    except UNREADABLE as error:
        why = " ".join(str(error).replace(' in "<unicode string>",', " in").split())
        raise FormatError(
            f"{path}: cannot be read as a job: {why}; write one 'key: value' a line"
        ) from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise FormatError(f"{path}: expected lines of 'key: value', got a {type(values).__name__}")
    return values
