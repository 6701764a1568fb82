"""The job: every choice of a run, under the same keys in Python, in a YAML file and as flags.

The keys stand in :mod:`graphtheta.job.keys`; a value is checked by the same code wherever it comes from.
"""
from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import yaml
from pydantic import ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from graphtheta.errors import ConfigError
from graphtheta.job.keyfile import EXPECTED, LARGEST_NUMBER, read_mapping
from graphtheta.job.keys import (
    NEEDS,
    REGISTRIES,
    SECTIONS,
    ComputeKeys,
    DataKeys,
    ModelKeys,
    OutputKeys,
    PartitionKeys,
    StrategyKeys,
    TrainKeys,
)
from graphtheta.tasks.registry import TASKS, readers
from graphtheta.wording import did_you_mean

ALL_NEIGHBOURS, SAMPLED = -1, range(1, 1 << 16)
# in bits; longer ones cannot become numbers with a point
LONGEST_INTEGER = 64


class Job(OutputKeys, TrainKeys, ComputeKeys, PartitionKeys, StrategyKeys, ModelKeys, DataKeys):
    """All choices of a run; every key has a default, and no key can be changed afterwards.

    Example:
        >>> job = Job(dataset="sbm", strategy="mini", batch_size=140, fanout="10,10")
        >>> job.change(seed=1).seed
        1

    Raises:
        ConfigError: A key is unknown, a value is not allowed, or two keys do not fit together.
    """

    def __init__(self, **values: Any):
        check_known(values)
        for key, value in values.items():
            if isinstance(value, int) and value.bit_length() > LONGEST_INTEGER:
                raise ConfigError(f"{key}: got a number of {value.bit_length()} bits, expected at most {LONGEST_INTEGER}")
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError("\n".join(explain(e) for e in error.errors(include_url=False))) from None

    @field_validator("fanout", mode="before")
    @classmethod
    def _read_fanout(cls, value: Any) -> Any:
        items = value.replace(" ", "").split(",") if isinstance(value, str) else value if isinstance(value, (list, tuple)) else [value]
        items = [ALL_NEIGHBOURS if item == "all" else item for item in items if item != ""]
        whole = all(str(item).lstrip("-").isdecimal() for item in items)
        if not whole or any(int(item) != ALL_NEIGHBOURS and int(item) not in SAMPLED for item in items):
            raise ValueError("expected numbers of at least 1, or all, separated by commas, such as 10,10")
        return tuple(int(item) for item in items)

    @field_validator("cluster_method")
    @classmethod
    def _check_method(cls, value: str) -> str:
        if value not in ("louvain", "metis") and not value.endswith(".npy"):
            raise ValueError(f"expected louvain, metis or a .npy file{did_you_mean(value, ('louvain', 'metis'))}")
        return value

    @field_validator("dataset", "model")
    @classmethod
    def _refuse_empty(cls, value: str) -> str:
        if not value:
            raise ValueError("expected a name")
        return value

    @field_validator(*REGISTRIES)
    @classmethod
    def _check_registered(cls, value: str, key: ValidationInfo) -> str:
        if ":" not in value and value not in choices(str(key.field_name)):
            raise PydanticCustomError("literal_error", "not registered")
        return value

    @model_validator(mode="after")
    def _check_together(self) -> Job:
        for key in Job.model_fields:
            if type(getattr(self, key)) is int and getattr(self, key) > LARGEST_NUMBER and key != "seed":
                raise ConfigError(f"{key}: got {getattr(self, key)}, expected at most {LARGEST_NUMBER}")
        of_tasks = [(key, ("task", (*kinds, "auto"))) for key, kinds in readers().items() if ":" not in self.task]
        for key, (other, values) in [*NEEDS.items(), *of_tasks]:
            if getattr(self, key) != Job.model_fields[key].default and getattr(self, other) not in values:
                raise ConfigError(f"{key}={self.as_text(key)} has no meaning with {other}={getattr(self, other)}, only with "
                                  f"{' or '.join(values)}; drop {flag(key)} or give {flag(other)} {values[0]}")
        if len(self.fanout) not in (0, 1, self.layers) and ":" not in self.model:
            raise ConfigError(f"fanout={self.as_text('fanout')} has {len(self.fanout)} numbers and layers={self.layers}; give one for each")
        for key in ("replace", "share_sample"):
            if getattr(self, key) and not self.fanout:
                raise ConfigError(f"{key} is about sampling and nothing is sampled; give --fanout, or drop {flag(key)}")
        if self.precompute and self.fanout:
            raise ConfigError("precompute sums whole neighbourhoods and fanout samples them; drop one of --precompute and --fanout")
        if self.cluster_method == "metis" and not self.clusters:
            raise ConfigError("cluster_method=metis needs the number of clusters; give --clusters")
        if self.clusters and self.clusters_per_batch > self.clusters:
            raise ConfigError(f"clusters_per_batch={self.clusters_per_batch} is more than clusters={self.clusters}")
        metric, task = REGISTRIES["metric"].get(self.metric), TASKS.get(self.task)
        if metric is not None and task is not None and not metric.fits(task.label_kinds):
            fitting = [kind.name for kind in TASKS.values() if metric.fits(kind.label_kinds)]
            raise ConfigError(f"metric={self.metric} does not measure task={self.task}; give --task {' or '.join(fitting)}, "
                              "or another --metric")
        return self

    def change(self, **values: Any) -> Job:
        """The job with some keys changed, checked like a new one."""
        return Job(**{**self.model_dump(), **values})

    def as_text(self, key: str) -> str:
        """The value of a key as one would write it as a flag or in YAML."""
        value = getattr(self, key)
        if key == "fanout":
            return ",".join("all" if n == ALL_NEIGHBOURS else str(n) for n in value)
        return str(value).lower() if isinstance(value, bool) else str(value)

    def fanouts(self, hops: int) -> tuple[int, ...]:
        """Neighbours to sample at each of ``hops`` hops, from the targets outwards, -1 for all; empty if none are sampled.

        Raises:
            ConfigError: There is neither one number nor one for each hop.
        """
        spread = self.fanout * hops if len(self.fanout) == 1 else self.fanout
        if spread and len(spread) != hops:
            raise ConfigError(f"fanout={self.as_text('fanout')} has {len(spread)} numbers and the model has {hops} hop(s); "
                              "give one number per hop, or one for all; layers side by side are one hop")
        return spread

    @property
    def folder(self) -> Path:
        """Where results go."""
        model = self.model.rpartition(":")[2]
        dataset = Path(self.dataset.partition(":")[0]).stem
        return Path(self.out) if self.out else Path("runs", f"{dataset}-{model}-{self.strategy}")

    def to_yaml(self) -> str:
        """All keys, by section, as a file that ``--config`` reads."""
        lines = []
        for section in SECTIONS:
            values = {key: self.as_text(key) if key == "fanout" else getattr(self, key) for key in section.model_fields}
            lines += [f"# {section.__doc__}", yaml.safe_dump(values, sort_keys=False)]
        return "\n".join(lines)

    @classmethod
    def from_yaml(cls, path: str | Path) -> Job:
        """Read a file of keys.

        Raises:
            FormatError: The file cannot be read or is not YAML.
            ConfigError: A key or a value is not allowed.
        """
        keys = read_keys(path)
        try:
            return cls(**keys)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None


