"""Learnable rows of nodes: tables of which each worker holds the rows of its masters, and sparse updates."""
