"""Orders of the targets of mini-batches."""
