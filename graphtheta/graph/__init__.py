"""A graph and where it comes from: arrays, stores, data sets, splits, types."""
