"""Compiled loops of partitioners, which read the edges of a graph chunk by chunk, and sorts of edges. Plain arrays in, plain arrays out."""
