"""The parts of samplers: their protocols, candidate edges, ranks, draws, and columns of edges."""
