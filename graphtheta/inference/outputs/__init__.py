"""Predictions and embeddings as files: one file, or a folder with a part from each worker."""
