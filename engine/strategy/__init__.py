"""Strategies, orders of batches, and the targets of tasks."""
