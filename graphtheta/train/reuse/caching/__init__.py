"""Caches of features: policies by name, the rows that batches will read, and the caches of a run."""
