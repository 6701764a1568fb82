"""Stopping and resuming runs: checkpoints, progress, signals, atomic files, exported weights."""
