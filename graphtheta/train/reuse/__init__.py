"""Values of earlier steps that are used again: halo exchanges, caches, macro batches."""
