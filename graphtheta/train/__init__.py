"""Training: the loop, the pipeline, and the reuse of values of earlier steps."""
