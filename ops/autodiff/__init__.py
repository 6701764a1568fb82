"""Automatic differentiation: tape, primitives, edge expressions, lazy elementwise fusion."""
