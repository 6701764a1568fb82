# `make check` is what CI runs, on the environment that is active.
PYTHON ?= python
TREE ?= .typetree

.PHONY: help typetree lint types docs figures statements test second third check

help:
	@echo "make typetree   link tree in which the installed layout lies on disk, for mypy and pyright"
	@echo "make lint       ruff"
	@echo "make types      mypy, and that it saw every file"
	@echo "make docs       the site of docs/ in .site; a warning is an error"
	@echo "make figures    figures, listings and paths in docs/, from the source, and tables of bench/"
	@echo "make statements statements of each area and package, without docstrings"
	@echo "make test       the first stage of the tests"
	@echo "make second     the second stage: what takes long, or needs the extra libraries"
	@echo "make third      cases of long tables that are in no stage"
	@echo "make check      lint, types, test, second"

# Type checkers do not know package_dir: graphtheta.engine is not below graphtheta/ on disk. In the tree it is.
typetree:
	@rm -rf $(TREE) && mkdir -p $(TREE)/graphtheta
	@for f in $(CURDIR)/graphtheta/*; do ln -s $$f $(TREE)/graphtheta/; done
	@for d in ops engine models; do ln -s $(CURDIR)/$$d $(TREE)/graphtheta/$$d; done

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check --quiet .

types: typetree
	@out=$$($(PYTHON) -m mypy) || { echo "$$out"; exit 1; }; echo "$$out"; \
	n=$$(find graphtheta ops engine models -name '*.py' | wc -l); \
	echo "$$out" | grep -q "in $$n source files" || { echo "mypy did not see all $$n files"; exit 1; }

docs:
	@$(PYTHON) -m sphinx -q -W --keep-going -b html docs .site

figures:
	@$(PYTHON) docs/figures/draw.py
	@$(PYTHON) docs/generated.py
	@$(PYTHON) docs/paths.py > /dev/null
	@$(PYTHON) bench/tables.py

define COUNT
import ast, pathlib
documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
areas = ("graphtheta", "engine", "ops", "models")
counts = {folder: 0 for area in areas for folder in (area, *pathlib.Path(area).glob("*/"))}
for area in areas:
    for file in pathlib.Path(area).rglob("*.py"):
        nodes = list(ast.walk(ast.parse(file.read_text("utf-8"))))
        docstrings = sum(isinstance(n, documented) and ast.get_docstring(n) is not None for n in nodes)
        count = sum(isinstance(n, ast.stmt) for n in nodes) - docstrings
        counts[area] += count
        if len(file.parts) > 2:
            counts[pathlib.Path(*file.parts[:2])] += count
for folder, count in sorted(counts.items(), key=lambda one: -one[1]):
    if count:
        about = ast.get_docstring(ast.parse(pathlib.Path(folder, "__init__.py").read_text("utf-8")))
        print(f"{count:7,}  {folder}/".ljust(34), " ".join(about.split("\n\n")[0].split()))
print(f"{sum(counts[area] for area in areas):7,}  in all")
endef
export COUNT

statements:
	@$(PYTHON) -c "$$COUNT"

test:
	$(PYTHON) -m pytest -q

second:
	$(PYTHON) -m pytest -q -m second

third:
	$(PYTHON) -m pytest -q -m third

check: lint types test second
