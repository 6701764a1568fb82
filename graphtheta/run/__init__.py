"""A job and what its run keeps: keys, checkpoints, embeddings, memory."""
