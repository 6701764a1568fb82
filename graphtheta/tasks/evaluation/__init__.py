"""Evaluation and prediction: evaluators of nodes, edges and links; thresholds."""
