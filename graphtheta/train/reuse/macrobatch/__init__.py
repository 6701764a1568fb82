"""Macrobatches: the views of several steps are expanded together, with merged messages."""
