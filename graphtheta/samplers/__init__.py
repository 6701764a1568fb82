"""Samplers: which in-edges a view keeps when it expands, or which nodes induce a view."""
