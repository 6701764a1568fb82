"""Checkpoints, and all that lets a run stop and go on: how far it is, signals, whole files, exported weights."""
