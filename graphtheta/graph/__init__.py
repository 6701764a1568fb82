"""Graphs: arrays, stores, data sets, splits, types."""
