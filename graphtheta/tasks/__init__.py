"""What is learned: kinds of tasks, their evaluation, triples, retrieval."""
