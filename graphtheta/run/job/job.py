"""The job: every choice of a run, under the same keys in Python, in a YAML file and as flags.

The keys are declared in :mod:`graphtheta.run.job.keys`; values from all three sources are checked
alike.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from graphtheta.base.arguments import checked
from graphtheta.base.described import LARGEST_NUMBER, name_and_options
from graphtheta.base.wording import did_you_mean, explain, literals
from graphtheta.engine.strategy.registry import AUTO as AUTO_STRATEGY
from graphtheta.engine.strategy.registry import BUILT_IN
from graphtheta.engine.train.stages import FREE, read_stages
from graphtheta.errors import ConfigError
from graphtheta.graph.datasets.dataset import flag as truth_of
from graphtheta.graph.datasets.dataset import parse
from graphtheta.models.readouts import hops as readout_hops
from graphtheta.models.registry import MODELS
from graphtheta.ops.functions.metrics.scores import GOALS
from graphtheta.partitioners.communities import METHODS
from graphtheta.partitioners.pairs import AUTO, PAIRS, check_pair
from graphtheta.run.job.keyfile import read_mapping, write_mapping
from graphtheta.run.job.keys import (
    OF_DATASET,
    REGISTRIES,
    SECTIONS,
    ComputeKeys,
    DataKeys,
    OutputKeys,
    PartitionKeys,
    StrategyKeys,
    TrainKeys,
)
from graphtheta.run.job.model_keys import ModelKeys
from graphtheta.run.job.outside import check_keys, in_file, read_extra
from graphtheta.run.job.rules import all_rules, check, flag
from graphtheta.run.job.sizes import rows_of
from graphtheta.tasks.kinds.imbalance import WEIGHTS, is_number, numbers_of
from graphtheta.tasks.kinds.registry import TASKS, readers

ALL_NEIGHBOURS, SAMPLED = -1, range(1, 1 << 16)
FANOUTS = ("fanout", "eval_fanout")
NUMBER = re.compile(r"-?[0-9]{1,9}")
# where runs without ``out`` are
RUNS = "runs"
# in bits; longer integers may not convert to float
LONGEST_INTEGER = 64


class Job(OutputKeys, TrainKeys, ComputeKeys, PartitionKeys, StrategyKeys, ModelKeys, DataKeys):
    """All choices of a run; every key has a default, and no key can be changed afterwards.

    A user's model may declare further options, which are keys of the job too. They are checked at
    once for a registered model, and when the file is loaded for a model in a file.

    Example:
        >>> job = Job(dataset="sbm", strategy="mini", batch_size=140, fanout="10,10")
        >>> job.change(seed=1).seed
        1

    Raises:
        ConfigError: A key is unknown, a value is not allowed, or two keys do not fit together.
    """

    model_config = ConfigDict(extra="allow")

    def __init__(self, **values: Any):
        # a path may be an object of pathlib
        values = {
            key: os.fspath(value) if isinstance(value, os.PathLike) else value
            for key, value in values.items()
        }
        model = values.get("model", Job.model_fields["model"].default)
        check_keys(values, model)
        extra = {key: value for key, value in values.items() if key not in Job.model_fields}
        for key, value in extra.items():
            if hasattr(Job, key):
                raise ConfigError(
                    f"{key}: the name is reserved in jobs; rename the option of {model}"
                )
            if not isinstance(value, (bool, int, float, str)):
                raise ConfigError(
                    f"{key}: got {value!r:.40}, expected a number, text or truth value as an option"
                    f" of {model}"
                )
        if extra and not in_file(model):
            values |= read_extra(MODELS[model], model, extra)
        for key, value in values.items():
            if isinstance(value, int) and value.bit_length() > LONGEST_INTEGER:
                raise ConfigError(
                    f"{key}: got a number of {value.bit_length()} bits, expected at most"
                    f" {LONGEST_INTEGER}"
                )
        try:
            super().__init__(**values)
        except ValidationError as error:
            registered = {key: registry.what for key, registry in REGISTRIES.items()}
            raise ConfigError(
                "\n".join(explain(e, choices, registered) for e in error.errors(include_url=False))
            ) from None
        self._check_together()

    @field_validator("*", mode="before")
    @classmethod
    def _read_truth(cls, value: Any, key: ValidationInfo) -> Any:
        field = cls.model_fields[str(key.field_name)]
        if not isinstance(value, bool) or field.annotation is bool:
            return value
        word = "yes" if value else "no"
        if literals(field.annotation) and word in literals(field.annotation):
            return word
        words: dict[Any, str] = {int: "a whole number", float: "a number"}
        raise ValueError(
            f"expected {words.get(field.annotation, 'another value')}, not true or false"
        )

    @field_validator("fanout", "eval_fanout", mode="before")
    @classmethod
    def _read_fanout(cls, value: Any) -> Any:
        items = (
            value.replace(" ", "").split(",")
            if isinstance(value, str)
            else value
            if isinstance(value, (list, tuple))
            else [value]
        )
        texts = [str(ALL_NEIGHBOURS if item == "all" else item) for item in items if item != ""]
        numbers = tuple(int(text) if NUMBER.fullmatch(text) else 0 for text in texts)
        if any(number != ALL_NEIGHBOURS and number not in SAMPLED for number in numbers):
            raise ValueError(
                "expected numbers of at least 1, or all, separated by commas, such as 10,10"
            )
        return numbers

    @field_validator("eval_fanout")
    @classmethod
    def _exact_evaluation(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        # so that a run's sampled evaluation can be turned off again
        return () if value == (ALL_NEIGHBOURS,) else value

    @field_validator("macrobatch", mode="before")
    @classmethod
    def _check_macrobatch(cls, value: Any) -> Any:
        if str(value) != "auto" and not (
            str(value).isdecimal() and 1 <= int(value) <= LARGEST_NUMBER
        ):
            raise ValueError("expected a number of at least 1, or auto")
        return str(value)

    @field_validator("stage_threads")
    @classmethod
    def _check_stages(cls, value: str) -> str:
        text = value.replace(" ", "")
        if text not in (FREE, AUTO):
            read_stages(text)
        return text

    @field_validator("weight_decay", mode="before")
    @classmethod
    def _read_decay(cls, value: Any) -> Any:
        if value == "auto":
            return value
        if not is_number(str(value)) or not 0 <= float(value) < inf:
            raise ValueError("expected a number of at least 0, or auto")
        return float(value)

    @field_validator("class_weights", mode="before")
    @classmethod
    def _check_weights(cls, value: Any) -> Any:
        text = ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
        if text not in WEIGHTS:
            numbers_of(text)
        return text

    @field_validator("threshold", mode="before")
    @classmethod
    def _check_threshold(cls, value: Any) -> Any:
        if str(value) not in GOALS and not (is_number(str(value)) and 0 < float(value) < 1):
            raise ValueError(
                "expected a number between 0 and 1,"
                f" {' or '.join(GOALS)}{did_you_mean(str(value), GOALS)}"
            )
        return str(value)

    @field_validator("positive", mode="before")
    @classmethod
    def _check_positive(cls, value: Any) -> Any:
        # classes may be named by numbers and truth values
        if value is None or isinstance(value, (list, tuple, dict, set)) or not str(value):
            raise ValueError("expected the name of a class, or auto")
        return str(value)

    @field_validator("cluster_method")
    @classmethod
    def _check_method(cls, value: str) -> str:
        if value not in METHODS and not value.endswith(".npy"):
            raise ValueError(
                f"expected {', '.join(METHODS)} or a .npy file{did_you_mean(value, METHODS)}"
            )
        return value

    @field_validator("feature_cache", "machine_cache", mode="before")
    @classmethod
    def _check_cache(cls, value: Any) -> Any:
        rows_of(str(value), 1, 1)
        return "0" if str(value).strip() == "0" else str(value)

    @field_validator("strategy")
    @classmethod
    def _check_strategy(cls, value: str) -> str:
        name, written = name_and_options(value)
        if written and name in {AUTO_STRATEGY, *(kind.name for kind in BUILT_IN)}:
            raise ValueError(
                f"{name} has no options; its settings are keys of the job, as docs/strategies.md"
                " lists them"
            )
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

    def _check_together(self) -> None:
        for key in Job.model_fields:
            if (
                type(getattr(self, key)) is int
                and getattr(self, key) > LARGEST_NUMBER
                and key != "seed"
            ):
                raise ConfigError(
                    f"{key}: got {getattr(self, key)}, expected at most {LARGEST_NUMBER}"
                )
        check(self, all_rules(Job.model_fields, {} if ":" in self.task else readers()))
        for key in FANOUTS:
            numbers = getattr(self, key)
            if len(numbers) not in (0, 1, self.hops) and ":" not in self.model:
                raise ConfigError(
                    f"{key}={self.as_text(key)} has {len(numbers)} numbers and"
                    f" {self._of_hops}={self.hops}; give one for each"
                )
        if self.macrobatch != "auto" and self.fetch_batch > int(self.macrobatch):
            raise ConfigError(
                f"fetch_batch={self.fetch_batch} is more than macrobatch={self.macrobatch}; raise"
                " --macrobatch, or lower --fetch-batch"
            )
        check_pair(self.partitioner, self.masters)
        if self.clusters and self.clusters_per_batch > self.clusters:
            raise ConfigError(
                f"clusters_per_batch={self.clusters_per_batch} is more than"
                f" clusters={self.clusters}; lower --clusters-per-batch or raise --clusters"
            )
        metric = REGISTRIES["metric"].get(self.metric)
        task = TASKS.get(self.task)
        if metric is not None and task is not None and not metric.fits(task.label_kinds):
            fitting = [kind.name for kind in TASKS.values() if metric.fits(kind.label_kinds)]
            raise ConfigError(
                f"metric={self.metric} does not measure task={self.task}; give --task"
                f" {' or '.join(fitting)}, or another --metric"
            )

    def __setattr__(self, name: str, value: Any) -> None:
        raise ConfigError(
            f"{name}: a job cannot be changed; make another one: job.change({name}=...)"
        )

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """The keys that are not at their defaults."""
        return ((key, x) for key, x in self.model_dump().items() if not self.is_default(key))

    def change(self, **values: Any) -> Job:
        """The job with some keys changed, checked like a new one."""
        return Job(**{**self.model_dump(), **values})

    def without_dataset(self) -> Job:
        """The job for a graph that was loaded already: without the keys that choose and prepare a
        dataset.
        """
        # a graph that was loaded has the masks of one split
        chosen = {key: Job.model_fields[key].default for key in (*OF_DATASET, "split_index")}
        return self.change(**chosen, self_loops=self.loops)

    @property
    def dataset_options(self) -> tuple[str, dict[str, Any]]:
        """Name or path of the dataset, and the options in its text."""
        try:
            return parse(self.dataset, {})
        except ConfigError:
            # a path with a colon that has moved since, or a text that cannot be loaded
            return self.dataset, {}

    @property
    def loops(self) -> str:
        """The key ``self_loops``, or "no" if the text of the dataset says so."""
        written = self.dataset_options[1].get("self_loops")
        return "no" if truth_of("self_loops", written) is False else self.self_loops

    def as_text(self, key: str) -> str:
        """The value of a key as one would write it as a flag or in YAML."""
        return as_text(getattr(self, key))

    def is_default(self, key: str) -> bool:
        """Whether a key has its default value."""
        return key in Job.model_fields and bool(getattr(self, key) == Job.model_fields[key].default)

    def sections(self) -> list[tuple[str, list[str]]]:
        """Titles of the sections and their keys; options of a user's model come last."""
        extra = list(self.extra_options)
        return [
            (
                str(section.__doc__),
                [*section.model_fields, *(extra if section is ModelKeys else [])],
            )
            for section in SECTIONS
        ]

    @property
    def extra_options(self) -> dict[str, Any]:
        """The keys that were given for options of a user's model."""
        return dict(self.__pydantic_extra__ or {})

    @property
    def _of_hops(self) -> str:
        """The key that is the number of hops of a model by name."""
        key = MODELS[self.model].hops if self.model in MODELS else "layers"
        return key if key in type(self).model_fields else "layers"

    @property
    def hops(self) -> int:
        """Hops of a model by name, without those of a readout; of another model, its layers."""
        return int(getattr(self, self._of_hops))

    def views_of_a_step(self, size: int) -> int:
        """Views whose gradients are summed for an update, on so many workers."""
        return self.views_per_step or (size if self.mode == "independent" else 1)

    @property
    def evaluation_sampled(self) -> bool:
        """Whether metrics are those of sampled neighbourhoods."""
        return any(n != ALL_NEIGHBOURS for n in self.eval_fanout)

    @property
    def evaluation_entry(self) -> dict[str, str]:
        """What rows and results say of their metrics: the numbers of neighbours of sampled
        neighbourhoods; nothing of exact metrics.
        """
        return {"eval_fanout": self.as_text("eval_fanout")} if self.evaluation_sampled else {}

    def fanouts(self, hops: int, key: str = "fanout") -> tuple[int, ...]:
        """Neighbours to sample at each of ``hops`` hops, from the targets outwards, -1 for all;
        empty if none are sampled. A readout is a hop of its own, or several, which read all nodes
        of a graph.

        Args:
            hops: Hops of the model.
            key: "fanout" of training, or "eval_fanout".

        Raises:
            ConfigError: There is neither one number nor one for each hop.
        """
        numbers: tuple[int, ...] = getattr(self, key)
        if numbers and self.readout != "none":
            of_readout = readout_hops(self.readout)
            return (-1,) * of_readout + self.model_copy(update={"readout": "none"}).fanouts(
                hops - of_readout, key
            )
        per_hop = numbers * hops if len(numbers) == 1 else numbers
        if per_hop and len(per_hop) != hops:
            raise ConfigError(
                f"{key}={self.as_text(key)} has {len(per_hop)} numbers and the model has"
                f" {hops} hop(s); give one number per hop, or one for all hops; parallel layers"
                " count as one hop"
            )
        return per_hop

    @property
    def folder(self) -> Path:
        """The output folder; without ``out``, that of the first run of its name."""
        model = self.model.rpartition(":")[2]
        dataset = Path(self.dataset.partition(":")[0]).stem
        strategy = name_and_options(self.strategy)[0].rpartition(":")[2]
        return Path(self.out) if self.out else Path(RUNS, f"{dataset}-{model}-{strategy}")

    def to_yaml(self) -> str:
        """All keys, by section, as a file that ``--config`` reads."""
        lines = []
        for title, keys in self.sections():
            values = {
                key: self.as_text(key) if key in FANOUTS else getattr(self, key) for key in keys
            }
            lines += [f"# {title}", write_mapping(values)]
        return "\n".join(lines)

    @classmethod
    @checked
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


