"""Samplers: which edges of a growing view are kept."""
