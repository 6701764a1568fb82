"""What samplers are made of: their protocols, candidate edges, ranks, draws, and columns of edges."""
