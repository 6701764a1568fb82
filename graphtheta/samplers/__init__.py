"""Samplers: which in-edges are kept when a view expands its frontier, or which nodes induce a view."""
