"""``gt.open_run``: the model of a finished run on another graph, or on its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

from graphtheta.base.arguments import checked
from graphtheta.base.userfile import CODE_KEYS, NAMED, check_trusted
from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.layer.layer import Model
from graphtheta.engine.runtime.start import start
from graphtheta.errors import ConfigError
from graphtheta.graph.data.graph import Graph
from graphtheta.graph.datasets.dataset import PREPARING, as_word, loaded, parse, preparation
from graphtheta.graph.splits.several import choose_split
from graphtheta.inference.grown.inference import Inference
from graphtheta.inference.grown.trained import Trained
from graphtheta.run.checkpoints.keeper import FREE
from graphtheta.run.checkpoints.weights import WEIGHTS, read_saved
from graphtheta.run.job.job import Job
from graphtheta.run.job.keyfile import JOB_FILE
from graphtheta.run.job.keys import OF_TRAINING
from graphtheta.run.job.rules import flag
from graphtheta.run.job.run_files import missing
from graphtheta.train.loop.make_model import make_model, refuse_prepared, source_of
from graphtheta.train.loop.prepare import refuse_other_tasks

# keys of a dataset that hold for another one only if they are given for it
OWN = ("split", "train_per_class", "val_per_class", "symmetric", "largest_component", "split_index")
# keys that decide which rows are held out
HOLDING_OUT = ("seed", *OWN)
# keys whose effect is carried from the training
CARRIED = ("class_weights", "sample_weights", "embedding", "embedding_types")


def job_of(run: str | Path, keys: dict[str, Any], trust: bool = False) -> Job:
    """The job of a finished run, with some keys changed.

    Args:
        run: Output folder of the run.
        keys: The keys that are changed.
        trust: Whether Python files that the job of the run names may run.

    Raises:
        ConfigError: The folder holds no finished run, a key is not allowed or only read in
            training, or the job names a file that may not run.
    """
    for name in (JOB_FILE, WEIGHTS):
        if not Path(run, name).is_file():
            raise missing(run, name)
    job = Job.from_yaml(Path(run, JOB_FILE))
    check_trusted(job.model_dump(), keys, str(Path(run, JOB_FILE)), trust)
    changed = job.change(**keys)
    for key in (
        key for key in keys if key in OF_TRAINING and getattr(changed, key) != getattr(job, key)
    ):
        raise ConfigError(
            f"{key}={changed.as_text(key)} has no meaning for {run}, whose training is over; drop"
            f" {flag(key)}, or train with it: graphtheta train"
        )
    return changed


@checked
def open_run(
    run: str | Path,
    graph: Graph | None = None,
    *,
    model: str | Model | Callable[..., Model] | None = None,
    comm: Comm | None = None,
    trust: bool = False,
    **keys: Any,
) -> Inference:
    """The model of a finished run on another graph.

    Args:
        run: Output folder of the run.
        graph: The graph; None loads the dataset of the run with its splits, or the one of the key
            ``dataset``. If this names another graph, it is prepared as that of the run was: reverse
            edges, row normalisation. Its masks are those stored with it, unless the key ``split``
            says otherwise.
        model: The model as ``gt.Trainer`` takes it, for a run of a model that is in no file, or
            whose file has moved. Its weights are those of the run, also in a model object.
        comm: The workers; by default those the process was started with.
        trust: Whether Python files that the run names, such as that of its model, may run; a file
            that is given here as a key may.
        **keys: Keys of the job that replace those of the run, such as ``inference_memory``.

    Raises:
        ConfigError: The folder holds no finished run, or files of different ones, a key is not
            allowed, or the run names a file that may not run.
        DataError: The graph lacks something that the model reads, or has it in another form; on all
            ranks together.
        GraphThetaError: The weights or the graph cannot be read; on all ranks together.

    Collective: all ranks of comm.
    """
    comm = comm if comm is not None else start()
    if model is not None:
        keys["model"] = model if isinstance(model, str) else source_of(model)
    job = job_of(run, keys, trust)
    if graph is not None:
        refuse_prepared(job, keys)
    given = None if isinstance(model, str) else model
    path = Path(run, WEIGHTS)
    with comm.agreed():
        saved = read_saved(path)
        _check_job(job, saved.job, path, keys)
        trained = Trained.read_from(saved.trained, str(path))
        own = graph is None and ("dataset" not in keys or _is_same(job, saved.job, trained))
        if own:
            _check_held_out(job, saved.job, keys)
        check_trusted({"task": trained.task}, keys, str(path), trust)
        refuse_other_tasks(job, trained.kind(job).name)
        changed = {key for key in keys if getattr(job, key) != getattr(saved.job, key)}
        for key in (key for key in CARRIED if key in changed):
            raise ConfigError(
                f"{key}={job.as_text(key)} has no meaning for another graph, to which the one of"
                f" the training is applied ({saved.job.as_text(key) or 'none'}); drop {flag(key)}"
            )
        if job.loops == "auto":
            job = job.change(self_loops=saved.job.loops)
        if "threshold" in changed:
            trained = trained.model_copy(update={"thresholds": None})
    return Inference(
        job=job,
        trained=trained,
        graph=lambda: (
            _loaded(job, trained, keys, own) if graph is None else _chosen(job, graph, keys)
        ),
        comm=comm,
        make=lambda taken, kind: make_model(job, taken, kind, given),
        arrays=saved.weights,
    )


def _chosen(job: Job, graph: Graph, keys: Container[str]) -> Graph:
    """A graph that is given with one of its splits, if the key says which."""
    return choose_split(graph, job.split_index) if "split_index" in keys else graph


def _loaded(job: Job, trained: Trained, keys: dict[str, Any], own: bool) -> Graph:
    """The dataset of a job in its own scale: with ``own`` that of the run with its splits, or
    another one, prepared as that of the run was.

    Raises:
        ConfigError: The run was trained on a graph that has no name, or another scale of features
            is asked for.
    """
    if own:
        _check_dataset(trained)
    chosen = {key: getattr(job, key) or None for key in OWN if own or key in keys}
    name, written = parse(
        job.dataset, {"normalise_features": keys.get("normalise_features"), **chosen}
    )
    scale = trained.prepared.get("normalise_features", "none")
    asked = written.pop("normalise_features")
    if asked not in (None, "auto") and scale != preparation(name, normalise_features=asked).get(
        "normalise_features"
    ):
        raise ConfigError(
            f"normalise_features={asked} has no meaning for {job.dataset}, whose features are"
            f" scaled as those of the training graph were ({scale}); drop"
            f" {flag('normalise_features')}"
        )
    # the scale of columns is applied later
    written["normalise_features"] = "row" if scale == "row" else "none"
    usual = {**trained.prepared, "largest_component": "no", "split": "stored"}
    return loaded(name, {"seed": job.seed, **usual, **written}, job.data_dir or None)


def check_own_run(job: Job, weights: Path, keys: Container[str]) -> None:
    """Check that a run was trained on the dataset of its job, and by this job.

    Args:
        job: Of the run, with the dataset of the run.
        weights: The file.
        keys: Keys of the job that are given anew.

    Raises:
        ConfigError: It was trained on a graph that was given in Python, or by another job, or with
            another seed.
        FormatError: The file cannot be read.
    """
    saved = read_saved(weights)
    _check_job(job, saved.job, weights, keys)
    _check_held_out(job, saved.job, keys)
    # a graph that is given leaves the key at its default
    if job.is_default("dataset") and saved.trained:
        _check_dataset(Trained.read_from(saved.trained, str(weights)))


def _check_job(job: Job, trained: Job, weights: Path, keys: Container[str]) -> None:
    for key in Job.model_fields:
        value = getattr(job, key)
        # files may have another place since
        moved = key == "dataset" or (key in CODE_KEYS and NAMED.search(value))
        if key in keys or key in FREE or key in OF_TRAINING or moved:
            continue
        if value != getattr(trained, key):
            raise ConfigError(
                f"{weights.parent}: {key} is {job.as_text(key)} in {JOB_FILE} and"
                f" {trained.as_text(key)} in {WEIGHTS}, which are of different runs; put back the"
                f" file of this run, or give {flag(key)}"
            )


def _is_same(job: Job, before: Job, trained: Trained) -> bool:
    """Whether a dataset is the graph of the training, perhaps with another split."""
    if not trained.prepared:
        return False
    graphs = []
    for name, written in (job.dataset_options, before.dataset_options):
        options = {key: x for key, x in written.items() if key not in (*HOLDING_OUT, *PREPARING)}
        graphs.append((os.path.realpath(name) if os.path.exists(name) else name, options))
    return graphs[0] == graphs[1]


def _check_held_out(job: Job, before: Job, keys: Container[str]) -> None:
    """Check that splits and links by chance are those of the training, on its own dataset."""
    _, now = job.dataset_options
    _, then = before.dataset_options
    for key in HOLDING_OUT:
        value = now.get(key, getattr(job, key))
        earlier = then.get(key, getattr(before, key))
        if as_word(value) != as_word(earlier):
            raise ConfigError(
                f"{key}={value} holds out other rows than the training with {key}={earlier}, which"
                f" has read some of them; drop {flag(key if key in keys else 'dataset')}, or give"
                " another graph with --dataset"
            )


def _check_dataset(trained: Trained) -> None:
    if not trained.prepared:
        raise ConfigError(
            "the run was trained on a graph that was given in Python, not on a dataset; give the"
            " graph, gt.open_run(folder, graph), or a dataset, --dataset NAME"
        )
