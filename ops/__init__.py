"""Local numerics: tape, primitives, edge programs, losses, optimisers. Knows neither MPI nor partitions."""
if __name__ != "graphtheta.ops":
    raise ImportError("import graphtheta.ops, not ops")
