"""The profile of a run: time, traffic and memory of each rank, as a JSON file in its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from graphtheta.base.atomic import BEGINNINGS, atomic_file, file_errors
from graphtheta.base.regular import read_regular
from graphtheta.engine.comm.ledger import Part
from graphtheta.errors import FormatError

# receivers that each rank lists; all pairs of ranks would be as many as the square of their number
LISTED = 8
# bytes of a profile
LARGEST_FILE = 1 << 26
# bounded, so that sums and charts of them are finite
Seconds = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=2**53)]


class Book(BaseModel):
    """Time, traffic and messages of one stage; one number per rank."""

    model_config = ConfigDict(extra="forbid")

    seconds: list[Seconds]
    wait: list[Seconds]
    bytes: list[Count]
    messages: list[Count]


class Spread(BaseModel):
    """Seconds between the fastest and the slowest worker of a batch, without waiting."""

    model_config = ConfigDict(extra="forbid")

    mean: Seconds
    p95: Seconds
    largest: Seconds

    @classmethod
    def of(cls, seconds: np.ndarray) -> Spread:
        """That of seconds by worker and batch, [ranks, batches], at least one batch."""
        apart = np.ptp(seconds, axis=0)
        return cls(
            mean=float(apart.mean()),
            p95=float(np.quantile(apart, 0.95)),
            largest=float(apart.max()),
        )


class BatchPart(BaseModel):
    """A part of a batch: a layer forward or backward, the update of the parameters, or the rest.

    Attributes:
        layer: Number and class of the layer; empty for the update and the rest.
        part: "forward", "backward", "update" or "rest".
        seconds, wait: Of a batch, the mean of all; one number per rank.
        spread: Between workers.
    """

    model_config = ConfigDict(extra="forbid")

    layer: Annotated[str, Field(max_length=200)]
    part: Annotated[str, Field(max_length=20)]
    seconds: list[Seconds]
    wait: list[Seconds]
    spread: Spread


class Batches(BaseModel):
    """Times of the batches of a run, by part.

    Attributes:
        count: Number of batches.
        spread: Between workers, of whole batches.
        parts: Of a batch, in the order in which they first ran.
    """

    model_config = ConfigDict(extra="forbid")

    count: Count
    spread: Spread
    parts: Annotated[list[BatchPart], Field(max_length=10_000)]

    @classmethod
    def of(cls, parts: Sequence[Part], times: np.ndarray) -> Batches:
        """Those of some batches.

        Args:
            parts: Of a batch.
            times: Seconds and waiting, [ranks, batches, parts, 2], of at least one batch.
        """
        mean = times.mean(axis=1)
        return cls(
            count=times.shape[1],
            spread=Spread.of(times[..., 0].sum(axis=2)),
            parts=[
                BatchPart(
                    layer=layer,
                    part=part,
                    seconds=mean[:, i, 0].tolist(),
                    wait=mean[:, i, 1].tolist(),
                    spread=Spread.of(times[:, :, i, 0]),
                )
                for i, (layer, part) in enumerate(parts)
            ],
        )

    def table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Titles and cells of a table of the parts, times in milliseconds, the share of the whole
        in percent; of one worker, without the differences between workers.
        """
        total = sum(float(np.mean(p.seconds)) for p in self.parts) or 1.0
        rows = []
        for p in self.parts:
            mean = float(np.mean(p.seconds))
            times = (mean, max(p.seconds), float(np.mean(p.wait)))
            cells = [f"{1e3 * x:.3f}" for x in times]
            cells.append(f"{100 * mean / total:.2f}")
            if len(p.seconds) > 1:
                cells.extend(f"{1e3 * x:.3f}" for x in _figures(p.spread))
            rows.append((f"{p.layer} {p.part}".strip(), *cells))
        titles = ("part", "mean ms", "slowest ms", "waiting ms", "share %")
        between = ("spread ms", "spread p95", "spread max")
        return (*titles, *between) if len(self.parts[0].seconds) > 1 else titles, rows

    def workers(self) -> list[tuple[str, ...]]:
        """The name of each part, and its milliseconds on each worker."""
        return [
            (f"{p.layer} {p.part}".strip(), *(f"{1e3 * x:.3f}" for x in p.seconds))
            for p in self.parts
        ]

    def text(self) -> str:
        """How far workers are apart, in words."""
        mean, p95, largest = (f"{1e3 * x:.2f}" for x in _figures(self.spread))
        return (
            f"Between the fastest and the slowest worker of a batch lie {mean} ms of computing in"
            f" the mean of {self.count:,} batches, {p95} ms in 95 % of them at most, and"
            f" {largest} ms at most."
        )


