"""Compiling with Numba, and the folder in which machine code is kept."""
