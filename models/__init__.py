"""Published layers, one a file, and decoders."""
if __name__ != "graphtheta.models":
    raise ImportError("import graphtheta.models, not models")
