"""What users add by name: by a call, as a decorator, from a file; and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from graphtheta.base.registry import Registry
from graphtheta.errors import ConfigError


@dataclass
class Tool:
    name: str
    number: int = 0


@pytest.fixture
def tools() -> Registry[Tool]:
    # the class of a file is another one of the same name
    return Registry(
        "tool", lambda x: type(x).__name__ == "Tool", ("auto",), (Tool("saw"), Tool("file"))
    )


def test_in_the_order_added(tools: Registry[Tool]) -> None:
    made = tools.add(Tool("drill"))
    assert list(tools) == ["saw", "file", "drill"] and tools.find("drill") is made is tools["drill"]
    # a cell of a notebook runs again
    assert tools.add(Tool("drill", 2)).number == tools.find("drill").number == 2


@pytest.mark.parametrize(
    "name, said",
    [
        ("saw", "the tool 'saw' is built in"),
        ("auto", "the tool 'auto' is built in"),
        ("a b", "'a b' is not a valid tool name"),
        ("x:y", "letters, digits"),
        ("", "'' is not a valid tool name"),
    ],
)
def test_names_that_nothing_may_have(tools: Registry[Tool], name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        tools.add(Tool(name))
    assert list(tools) == ["saw", "file"]


def test_something_else(tools: Registry[Tool]) -> None:
    with pytest.raises(ConfigError, match="3 is not a tool"):
        tools.add(3)  # type: ignore[arg-type]


def test_an_option_that_is_given_twice(tools: Registry[Tool]) -> None:
    with pytest.raises(
        ConfigError, match="saw:number=1,number=2: the option number is given twice"
    ):
        tools.described("saw:number=1,number=2", "tool")


def test_from_a_file(tools: Registry[Tool], tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "class Tool:\n    def __init__(self, name):\n        self.name = name\n\n\n"
        "drill, other = Tool('drill'), Tool('saw')\nx = 3\n"
    )
    assert tools.find(f"{file}:drill") is tools["drill"]
    for name, said in (
        (f"{file}:x", "has no tool x; it has drill, other"),
        (f"{file}:gone", "has no tool gone"),
        (f"{file}:other", "the tool 'saw' is built in"),
        (f"{file}:not a name", r"not of the form FILE.py:NAME"),
        (f"{tmp_path}/none.py:drill", "tool file .*none.py does not exist"),
        ("mine.txt:drill", "not of the form"),
        ("sew", r"tool 'sew' is not known \(did you mean 'saw'\?\); choose from saw, file"),
    ):
        with pytest.raises(ConfigError, match=said):
            tools.find(name)
    file.write_text("raise KeyError('broken')\n")
    with pytest.raises(
        ConfigError, match=r"mine.py cannot be imported: KeyError: 'broken' \(line 1\)"
    ):
        tools.find(f"{file}:drill")
