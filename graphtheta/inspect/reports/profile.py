"""The profile of a run: time, traffic and memory of each rank, as a JSON file in its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from graphtheta.base.atomic import atomic_file, file_errors
from graphtheta.base.regular import read_regular
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
    fallbacks: Annotated[list[Annotated[str, Field(max_length=2000)]], Field(max_length=100)] = []

    @model_validator(mode="after")
    def _check_lengths(self) -> Profile:
        lists: list[Sequence[object]] = [self.sent, self.predicted, self.measured]
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
        with file_errors(path, "the profile"), atomic_file(path) as file:
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
