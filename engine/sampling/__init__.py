"""Parts of samplers: protocols, candidate edges, ranks, draws, and columns of edges."""
