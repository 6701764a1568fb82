"""Errors, random numbers, files, names and texts, which every package uses."""
