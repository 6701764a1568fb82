"""Makes the model of a job: published, registered, from a file, or given in Python."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Container, Iterable
from pathlib import Path
from typing import Any

from graphtheta.base.described import accepted
from graphtheta.engine.layer.layer import Layer, Model
from graphtheta.engine.partition.relation import READOUT
from graphtheta.errors import ConfigError
from graphtheta.graph.data.graph import Graph
from graphtheta.models.build import assemble
from graphtheta.models.design import Design, read_options
from graphtheta.models.readouts import READOUTS
from graphtheta.models.registry import find_model, readers
from graphtheta.models.user import load_user
from graphtheta.ops.autodiff.init import dtype_scope, init_scope
from graphtheta.ops.autodiff.naming import naming
from graphtheta.run.embeddings.setup import width_of
from graphtheta.run.job.job import Job
from graphtheta.run.job.keys import ASKS_NOTHING, FIELDS, OF_DATASET
from graphtheta.run.job.model_keys import OPTIONS
from graphtheta.run.job.outside import in_file, read_extra
from graphtheta.run.job.rules import flag
from graphtheta.tasks.kinds.kind import TaskKind

Factory = Callable[..., Model]
# in the place of the file of a model that is in none
IN_PYTHON = "python"


def make_model(
    job: Job, graph: Graph, kind: TaskKind, given: Model | Factory | None = None
) -> Model:
    """The model of a job, with weights drawn from its seed.

    Args:
        job: Gives the model and its options.
        graph: Gives the widths of features.
        kind: Gives the number of outputs and the decoder.
        given: The model, or a function that makes it; by default the one that the job names.

    Raises:
        ConfigError: It cannot be made.
    """
    sizes = {
        "d_in": width_of(job, graph),
        "d_out": max(kind.width, 1),
        "d_edge": graph.n_edge_features,
        "relations": graph.n_relations,
        "types": graph.n_types,
    }
    named: dict[str, Any] = {
        "relation_names": graph.relation_names,
        "relation_widths": graph.relation_widths,
        "type_names": graph.node_types,
    }
    with dtype_scope(job.dtype), init_scope(job.seed):
        if given is None:
            check_reopens(job)
        source = (
            given
            if given is not None
            else load_user(job.model)
            if in_file(job.model)
            else find_model(job.model)
        )
        if isinstance(source, Design):
            return _of_design(
                design=source,
                job=job,
                graph=graph,
                sizes=sizes,
                decoder=kind.decoder,
            )
        _check_factory(source)
        if isinstance(source, Model):
            return _made_already(source, job)
        name = job.model if given is None else getattr(given, "__name__", "the function")
        if "log_degree" in inspect.signature(source).parameters:
            named["log_degree"] = graph.mean_log_degree()
        return _check_dtype(_of_factory(source, name, job, {**sizes, **named}), job)


def _of_design(
    design: Design,
    job: Job,
    graph: Graph,
    sizes: dict[str, int],
    decoder: str | Callable[[int], Layer],
) -> Model:
    extra = read_extra(design, job.model, job.extra_options)
    own = design.options.model_fields
    refuse_unread(
        job,
        (key for key in OPTIONS if key not in own),
        f"model={job.model}",
        "choose a model that reads it",
    )
    options = read_options(
        design.options, {key: getattr(job, key) for key in own if key in FIELDS} | extra
    )
    whole = READOUT in graph.node_columns
    if whole != (options.readout != "none"):
        raise ConfigError(
            "the labels are those of whole graphs; choose how the values of nodes become one of"
            f" their graph, --readout {', '.join(READOUTS)}"
            if whole
            else (
                f"readout={options.readout} makes values of whole graphs, and the graph has none;"
                " drop --readout, or make it with gt.whole_graphs"
            )
        )
    degrees: dict[str, Any] = (
        {"log_degree": graph.mean_log_degree(options.direction)} if design.reads_degrees else {}
    )
    return assemble(job.model, design, **sizes, **degrees, decoder=decoder, o=options)


def _of_factory(factory: Factory, name: str, job: Job, sizes: dict[str, Any]) -> Model:
    offered = {
        **sizes,
        **{key: getattr(job, key) for key in OPTIONS},
        **read_extra(factory, name, job.extra_options),
    }
    taken = accepted(name, factory, offered)
    refuse_unread(
        job,
        set(offered) - set(taken),
        f"{name}, whose constructor has no such parameter",
        "add the parameter",
    )
    with naming(f"constructor of {name}"):
        model = factory(**taken)
    if not isinstance(model, Model):
        raise ConfigError(
            f"the model factory returned {type(model).__name__}; expected a"
            f" gt.Model{_adopted(model)}"
        )
    return model


def _made_already(model: Model, job: Job) -> Model:
    read_extra(None, job.model, job.extra_options)
    refuse_unread(
        job,
        OPTIONS,
        "a model object",
        f"give the class, gt.Trainer({type(model).__name__}, ...), so that the job creates it",
    )
    return _check_dtype(model, job)


def _adopted(module: Any) -> str:
    """How a module of PyTorch, or a class of them, becomes a model; empty for others."""
    classes = module.__mro__ if inspect.isclass(module) else type(module).__mro__
    if "torch" not in {cls.__module__.partition(".")[0] for cls in classes}:
        return ""
    return (
        "; write one whose forward(self, graph) calls layers of graphtheta, which"
        " gt.from_torch(layer) makes of those of PyTorch"
    )


def _check_factory(given: Any) -> None:
    if remedy := _adopted(given):
        name = given.__name__ if inspect.isclass(given) else type(given).__name__
        raise ConfigError(f"the model {name} is one of PyTorch; expected a gt.Model{remedy}")
    layer = (
        given
        if isinstance(given, Layer)
        else given
        if inspect.isclass(given) and issubclass(given, Layer)
        else None
    )
    if layer is not None:
        name = layer.__name__ if inspect.isclass(layer) else type(layer).__name__
        raise ConfigError(
            f"{name} is a layer, and a layer runs inside a model: write a gt.Model whose"
            " forward(self, graph) returns self.layer(graph, graph.x), with self.layer ="
            f" {name}(...)"
        )


def _check_dtype(model: Model, job: Job) -> Model:
    for name, p in model.named_parameters():
        if p.dtype != job.dtype:
            raise ConfigError(
                f"{name} of {type(model).__name__} has dtype {p.dtype}, but the job has"
                f" dtype={job.dtype}; make it by Parameter.zeros, ones, glorot or normal or from"
                f" {job.dtype} values, in the constructor of the class, and give the class,"
                f" gt.Trainer({type(model).__name__}, ...), so that the job creates it"
            )
    return model


def refuse_unread(job: Job, keys: Iterable[str], by: str, remedy: str) -> None:
    """Reject keys that were given and would be ignored.

    Args:
        job: The job.
        keys: Keys that have no effect.
        by: What does not read them, for the message.
        remedy: Remedy beside dropping the key, for the message.

    Raises:
        ConfigError: One of them is not at its default.
    """
    unread = set(keys)
    for key in (k for k in FIELDS if k in unread and not job.is_default(k)):
        others = (
            f", only with {', '.join(readers(key))}"
            if key in OPTIONS and by.startswith("model=")
            else ""
        )
        raise ConfigError(
            f"{key}={job.as_text(key)} has no meaning with {by}{others}; drop {flag(key)}, or"
            f" {remedy}"
        )


def refuse_prepared(job: Job, keys: Container[str]) -> None:
    """Reject keys that choose or prepare a dataset, for a graph that is given.

    Args:
        job: The job.
        keys: The keys that are given.

    Raises:
        ConfigError: One of them is not at its default, and asks for something.
    """
    for key in (key for key in OF_DATASET if key in keys):
        if getattr(job, key) != ASKS_NOTHING.get(key):
            refuse_unread(job, {key}, "a graph that is given", OF_DATASET[key])


def source_of(model: Any) -> str:
    """A user's model for the job file: FILE.py:Class, from which it can be made again, or, for
    what no file makes again, ``python:NAME``.

    The latter are classes of notebooks or inside functions, functions, and model objects, whose
    arguments nobody knows. The path is that from the current folder if it lies there.
    """
    name = getattr(model, "__name__", type(model).__name__)
    file = getattr(sys.modules.get(getattr(model, "__module__", "")), "__file__", None)
    if not (inspect.isclass(model) and file and model.__qualname__ == name.isidentifier() * name):
        return f"{IN_PYTHON}:{name}"
    path = Path(file).absolute()
    return f"{path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}:{name}"


def check_reopens(job: Job) -> None:
    """Check that the model of a run can be made again from its job.

    Raises:
        ConfigError: It was given in Python, and is in no file.
    """
    kind, _, name = job.model.partition(":")
    if kind == IN_PYTHON and name:
        raise ConfigError(
            f"the run was trained with {name}, an object, a function or a class of a notebook that"
            " was given in Python, which no file makes again; give it,"
            " gt.open_run(folder, model=...), or --model FILE.py:Class"
        )
