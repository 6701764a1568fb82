"""Training: the loop, the pipeline, and what is used again."""
