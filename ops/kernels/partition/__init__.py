"""Sorts of edges, and compiled loops of partitioners, which read the edges chunk by chunk. Plain
arrays in, plain arrays out.
"""
