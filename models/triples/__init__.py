"""Decoders of triples (head, relation, tail), with a learned vector for each relation."""

from .decoders import TRIPLE_DECODERS, ComplEx, DistMult, RotatE, TransE

__all__ = ["TRIPLE_DECODERS", "ComplEx", "DistMult", "RotatE", "TransE"]
