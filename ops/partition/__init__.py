"""Compiled loops of partitioners, which read the edges of a graph chunk by chunk. Plain arrays in, plain arrays out."""
