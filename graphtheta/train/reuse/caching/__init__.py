"""Caches of features: policies by name, rows that batches will read, and the caches of a run."""
