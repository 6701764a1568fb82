"""The distributed machine: communicators, partitions, exchanges, views, supersteps."""

if __name__ != "graphtheta.engine":
    raise ImportError("import graphtheta.engine, not engine")
