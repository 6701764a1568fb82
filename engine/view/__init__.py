"""Views of a partition: rows, levels of edges, pairs that are scored, and how they are found."""