def read_keys(path: str | Path) -> dict[str, Any]:
    """The keys in a YAML file.

    Raises:
        FormatError: The file cannot be read or is not a mapping.
        ConfigError: There is no such key.
    """
    values = read_mapping(path)
    check_known(values, f"{path}: ")
    return values


def check_known(keys: Iterable[Any], where: str = "") -> None:
    """All are keys of a job; ``where`` is put in front of the error."""
    for key in keys:
        if key not in Job.model_fields:
            near = did_you_mean(key, Job.model_fields)
            raise ConfigError(f"{where}there is no key '{key!s:.40}'{near}; all keys: graphtheta train --help")


def flag(key: str) -> str:
    """The flag of a key."""
    return "--" + key.replace("_", "-")


def choices(key: str) -> tuple[Any, ...]:
    """The allowed values of a key; empty if there are too many to list."""
    if key in REGISTRIES:
        return "auto", *REGISTRIES[key]
    hint = Job.model_fields[key].annotation
    return get_args(hint) if get_origin(hint) is Literal else ()


def explain(error: Any) -> str:
    """One problem found by pydantic, as: key, value, what is allowed."""
    if not error["loc"]:
        return str(error["msg"]).removeprefix("Value error, ")
    key, value = str(error["loc"][0]), error["input"]
    if error["type"] == "literal_error":
        allowed = choices(key)
        own = ", FILE.py:NAME" if key in REGISTRIES else ""
        return f"{key}: unknown value {value!r}{did_you_mean(value, allowed)}; allowed: {', '.join(map(str, allowed))}{own}"
    expected = EXPECTED.get(error["type"], "").format(**error.get("ctx", {})) or str(error["msg"]).removeprefix("Value error, expected ")
    return f"{key}: got {value!r}, expected {expected}"
