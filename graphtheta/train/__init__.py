"""A training run: what a job builds, and the loop."""
