"""Keys that a user's model adds to a job: options of a registered model or a model in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic.fields import FieldInfo

from graphtheta.base.wording import did_you_mean
from graphtheta.errors import ConfigError
from graphtheta.models.design import COMMON, Design, read_options
from graphtheta.models.registry import MODELS, readers
from graphtheta.models.user import declared
from graphtheta.run.job.keys import FIELDS


def in_file(model: Any) -> bool:
    """Whether a model is named as FILE.py:NAME: its options are unknown until the file runs."""
    return isinstance(model, str) and ":" in model


def extra_keys(model: Design | Callable[..., Any] | None, name: str) -> dict[str, FieldInfo]:
    """The options of a model that are not keys of every job.

    Args:
        model: Its design, its class, or a function that makes it; None if no model could have
            options.
        name: Name of the model, for messages.

    Raises:
        ConfigError: Its design has an option that is a key of every job, with another type, default
            or range.
    """
    fields = {} if model is None else declared(model).model_fields
    for key in fields.keys() & FIELDS.keys() if isinstance(model, Design) else ():
        mine, theirs = fields[key], FIELDS[key]
        if _checks(mine) != _checks(theirs):
            raise ConfigError(
                f"option {key!r} of {name} is already a key of every job, with another type,"
                " default or range; rename the option"
            )
    return {key: field for key, field in fields.items() if key not in FIELDS}


def _checks(field: FieldInfo) -> tuple[Any, ...]:
    """What decides which values an option has."""
    return field.annotation, field.default, [one for one in field.metadata if one != COMMON]


def read_extra(
    model: Design | Callable[..., Any] | None, name: str, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Check the values of such keys.

    Args:
        model, name: As in ``extra_keys``.
        given: Values by key.

    Raises:
        ConfigError: The model has no such option, or a value is not allowed.
    """
    refuse_unknown(given, extra_keys(model, name), name)
    if model is None or not given:
        return {}
    read = read_options(declared(model), given)
    return {key: getattr(read, key) for key in given}


def check_keys(keys: Iterable[Any], model: Any, where: str = "") -> None:
    """Check that all are keys of every job, or options of the model.

    Options of a model in a file are checked later, when the file is loaded.

    Args:
        keys: The keys.
        model: The key ``model`` of the job.
        where: Put in front of the error.

    Raises:
        ConfigError: A key is neither.
    """
    now = [
        key for key in keys if not (in_file(model) and isinstance(key, str) and key.isidentifier())
    ]
    refuse_unknown(
        now,
        extra_keys(MODELS.get(model) if isinstance(model, str) else None, str(model)),
        str(model),
        where,
    )


def refuse_unknown(
    keys: Iterable[Any], extra: Mapping[str, Any], model: str, where: str = ""
) -> None:
    """Reject keys that are neither keys of every job nor options of the model.

    Args:
        keys: The keys.
        extra: Options of the model.
        model: Its name.
        where: Put in front of the error.

    Raises:
        ConfigError: There is such a key.
    """
    for key in keys:
        if key in FIELDS or key in extra:
            continue
        if isinstance(key, str) and readers(key):
            raise ConfigError(
                f"{where}{key} has no meaning with model={model}, only with"
                f" {', '.join(readers(key))}; drop it, or choose a model that reads it"
            )
        near = did_you_mean(key, [*FIELDS, *extra])
        raise ConfigError(
            f"{where}unknown key '{key!s:.40}'{near}; all keys: graphtheta train --help-all"
        )
