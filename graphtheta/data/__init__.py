"""Graphs: built, made, read from files, checked, changed and split. Knows no jobs and no workers."""
