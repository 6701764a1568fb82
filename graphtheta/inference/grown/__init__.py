"""Trained models on other graphs, and on graphs that have grown."""
