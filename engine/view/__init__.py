"""Views of a partition: targets, expansion, levels of rows and edges, and the strategies that make them."""
