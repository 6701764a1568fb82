"""Optimisers, which change parameters by their gradients."""
