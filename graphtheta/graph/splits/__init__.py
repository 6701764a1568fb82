"""Training, validation and test sets: of nodes, of edges by region, and of links."""
