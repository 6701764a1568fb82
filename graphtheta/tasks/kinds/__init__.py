"""Kinds of task: what a job predicts."""