def _figures(spread: Spread) -> tuple[float, float, float]:
    return spread.mean, spread.p95, spread.largest


class Profile(BaseModel):
    """The profile of a run.

    Attributes:
        ranks: Number of workers.
        epochs: Number of epochs that times, bytes and messages are summed over.
        steps: Parameter updates of the whole run.
        elapsed: Wall-clock seconds of these epochs; with pipelined mini-batches, less than the sum
            over all stages with their waiting.
        first_left_out: Whether the first evaluated epoch, which compiles and makes plans, is
            excluded.
        stages: Figures by stage of the ledger.
        sent: Bytes and messages of each rank to others, without collectives.
        largest: Some pairs of ranks: sender, receiver, bytes and messages; those to which each rank
            sends most, at most ``LISTED`` for a rank.
        batches: Times of batches by layer; None in profiles of earlier versions, and without
            batches.
        fallbacks: Which layers ran on the reference back end although the fused one was chosen, and
            why.
        predicted, measured: Peak memory of each rank's process in bytes, predicted before training
            and measured after it.
    """

    model_config = ConfigDict(extra="forbid")

    ranks: Count
    epochs: Count
    steps: Count
    elapsed: Seconds
    first_left_out: bool
    stages: Annotated[dict[str, Book], Field(max_length=64)]
    sent: list[tuple[Count, Count]]
    largest: list[tuple[Count, Count, Count, Count]]
    predicted: list[Count]
    measured: list[Count]
    batches: Batches | None = None
    fallbacks: Annotated[list[Annotated[str, Field(max_length=2000)]], Field(max_length=100)] = []

    @model_validator(mode="after")
    def _check_lengths(self) -> Profile:
        lists: list[Sequence[object]] = [self.sent, self.predicted, self.measured]
        for part in () if self.batches is None else self.batches.parts:
            lists += [part.seconds, part.wait]
        for book in self.stages.values():
            lists += [book.seconds, book.wait, book.bytes, book.messages]
        if self.ranks < 1 or self.epochs < 1 or any(len(x) != self.ranks for x in lists):
            raise ValueError(
                f"expected at least one epoch and one number for each of {self.ranks} ranks"
            )
        if any(rank >= self.ranks for pair in self.largest for rank in pair[:2]):
            raise ValueError(f"expected pairs of {self.ranks} ranks")
        return self

    def write(self, path: Path) -> None:
        """Write the file.

        Raises:
            FormatError: It cannot be written.
        """
        with file_errors(path, "the profile"), atomic_file(path, BEGINNINGS["profile"]) as file:
            file.write((self.model_dump_json(indent=1) + "\n").encode())

    @classmethod
    def read(cls, path: Path) -> Profile:
        """Read the file.

        Raises:
            FormatError: It cannot be read, or is no profile.
        """
        try:
            return cls.model_validate_json(read_regular(path, LARGEST_FILE))
        except OSError as e:
            raise FormatError(
                f"{path}: cannot be read: {e.strerror or e}; check the file"
            ) from None
        except ValidationError as e:
            raise FormatError(
                f"{path}: not the profile of a run ({e.errors()[0]['msg']}); delete it, or train"
                " again"
            ) from None
