"""Graphs as arrays: construction, checks, transformations and splits, without jobs and workers."""
