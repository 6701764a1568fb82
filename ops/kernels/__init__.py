"""Compiled loops: the only folder that imports numba. Plain arrays in, plain arrays out."""
if __name__ != "graphtheta.ops.kernels":
    raise ImportError("import graphtheta.ops.kernels, not ops.kernels")
