"""Graphs whose targets are whole graphs."""
