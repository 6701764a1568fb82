"""Readouts: values of whole graphs from those of their nodes."""

from .readout import MEMBER, READOUTS, Readout, hops, make_readout, read_out
from .set2set import Set2Set

__all__ = ["MEMBER", "READOUTS", "Readout", "Set2Set", "hops", "make_readout", "read_out"]
