"""Reverse-mode automatic differentiation: tape, primitives, edge expressions, lazy elementwise fusion."""
