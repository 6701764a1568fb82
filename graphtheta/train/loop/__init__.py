"""Training: builds a run from a job, and runs the training loop."""
