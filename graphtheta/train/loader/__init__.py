"""Loaders: the batches of training, for models of other libraries."""
