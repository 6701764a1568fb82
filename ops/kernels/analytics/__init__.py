"""Compiled loops of graph algorithms: sums along edges, components, shortest paths, sets of
neighbours.
"""
