"""Compiled loops. Plain arrays in, plain arrays out."""
