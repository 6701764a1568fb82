"""What must be equal on all workers of a run, and in a run that is resumed."""
