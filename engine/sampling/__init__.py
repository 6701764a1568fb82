"""Samplers: which in-edges are kept when a view expands its frontier."""
