"""Partitions: the part of the graph on a worker, and the two moves between masters and mirrors."""
