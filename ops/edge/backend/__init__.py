"""Back ends of edge programs: ``reference`` in NumPy, and ``fused``, which runs generated loops."""
