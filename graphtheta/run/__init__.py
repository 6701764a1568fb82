"""A job and the state of its run: keys, checkpoints, embeddings, memory."""
