"""Checks that all ranks were given the same job, graph and model.

Each computes with its own copy of these. Without the check, ranks with other labels or another
learning rate train on, and the result belongs to no job that anybody could repeat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphtheta.engine.comm.communicator import Comm
from graphtheta.engine.layer.layer import Model
from graphtheta.errors import ConfigError, DataError
from graphtheta.run.agreement.digest import Digests, model_digests, of_text
from graphtheta.run.job.job import Job, as_text

# keys that may differ: what a rank shows, and where the files of its machine are
OWN_KEYS = ("log_level", "data_dir")
# differences, and ranks, that a message names
MOST_NAMED = 3


def check_jobs(job: Job, comm: Comm) -> None:
    """Check that all ranks have the same job.

    Raises:
        ConfigError: They have not; on all ranks.

    Collective: all ranks of comm.
    """
    keys = {**job.model_dump(), **job.extra_options}
    texts = {key: as_text(value) for key, value in keys.items() if key not in OWN_KEYS}
    if why := _difference(comm, texts):
        raise ConfigError(f"the job: {why}; give all ranks the same keys")


def check_graphs(digests: Digests, comm: Comm) -> None:
    """Check that all ranks have the same graph.

    Args:
        digests: Those of the graph of this rank, see ``graph_digests``.
        comm: The ranks.

    Raises:
        DataError: They have not; on all ranks.

    Collective: all ranks of comm.
    """
    if why := _difference(comm, digests):
        raise DataError(
            f"the graph: {why}; give all ranks the same graph: load the same file, or draw from the"
            " same seed, in the same order"
        )


def check_models(model: Model, settings: Mapping[str, Any], comm: Comm) -> None:
    """Check that all ranks have the same model.

    Args:
        model: The model, before training.
        settings: Settings of its training that are not in the job, as plain values, by argument.
        comm: The ranks.

    Raises:
        ConfigError: They have not; on all ranks.

    Collective: all ranks of comm.
    """
    digests = {name: of_text(repr(value)) for name, value in settings.items()}
    if comm.size > 1:
        digests |= model_digests(model)
    if why := _difference(comm, digests):
        raise ConfigError(
            f"the model {type(model).__name__}: {why}; make it alike on all ranks, with the same"
            " arguments: draw parameters by gt.Parameter.glorot, and other values from a generator"
            " with a fixed seed"
        )


def check_arguments(called: str, arguments: Mapping[str, Any], comm: Comm) -> None:
    """Check that all ranks have called something with the same arguments.

    Args:
        called: Its name, for the message.
        arguments: Its arguments by name, as plain values.
        comm: The ranks.

    Raises:
        ConfigError: They have not; on all ranks.

    Collective: all ranks of comm.
    """
    if why := _difference(comm, {name: as_text(value) for name, value in arguments.items()}):
        raise ConfigError(f"{called}: {why}; give all ranks the same arguments")


def _difference(comm: Comm, own: Mapping[str, Any]) -> str:
    """The first difference between values of all ranks, and on which ranks it is; empty if there is
    none.

    Args:
        comm: The ranks.
        own: By name, texts, or digests, which are numbers that tell a reader nothing.
    """
    if comm.size == 1:
        return ""
    # all values are sent only if some differ
    if len(set(comm.all_gather(of_text(repr(sorted(own.items())))))) == 1:
        return ""
    every = comm.all_gather(dict(own))
    names = dict.fromkeys(name for one in every for name in one)
    differing = [
        name for name in names if any(one.get(name) != every[0].get(name) for one in every)
    ]
    return _described(differing[0], every) + _others(differing[1:])


def _described(name: str, every: Sequence[Mapping[str, Any]]) -> str:
    """What differs, and on which ranks."""
    values = [one.get(name) for one in every]
    usual = max(values, key=values.count)
    ranks = [rank for rank, value in enumerate(values) if value != usual]
    other = values[ranks[0]]
    like = values.index(usual)
    if other is None:
        return f"{name} is on rank {like}, but not on {_ranks(ranks)}"
    if usual is None:
        return f"{name} is on {_ranks(ranks)}, but not on rank {like}"
    if isinstance(usual, str):
        return f"{name}={other} on {_ranks(ranks)}, but {name}={usual} on rank {like}"
    return f"{name} on {_ranks(ranks)} is not that on rank {like}"


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:MOST_NAMED]))
    return f"rank{'s' * (len(ranks) > 1)} {shown}{_more(ranks)}"


def _others(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MOST_NAMED])
    return f" ({shown}{_more(names)} differ{'s' * (len(names) == 1)} too)" if names else ""


def _more(items: Sequence[Any]) -> str:
    return f" and {len(items) - MOST_NAMED} more" if len(items) > MOST_NAMED else ""