def read_keys(path: str | Path, model: str | None = None) -> dict[str, Any]:
    """The keys in a YAML file.

    Args:
        path: The file.
        model: The model, if another one replaces that of the file.

    Raises:
        FormatError: The file cannot be read or is not a mapping.
        ConfigError: There is no such key.
    """
    values = read_mapping(path)
    check_keys(values, model or values.get("model"), f"{path}: ")
    return values


def choices(key: str, field: FieldInfo | None = None) -> tuple[Any, ...]:
    """The allowed values of a key, or of an option of a model with this field; empty if there are
    too many to list.
    """
    if key in REGISTRIES:
        auto = ("auto",) if Job.model_fields[key].default == "auto" else ()
        more = {"partitioner": (*PAIRS, AUTO), "strategy": (AUTO_STRATEGY,)}
        return *auto, *REGISTRIES[key], *more.get(key, ())
    return literals((field or Job.model_fields[key]).annotation)


def as_text(value: Any) -> str:
    """A value as one would write it as a flag or in YAML; a tuple or list is that of a fanout."""
    if isinstance(value, (tuple, list)):
        return ",".join("all" if n == ALL_NEIGHBOURS else str(n) for n in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def as_flag(key: str, value: Any) -> str:
    """A key and its value as words for a shell."""
    if isinstance(value, bool):
        return flag(key) if value else f"--no-{flag(key)[2:]}"
    return f"{flag(key)} {shlex.quote(as_text(value))}"
