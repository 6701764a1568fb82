"""Layers and weights of PyTorch Geometric and DGL, taken into models."""
