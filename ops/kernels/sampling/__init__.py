"""Compiled loops of samplers: draws, ranks and choices of edges. Plain arrays in and out."""
