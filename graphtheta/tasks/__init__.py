"""Tasks: targets and losses, evaluation, triples, retrieval."""
