"""Stages of the pipeline, and threads that are bound to processors of a stage.

By default each thread of a rank takes whatever can continue. Here the processors of a rank are
divided among the stages: a thread for each processor takes the stages that the processor belongs
to and nothing else, and kernels of a stage use no other processor. The division does not change
results.

Source: resource isolation in BGL, https://arxiv.org/abs/2112.08541 (section 3.4)
"""

from __future__ import annotations

from dataclasses import dataclass

from graphtheta.base.wording import did_you_mean

# the search of a view and its parts; the rows of its nodes; forward, backward and sum of gradients
SAMPLING, FEATURES, COMPUTE = STAGES = ("sampling", "features", "compute")
# threads that take any stage
FREE = "free"
MOST_PROCESSORS = 4096
EXAMPLE = "sampling=1,features=1,compute=2"


@dataclass(frozen=True)
class StageThreads:
    """Threads of some stages.

    Attributes:
        stages: Names of the stages, some of ``STAGES``.
        processors: Numbers of the processors, of which no other threads of a stage use one; each
            has a thread.
    """

    stages: tuple[str, ...]
    processors: tuple[int, ...]

    @property
    def name(self) -> str:
        """The stages in one word."""
        return "+".join(self.stages)


def read_stages(text: str) -> dict[tuple[str, ...], int]:
    """Parse the processors of stages, such as ``sampling=1,features=1,compute=2``. Stages that
    share processors are joined: ``sampling+features=1,compute=1``.

    Returns:
        Number of processors by stages.

    Raises:
        ValueError: The text is not of this form, a stage is unknown, missing or there twice, or
            all stages share the same processors.
    """
    numbers: dict[tuple[str, ...], int] = {}
    for item in text.replace(" ", "").split(","):
        names, _, number = item.partition("=")
        if not (number.isascii() and number.isdecimal() and 1 <= int(number) <= MOST_PROCESSORS):
            raise ValueError(
                f"expected {FREE}, auto, or the processors of stages, such as {EXAMPLE}, 1 to"
                f" {MOST_PROCESSORS} each; {item!r} gives none"
            )
        stages = tuple(names.split("+"))
        for stage in stages:
            if stage not in STAGES:
                raise ValueError(
                    f"there is no stage {stage!r}{did_you_mean(stage, STAGES)}; expected"
                    f" {', '.join(STAGES)}, such as {EXAMPLE}"
                )
        if stages in numbers:
            raise ValueError(f"{names} is given twice")
        numbers[stages] = int(number)
    given = [stage for stages in numbers for stage in stages]
    for stage in STAGES:
        if given.count(stage) != 1:
            count = "missing" if stage not in given else "given twice"
            raise ValueError(f"stage {stage} is {count}; expected each once, such as {EXAMPLE}")
    if len(numbers) == 1:
        raise ValueError(f"all stages share the same processors; divide them, as in {EXAMPLE}")
    return numbers
