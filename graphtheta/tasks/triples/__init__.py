"""Triples (head, relation, tail): positives with filtered negatives, and ranks among all nodes."""
