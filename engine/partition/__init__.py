"""A worker's part of the graph, and the two moves between masters and mirrors."""
