"""Reads job keys from YAML files: plain values only, bounded in size, nothing is executed."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from graphtheta.errors import FormatError

# the keys of a run, in its output folder
JOB_FILE = "job.yaml"
# a file of all keys has 3 KiB
LARGEST_FILE, DEEPEST = 1 << 16, 8
# largest value of a key that counts something; rows are counted in 32 bits
LARGEST_NUMBER = 2**31 - 1
# besides its own errors, PyYAML passes on those of converting numbers and dates
UNREADABLE = (OSError, yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, OverflowError)


class KeyLoader(yaml.SafeLoader):
    """YAML without duplicate keys, and without aliases, by which a small file can be huge."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        if event.anchor is not None:
            raise yaml.MarkedYAMLError(problem="anchors (&) and aliases (*) are not supported", problem_mark=event.start_mark)
        self.depth += 1
        if self.depth > DEEPEST:
            raise yaml.MarkedYAMLError(problem="it is nested too deeply", problem_mark=event.start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if str(key.value) in seen:
                raise yaml.MarkedYAMLError(problem=f"'{key.value}' is given twice", problem_mark=key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


def read_mapping(path: str | Path) -> dict[Any, Any]:
    """The mapping in a YAML file.

    Args:
        path: The file; of at most ``LARGEST_FILE`` bytes.

    Raises:
        FormatError: It cannot be read, or is something else; says which line.
    """
    try:
        with Path(path).open("rb") as file:
            text = file.read(LARGEST_FILE + 1)
        if len(text) > LARGEST_FILE:
            raise ValueError(f"it is larger than {LARGEST_FILE >> 10} KiB")
        values = yaml.load(text.decode("utf-8"), KeyLoader)
    except UNREADABLE as error:
        why = " ".join(str(error).replace(' in "<unicode string>",', " in").split())
        raise FormatError(f"{path}: cannot be read as a job: {why}; write one 'key: value' a line") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise FormatError(f"{path}: expected lines of 'key: value', got a {type(values).__name__}")
    return values
