"""A back end for programs whose compiled kernels say nothing new."""
from __future__ import annotations

# programs that are started with this variable run on the reference
VARIABLE = "TESTS_ON_REFERENCE"


class Reference:
    """In place of the chosen back end: the reference, whatever a job chooses."""

    def get(self) -> str:
        return "reference"

    def set(self, name: str) -> None:
        """Nothing is chosen."""

    def reset(self, token: None) -> None:
        """Nothing was chosen."""
