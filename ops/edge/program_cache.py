"""Planned edge programs, shared by all passes, layers and models whose traces have one structure.

A program holds expressions and compiled kernels, and no object of the user; each use takes the
operands of its own trace. Nothing is stored on the user's objects.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from threading import Lock
from typing import Any

from .plan import plan
from .program import EdgeProgram, split
from .symbolic import SymbolicTrace


class ProgramCache:
    """The programs that were used last.

    Args:
        most: Number of programs to keep; a setting that changes in every step adds one in every
            step.
    """

    def __init__(self, most: int = 256):
        self.most = most
        self._programs: OrderedDict[tuple[Any, ...], EdgeProgram] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._programs)

    def planned(self, traced: SymbolicTrace) -> EdgeProgram:
        """The program of a trace, with the operands of this trace.

        Raises:
            UserFunctionError: A layer without a sum takes a softmax.
        """
        structure = traced.structure()
        given = list(traced.operands)
        # threads compute several views at a time
        with self._lock:
            program = self._programs.get(structure)
            if program is None:
                program = self._programs[structure] = _without(plan(split(traced)), len(given))
                while len(self._programs) > self.most:
                    self._programs.popitem(last=False)
            else:
                self._programs.move_to_end(structure)
        return replace(program, operands=given + program.operands[len(given) :])


def _without(program: EdgeProgram, n: int) -> EdgeProgram:
    """The program without the first n operands, which belong to one trace."""
    return replace(program, operands=[None] * n + program.operands[n:])
