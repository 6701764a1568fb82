"""Settings of Sphinx, which makes a site of this folder (``make docs``); a warning is an error."""

from __future__ import annotations

import inspect
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import graphtheta
from graphtheta.ops import Primitive

project = "GraphTheta"
version = graphtheta.__version__
copyright = "GraphTheta authors"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
# notebooks are stored without outputs, and an error in one is an error of the site
nb_execution_mode = "force"
# what they write is not left beside them; they import programs that are there
nb_execution_in_temp = True
NOTEBOOKS = Path(__file__).parent / "notebooks"
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, (str(NOTEBOOKS), os.environ.get("PYTHONPATH", "")))
)
nb_execution_timeout = 300
nb_execution_raise_on_error = True
# progress bars
nb_output_stderr = "remove"
# the kind of quotation marks in a sentence is no matter of the program that sets it
smartquotes = False

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_title = f"GraphTheta {version}"
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"sidebar_hide_name": False, "footer_icons": []}

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_custom_sections = ["Collective"]
napoleon_use_ivar = True
python_maximum_signature_line_length = 88


def user_module() -> ModuleType:
    """What a user sees as ``gt``: every public name; a primitive is shown as the function on arrays
    that it computes.
    """
    gt = ModuleType("gt", graphtheta.__doc__)
    for name in graphtheta.__all__:
        value = getattr(graphtheta, name)
        setattr(gt, name, value.forward if isinstance(value, Primitive) else value)
    return gt


sys.modules["gt"] = user_module()


README = re.compile(r"^<!-- readme -->$", re.MULTILINE)
# what the README links to, and its place in this folder
OUTSIDE = {
    "docs/": "",
    "bench/README.md": "bench.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
# which page of api/ shows the public names of which modules; the longest that fits counts
SHOWN = re.compile(r"^<!-- public: (.*) -->$", re.MULTILINE)
PAGES = {
    "/".join(page.parts[-2:])[:-3]: page.read_text(encoding="utf-8")
    for page in sorted((Path(__file__).parent / "api").glob("*.md"))
}
PREFIXES = [
    prefix for page in PAGES.values() for line in SHOWN.findall(page) for prefix in line.split()
]
# what docutils would take for markup in the prose of a docstring
MARKUP = re.compile(r"[*|]|(?<=\w)_(?!\w)")
OPTIONS = {
    "class": "\n   :members:\n   :inherited-members: Module,BaseModel",
    "function": "",
    "data": "\n   :no-value:",
}


def home(name: str) -> str:
    """The module in which a public name is defined, after ``graphtheta.``."""
    value = getattr(sys.modules["gt"], name)
    module = (
        value.__module__
        if inspect.isclass(value) or inspect.isfunction(value)
        else graphtheta._HOME[name]
    )
    return str(module).removeprefix("graphtheta.")


def prefix_of(name: str) -> str:
    """The listed module that a public name belongs to."""
    module = home(name)
    fitting = [prefix for prefix in PREFIXES if module == prefix or module.startswith(f"{prefix}.")]
    if not fitting:
        raise LookupError(
            f"gt.{name}, defined in {module}, belongs to no page of docs/api/: add the module to a"
            " line <!-- public: ... -->"
        )
    return max(fitting, key=len)


def shown(prefixes: list[str]) -> str:
    """The entries of the public names of some modules."""
    entries = []
    for name in (
        name for name in graphtheta.__all__ if name != "__version__" and prefix_of(name) in prefixes
    ):
        value = getattr(sys.modules["gt"], name)
        kind = "class" if inspect.isclass(value) else "function" if callable(value) else "data"
        entries.append(f".. auto{kind}:: gt.{name}{OPTIONS[kind]}")
    return "```{eval-rst}\n" + "\n".join(entries) + "\n```"


def readme() -> str:
    """The README, whose links lead to pages of this folder."""
    text = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    for path, page in OUTSIDE.items():
        text = text.replace(f"]({path}", f"]({page}")
    return text


def with_names(app: Any, page: str, source: list[str]) -> None:
    """Put the public names into the pages of api/, and the README into the first page."""
    source[0] = SHOWN.sub(lambda line: shown(line[1].split()), source[0])
    source[0] = README.sub(lambda _: readme(), source[0])


def as_plain_text(
    app: Any, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Docstrings are read in terminals: outside of ``code`` a star, a bar or a last underscore is
    itself, and no markup.
    """
    for i, line in enumerate(lines):
        parts = re.split("(``.*?``)", line)
        lines[i] = "".join(
            part if part.startswith("``") else MARKUP.sub(r"\\\g<0>", part) for part in parts
        )


def setup(app: Any) -> None:
    # before napoleon, which makes markup of the sections
    app.connect("source-read", with_names)
    app.connect("autodoc-process-docstring", as_plain_text, priority=100)
